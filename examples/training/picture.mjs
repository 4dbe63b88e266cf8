/** The HTML page: the table and the loss curves of all recipes. */
import { notesList, writePage } from "../shared/page.mjs";
import { htmlTable } from "../shared/table.mjs";
import { lossChart, ratioChart, WINDOW } from "./chart.mjs";
import { COLUMNS } from "./table.mjs";

/** The colours of each row, for light and for dark pages. */
const COLOURS = [
  ["#30363d", "#e6edf3"],
  ["#0969da", "#6cb6ff"],
  ["#e36209", "#ffa657"],
  ["#1a7f37", "#56d364"],
  ["#8250df", "#c8a4ff"],
  ["#cf222e", "#ff7b72"],
];

const rules = (shade) => COLOURS.map((pair, i) => `--series-${i}: ${pair[shade]};`).join(" ");
const STYLE = `
:root { ${rules(0)} }
@media (prefers-color-scheme: dark) { :root { ${rules(1)} } }
${COLOURS.map((_, i) => `.series-${i} { background: var(--series-${i}); }`).join("\n")}
.series { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 8px 0; color: var(--ink); }
.series i { display: inline-block; width: 22px; height: 3px; margin-right: 7px; vertical-align: 4px; border-radius: 2px; }
`;

/** Writes DIRECTORY/training.html and returns its path. */
export function writePicture(directory, report) {
  const title = "Lockstep: training under every recipe";
  return writePage(directory, "training.html", { title, style: STYLE, body: bodyOf(report) });
}

function bodyOf({ rows, notes, digest, device, spent }) {
  const key = rows.map(({ name }, i) => `<span><i class="series-${i}"></i>${name}</span>`).join("");
  return `<h1>Training under every recipe</h1>
<p>The same network, from the same weights and on the same digits in the same order, trained under each recipe as an H200
computes it, and asked about digits it was not trained on.</p>
${htmlTable(COLUMNS, rows)}
${notesList(notes)}
<h2>Loss</h2>
<p>Training loss by step, mean of all seeds and of the last ${WINDOW} steps; the axis is logarithmic.</p>
<p class="series">${key}</p>
<figure>${lossChart(rows)}</figure>
<h2>Loss against bf16</h2>
<p>The same curves, each divided by that of bf16.</p>
<figure>${ratioChart(rows)}</figure>
<p>Computed by ${device}, ${spent}. SHA-256 of all losses, the same on any machine: <code>${digest}</code>.</p>`;
}
