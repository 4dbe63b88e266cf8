/** Curves over training steps as SVG. */

/** The number of steps that a point of a curve averages. */
export const WINDOW = 16;

const FRAME = { left: 52, right: 1040, top: 10, bottom: 340 };
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
  const y = scale(Math.log(low), Math.log(high));
  const ticks = marks.filter((mark) => mark >= low && mark <= high);
  return chart(
    "Loss by step",
    curves,
    (loss) => y(Math.log(loss)),
    ticks.map((mark) => [mark, `${+mark.toPrecision(1)}`]),
  );
}

/** The difference in per cent of each row's loss from that of the first row. */
export function ratioChart(rows) {
  const [base, ...others] = rows.map(({ curve }) => smoothed(curve));
  const curves = [base, ...others].map((curve) => curve.map((loss, i) => 100 * (loss / base[i] - 1)));
  const [least, most] = rangeOf(curves);
  const step = niceStep((most - least) / MARKS);
  const [low, high] = [Math.floor(least / step), Math.ceil(most / step) + Number(least === most)];
  const ticks = Array.from({ length: high - low + 1 }, (_, i) => (low + i) * step);
  const label = (mark) => `${mark > 0 ? "+" : mark < 0 ? "−" : ""}${+Math.abs(mark).toPrecision(3)} %`;
  return chart(
    "Loss against bf16 by step",
    curves,
    scale(low * step, high * step),
    ticks.map((mark) => [mark, label(mark)]),
  );
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

/** Maps low..high to the height of the chart. */
function scale(low, high) {
  return (value) => FRAME.bottom - ((value - low) / (high - low)) * (FRAME.bottom - FRAME.top);
}

/** The smallest of 1, 2, 5, 10, ... that is at least `least`. */
function niceStep(least) {
  const decade = 10 ** Math.floor(Math.log10(least || 1));
  return decade * [1, 2, 5, 10].find((factor) => factor * decade >= (least || 1));
}

/** A chart with curves of one length. Later curves are drawn below earlier ones. */
function chart(label, curves, y, ticks) {
  const last = Math.max(1, curves[0].length - 1);
  const x = (step) => FRAME.left + (step / last) * (FRAME.right - FRAME.left);
  const across = niceStep(last / MARKS);
  const steps = Array.from({ length: Math.floor(last / across) + 1 }, (_, i) => i * across).filter(
    Number.isInteger,
  );
  const rules = ticks.map(([mark, text]) => {
    const at = y(mark).toFixed(1);
    return `<path class="grid" d="M${FRAME.left} ${at}H${FRAME.right}"/><text x="${FRAME.left - 8}" y="${+at + 4}" text-anchor="end">${text}</text>`;
  });
  const names = steps.map(
    (step) => `<text x="${x(step).toFixed(1)}" y="${FRAME.bottom + 18}" text-anchor="middle">${step}</text>`,
  );
  const drawn = curves
    .map((curve, i) => `<path class="curve series-${i}" d="${lineOf(curve, x, y)}"/>`)
    .reverse();
  return `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${label}">${rules.join("")}${names.join("")}
<path class="axis" d="M${FRAME.left} ${FRAME.bottom}H${FRAME.right}"/>${drawn.join("\n")}</svg>`;
}

/** The path of a curve. NaN and infinities leave a gap. */
function lineOf(curve, x, y) {
  let pen = "M";
  return curve.reduce((path, value, step) => {
    if (!Number.isFinite(value)) pen = "M";
    else [path, pen] = [`${path}${pen}${x(step).toFixed(1)} ${y(value).toFixed(1)}`, "L"];
    return path;
  }, "");
}
