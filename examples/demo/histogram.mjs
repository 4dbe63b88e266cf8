/** Histograms of each output's error against float64, and of the accumulator's part of it. */
import { countMagnitudes, octaveEdges } from "../shared/charts/bins.mjs";
import { histogramChart } from "../shared/charts/charts.mjs";
import { drawn } from "../shared/charts/host.mjs";
import { powerText } from "../shared/charts/ticks.mjs";
import { CLASSES } from "../shared/digits.mjs";
import { OUTPUTS } from "./model.mjs";

const LOWEST = -26;
const HIGHEST = 2;
const EDGES = octaveEdges(LOWEST, HIGHEST);

const WIDTH = 250;
const HEIGHT = 124;
const TICKS = [-6, -4, -2, 0].map((decade) => ({ at: 10 ** decade, text: powerText(10, decade) }));

/** The size of one chart. */
export const CHART = { width: WIDTH, height: HEIGHT };

/** One chart per recipe on a common horizontal axis: its title, a note, and its SVG. */
export function charts(rows, truth) {
  const unit = rootMeanSquare(truth.scores);
  return rows.map(({ name, scores }) => {
    const total = spread(scores.hopper, truth.scores, unit);
    const accumulator = spread(scores.hopper, scores.exact, unit);
    const note = `${(100 * accumulator.equal).toFixed(0)} % as exact`;
    return { name, note, body: drawingOf(name, total, accumulator) };
  });
}

/** The charts and a legend, as HTML figures. */
export function histograms(rows, truth) {
  const figures = charts(rows, truth).map(
    ({ name, note, body }) => `<figure><figcaption>${name}<small>${note}</small></figcaption>
${body}</figure>`,
  );
  return [...figures, KEY].join("\n");
}

const KEY = `<figure class="legend"><p><span class="key total"></span>H200 against float64: the whole error</p>
<p><span class="key accumulator"></span>H200 against exact: what its accumulator adds</p>
<p>Across: error in units of the outputs’ root mean square. Up: number of outputs.</p></figure>`;

/** The root mean square of the scores of real classes. */
function rootMeanSquare(scores) {
  const count = (scores.length / OUTPUTS) * CLASSES;
  return Math.sqrt(scores.reduce((sum, score) => sum + score * score, 0) / count);
}

/** Counts |a - b| / unit over the real classes; `equal` is the share of elements without a difference. */
function spread(a, b, unit) {
  const errors = Array.from(a, (value, i) => Math.abs(value - b[i]) / unit).filter(
    (_, i) => i % OUTPUTS < CLASSES,
  );
  const { bins, zeros } = countMagnitudes(errors, EDGES);
  return { bins, equal: zeros / errors.length };
}

function drawingOf(name, total, accumulator) {
  const series = [
    { bins: total.bins, kind: "area" },
    { bins: accumulator.bins, kind: "outline" },
  ];
  const label = `Error histogram of ${name}`;
  return drawn(histogramChart, series, { edges: EDGES, ticks: TICKS, width: WIDTH, height: HEIGHT, label });
}
