/** Histograms of the error of each output against float64, and of the part of it that the accumulator causes. */
import { CLASSES } from "../shared/digits.mjs";
import { OUTPUTS } from "./model.mjs";

const LOWEST = -26;
const HIGHEST = 2;
/**
 * The edges of the bins, two per octave. Values are compared with them, so that no logarithm rounds a value into
 * another bin.
 */
const EDGES = Array.from({ length: 2 * (HIGHEST - LOWEST) + 1 }, (_, i) => {
  const power = 2 ** (LOWEST + Math.floor(i / 2));
  return i % 2 === 0 ? power : power * Math.SQRT2;
});
const BINS = EDGES.length - 1;

const WIDTH = 250;
const HEIGHT = 124;
const BASE = 104;
const DECADES = [-6, -4, -2, 0];

/** The size of one chart. */
export const CHART = { width: WIDTH, height: HEIGHT };

/** One chart per recipe on a common horizontal axis: its title, a note, and its SVG elements. */
export function charts(rows, truth) {
  const unit = rootMeanSquare(truth.scores);
  return rows.map(({ name, scores }) => {
    const total = spread(scores.hopper, truth.scores, unit);
    const accumulator = spread(scores.hopper, scores.exact, unit);
    const note = `${(100 * accumulator.equal).toFixed(0)} % as exact`;
    return { name, note, body: drawingOf(total, accumulator) };
  });
}

/** The charts and a key, as HTML figures. */
export function histograms(rows, truth) {
  const figures = charts(rows, truth).map(
    ({ name, note, body }) => `<figure><figcaption>${name}<small>${note}</small></figcaption>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="Error histogram of ${name}">${body}</svg></figure>`,
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
  const bins = new Array(BINS).fill(0);
  let equal = 0;
  let count = 0;
  for (let i = 0; i < a.length; i++) {
    if (i % OUTPUTS >= CLASSES) continue;
    const error = Math.abs(a[i] - b[i]) / unit;
    count++;
    if (error === 0) equal++;
    else bins[binOf(error)]++;
  }
  return { bins, equal: equal / count };
}

function binOf(error) {
  const above = EDGES.findIndex((edge) => error < edge);
  return above < 0 ? BINS - 1 : Math.max(0, above - 1);
}

function drawingOf(total, accumulator) {
  const tallest = Math.max(...total.bins, ...accumulator.bins);
  const x = (bin) => (bin * WIDTH) / BINS;
  const y = (count) => BASE - (count / tallest) * (BASE - 8);
  const steps = ({ bins }) =>
    bins.map((count, i) => `L${x(i).toFixed(1)} ${y(count).toFixed(1)}H${x(i + 1).toFixed(1)}`).join("");
  const ticks = DECADES.map((decade) => {
    const at = x(2 * (decade * Math.log2(10) - LOWEST)).toFixed(1);
    return `<path class="grid" d="M${at} 8V${BASE}"/><text x="${at}" y="${BASE + 14}" text-anchor="middle">${tick(decade)}</text>`;
  });
  return `${ticks.join("")}
<path class="total" d="M0 ${BASE}${steps(total)}V${BASE}Z"/><path class="accumulator" d="M0 ${BASE}${steps(accumulator)}V${BASE}"/>
<path class="axis" d="M0 ${BASE}H${WIDTH}"/>`;
}

function tick(decade) {
  return decade === 0 ? "1" : `10<tspan dy="-4" font-size="7">−${-decade}</tspan>`;
}
