/** The table: one row a recipe, the same columns in the terminal and in the picture. */

const percent = (share) => `${significant(100 * share)} %`;

/** Three significant digits, never an exponent. */
function significant(value) {
  if (value === 0) return "0";
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(decimals, 5));
}

/** Title (two lines), width, and what a row shows there. */
export const COLUMNS = [
  { title: ["", "recipe"], width: 18, show: (row) => row.name },
  { title: ["bits per", "value"], width: 8, show: (row) => row.bitsPerValue.toFixed(2) },
  { title: ["weights", "layer 1"], width: 8, show: (row) => percent(row.weightErrors[0]) },
  { title: ["weights", "layer 2"], width: 8, show: (row) => percent(row.weightErrors[1]) },
  { title: ["outputs", "H200"], width: 8, show: (row) => percent(row.outputErrors.hopper) },
  { title: ["outputs", "exact"], width: 8, show: (row) => percent(row.outputErrors.exact) },
  { title: ["due to", "accumulator"], width: 11, show: (row) => percent(row.accumulatorShare) },
  { title: ["right", "H200"], width: 6, show: (row) => String(row.right.hopper) },
  { title: ["right", "exact"], width: 6, show: (row) => String(row.right.exact) },
  { title: ["time", "(ms)"], width: 5, show: (row) => row.milliseconds.toFixed(0) },
];

/** What the columns mean, a sentence each. */
export function legend({ count, right }) {
  return [
    "bits per value: codes and scales of both layers' weights and activations.",
    "weights, outputs: Frobenius norm of the error over that of the float64 value.",
    "H200: products summed as its tensor cores do; exact: each dot product rounded once.",
    "due to accumulator: |H200 - exact|² over |H200 - float64|², of the outputs.",
    `right: of ${count} digits never trained on; float64 has ${right} right.`,
    "time: quantizing and multiplying both layers as an H200 would, on this machine.",
  ];
}

/** The titles and the line under them. */
export function headLines() {
  const titles = [0, 1].map((line) => joined(COLUMNS.map(({ title }) => title[line])));
  return [...titles, joined(COLUMNS.map(({ width }) => "─".repeat(width)))];
}

export function rowLine(row) {
  return joined(COLUMNS.map(({ show }) => show(row)));
}

/** The first column leans left, numbers right. */
function joined(cells) {
  return cells.map((cell, i) => (i === 0 ? cell.padEnd(COLUMNS[i].width) : cell.padStart(COLUMNS[i].width))).join("  ");
}
