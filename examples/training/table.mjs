/** The table with one row per recipe; the terminal, the page and the documents have the same columns. */

function signed(points) {
  const text = points.toFixed(2);
  return points > 0 ? `+${text}` : text.replace("-", "−");
}

const criterion = ({ passes }) => (passes === undefined ? "" : passes ? "met" : "MISSED");

/** For each column: its title (two lines), its width, and the function that formats a row's cell. */
export const COLUMNS = [
  { title: ["", "recipe"], width: 20, show: (row) => row.name },
  { title: ["accuracy", "%"], width: 8, show: (row) => row.accuracy.toFixed(2) },
  { title: ["to bf16", "points"], width: 7, show: ({ difference }) => signed(difference.mean) },
  { title: ["± error", "points"], width: 7, show: ({ difference }) => difference.error.toFixed(2) },
  {
    title: ["at least", "points"],
    width: 8,
    show: ({ least }) => (least === undefined ? "" : signed(least)),
  },
  { title: ["", "criterion"], width: 9, show: criterion },
  { title: ["loss", "at the end"], width: 10, show: (row) => row.loss.toFixed(4) },
  { title: ["a run", "s"], width: 5, show: (row) => row.seconds.toFixed(1) },
  { title: ["CPU", "s"], width: 5, show: (row) => row.cpuSeconds.toFixed(1) },
];

/** One sentence per column that explains it. */
export function legend({ count, seeds, epoch }) {
  return [
    `accuracy: right answers to ${count} digits held back from training, mean of ${seeds} seed${seeds > 1 ? "s" : ""}.`,
    "to bf16: the mean over digits of d, where d is right (1) or wrong (0) under the recipe less the same under bf16, mean over seeds.",
    "± error: its standard error, that of the mean of the paired d of all digits: √(Σ(d − mean)² / (n − 1) / n).",
    "at least: −(allowance + 2 errors); the allowance is 0.5 points for 8-bit recipes and 1.5 for NVFP4.",
    `loss at the end: of training, mean of the last ${epoch} steps and of all seeds.`,
    "a run: time to train and to answer, mean of all seeds; CPU: what of it processors spent.",
  ];
}

export function markdown(rows) {
  const lines = [
    COLUMNS.map(({ title }) => title.filter(Boolean).join("<br>")),
    COLUMNS.map((_, i) => (i === 0 ? "---" : "---:")),
    ...rows.map((row) => COLUMNS.map(({ show }) => show(row))),
  ];
  return lines.map((cells) => `| ${cells.join(" | ")} |\n`).join("");
}
