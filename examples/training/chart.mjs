/** Curves over training steps as SVG. */
import { curveChart } from "../shared/charts/charts.mjs";
import { drawn } from "../shared/charts/host.mjs";

/** The number of steps that a point of a curve averages. */
export const WINDOW = 16;

const [WIDTH, HEIGHT] = [1050, 372];
const LOG_TICKS = [1, 2, 5];
const MARKS = 8;

/** The loss of each row's `curve` on a logarithmic axis. */
export function lossChart(rows) {
  const curves = rows.map(({ curve }) => smoothed(curve));
  const [least, most] = rangeOf(curves);
  const decades = Array.from({ length: 12 }, (_, i) => 10 ** (i - 8));
  const marks = decades.flatMap((decade) => LOG_TICKS.map((factor) => factor * decade));
  const [low, high] = [least / 1.1, most * 1.1];
  const ticks = marks.filter((mark) => mark >= low && mark <= high);
  return chart(
    "Loss by step",
    curves,
    { type: "log", domain: [low, high] },
    ticks,
    (mark) => `${+mark.toPrecision(1)}`,
  );
}

/** The difference in per cent between each row's loss and the first row's. */
export function ratioChart(rows) {
  const [base, ...others] = rows.map(({ curve }) => smoothed(curve));
  const curves = [base, ...others].map((curve) => curve.map((loss, i) => 100 * (loss / base[i] - 1)));
  const [least, most] = rangeOf(curves);
  const step = niceStep((most - least) / MARKS);
  const [low, high] = [Math.floor(least / step), Math.ceil(most / step) + Number(least === most)];
  const label = (mark) => `${mark > 0 ? "+" : mark < 0 ? "−" : ""}${+Math.abs(mark).toPrecision(3)} %`;
  const ticks = Array.from({ length: high - low + 1 }, (_, i) => (low + i) * step);
  return chart("Loss against bf16 by step", curves, { domain: [low * step, high * step] }, ticks, label);
}

/** Moving averages: at each step, the mean of up to WINDOW steps that end there. */
function smoothed(curve) {
  return Array.from(curve, (_, step) => {
    const part = curve.slice(Math.max(0, step + 1 - WINDOW), step + 1);
    return part.reduce((sum, loss) => sum + loss, 0) / part.length;
  });
}

function rangeOf(curves) {
  const values = curves.flat().filter(Number.isFinite);
  return [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
}

/** The smallest of 1, 2, 5, 10, 20, ... that is at least `least`. */
function niceStep(least) {
  const decade = 10 ** Math.floor(Math.log10(least || 1));
  return decade * [1, 2, 5, 10].find((factor) => factor * decade >= (least || 1));
}

/** A chart with curves of equal length, on a scale of Plot. Later curves are drawn below earlier ones. */
function chart(label, curves, scale, ticks, tickFormat) {
  const across = niceStep(Math.max(1, curves[0].length - 1) / MARKS);
  const steps = Array.from({ length: Math.floor((curves[0].length - 1) / across) + 1 }, (_, i) => i * across);
  const series = curves.map((curve, i) => ({
    points: Array.from(curve, (value, step) => [step, Number.isFinite(value) ? value : Number.NaN]),
    colour: `var(--series-${i})`,
  }));
  return drawn(curveChart, series.reverse(), {
    x: { axis: { ticks: steps.filter(Number.isInteger), tickFormat: String } },
    y: { scale, axis: { ticks, tickFormat } },
    width: WIDTH,
    height: HEIGHT,
    label,
  });
}
