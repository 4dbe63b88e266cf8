/** Heat maps of block scales: the largest magnitude that each block of a matrix can hold. */
import { heatMap } from "../shared/charts/charts.mjs";
import { RAMP } from "../shared/charts/colours.mjs";
import { drawn } from "../shared/charts/host.mjs";
import { CLASSES } from "../shared/digits.mjs";

const PANEL = 300;
const MARGIN = 34;
const DIGITS_EACH = 10;

/** The row indices of ten held-back digits of each class, class by class. */
function sampleRows(labels) {
  return Array.from({ length: CLASSES }, (_, digit) => {
    const rows = [...labels.keys()].filter((row) => labels[row] === digit);
    return rows.slice(0, DIGITS_EACH);
  }).flat();
}

/**
 * Heat maps of the scales of hidden activations and of the output layer's weights, for each charted recipe. Each of the
 * two kinds has one colour scale.
 */
export function heatMaps(rows, { heldBack }) {
  const charted = rows.filter((row) => row.ceilings);
  const sample = sampleRows(heldBack.labels);
  const hidden = charted.map(({ name, ceilings }) => ({
    name,
    cells: sample.map((row) => ceilings.hidden[row]),
  }));
  const head = charted.map(({ name, ceilings }) => ({ name, cells: ceilings.head.slice(0, CLASSES) }));
  return [
    section("Hidden activations: ten digits of each class, 512 features across", hidden, 3, DIGITS_EACH),
    section("Weights of layer 2: one row for each class, 512 features across", head, 14, 1),
  ].join("\n");
}

function section(title, panels, rowHeight, rowsPerLabel) {
  const range = rangeOf(panels);
  const figures = panels
    .map(({ name, cells }) => panel(name, cells, range, rowHeight, rowsPerLabel))
    .join("\n");
  return `<h3>${title}</h3>${colourBar(range)}<div class="maps">${figures}</div>`;
}

/** The powers of two between which all nonzero block scales lie. */
function rangeOf(panels) {
  const logs = panels.flatMap(({ cells }) =>
    cells
      .flat()
      .filter((value) => value > 0)
      .map(Math.log2),
  );
  const low = logs.reduce((least, value) => Math.min(least, value));
  const high = logs.reduce((most, value) => Math.max(most, value));
  return { low: Math.floor(low), high: Math.ceil(high) };
}

function panel(name, cells, range, rowHeight, rowsPerLabel) {
  const height = cells.length * rowHeight;
  const labels = Array.from({ length: cells.length / rowsPerLabel }, (_, i) => {
    const y = (i + 0.5) * rowsPerLabel * rowHeight + 4;
    return `<text x="${MARGIN - 8}" y="${y}" text-anchor="end">${i}</text>`;
  });
  const blocks = cells[0].length;
  const label = `Block scales of ${name}`;
  const map = drawn(heatMap, cells.flat().map(logarithm), {
    rows: cells.length,
    columns: blocks,
    domain: [range.low, range.high],
    width: PANEL,
    height,
    label,
  });
  return `<figure><figcaption>${name}<small>${blocks} blocks of ${512 / blocks}</small></figcaption>
<svg viewBox="0 0 ${MARGIN + PANEL} ${height}" role="img" aria-label="${label}">${labels.join("")}
<g transform="translate(${MARGIN} 0)">${map}</g></svg></figure>`;
}

/** NaN for a scale of zero, which is left blank. */
function logarithm(ceiling) {
  return ceiling > 0 ? Math.log2(ceiling) : Number.NaN;
}

function colourBar({ low, high }) {
  return `<p class="bar">holds up to ${power(low)} <span style="background:linear-gradient(90deg,${RAMP.join(",")})"></span> ${power(high)}</p>`;
}

function power(exponent) {
  return `2<sup>${exponent < 0 ? `−${-exponent}` : exponent}</sup>`;
}
