/** The table with one row per recipe; the terminal and the page have the same columns. */

/** A percentage with three significant digits. */
function percent(share) {
  const value = 100 * share;
  if (value === 0) return "0";
  return value < 0.001
    ? value.toExponential(0)
    : value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(value))));
}

/** For each column: its title (two lines), its width, and the function that formats a row's cell. */
export const COLUMNS = [
  { title: ["", "recipe"], width: 18, show: (row) => row.name },
  { title: ["bits", "a value"], width: 7, show: (row) => row.bitsPerValue.toFixed(2) },
  { title: ["W1", "%"], width: 6, show: (row) => percent(row.operandErrors[0]) },
  { title: ["X1", "%"], width: 6, show: (row) => percent(row.operandErrors[1]) },
  { title: ["W2", "%"], width: 6, show: (row) => percent(row.operandErrors[2]) },
  { title: ["X2", "%"], width: 6, show: (row) => percent(row.operandErrors[3]) },
  { title: ["output", "%"], width: 6, show: (row) => percent(row.outputError) },
  { title: ["accumulator", "%"], width: 11, show: (row) => percent(row.accumulator.error) },
  { title: ["its share", "%"], width: 9, show: (row) => percent(row.accumulator.share) },
  { title: ["right", "H200"], width: 5, show: (row) => String(row.right.hopper) },
  { title: ["right", "exact"], width: 5, show: (row) => String(row.right.exact) },
  { title: ["time", "ms"], width: 4, show: (row) => row.milliseconds.toFixed(0) },
];

/** One sentence per column that explains it. */
export function legend({ count, right }) {
  return [
    "bits a value: codes and scales of all weights and inputs.",
    "W1 X1 W2 X2: error of the weights and inputs of layers 1 and 2, |quantized - wide| / |wide|.",
    "output: |H200 - float64| / |float64|. H200: products summed as its tensor cores sum them.",
    "accumulator: |H200 - exact| / |float64|. exact: every dot product rounded once.",
    "its share: |H200 - exact|² / |H200 - float64|². |…| is the Frobenius norm.",
    `right: of ${count} digits held back from training; float64 has ${right} right.`,
    "time: to quantize and multiply both layers as an H200 would, the faster of two runs here.",
  ];
}
