/** The HTML page: the table, output errors, block scales, and the digits with the recipes' predictions. */
import { CLASSES } from "../shared/digits.mjs";
import { notesList, writePage } from "../shared/page.mjs";
import { htmlTable } from "../shared/table.mjs";
import { digitTable } from "./digits.mjs";
import { heatMaps } from "./heatmap.mjs";
import { histograms } from "./histogram.mjs";
import { COLUMNS } from "./table.mjs";

const STYLE = `
:root { --series-a: #4f86c6; --series-b: #c2410c; --wrong: #c81e3a; }
@media (prefers-color-scheme: dark) { :root { --series-a: #5b93d3; --series-b: #fb923c; --wrong: #ff6b81; } }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 14px; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)); gap: 14px; }
figcaption { display: flex; gap: 8px; justify-content: space-between; align-items: baseline; font-weight: 600; margin-bottom: 4px; }
figcaption small { font-weight: 400; font-size: 12px; color: var(--soft); } figcaption { white-space: nowrap; }
.legend { display: flex; flex-direction: column; justify-content: center; background: none; font-size: 13px; } .legend p { margin: 2px 0; }
.total { fill: var(--series-a); fill-opacity: .75; } .accumulator { fill: none; stroke: var(--series-b); stroke-width: 1.6; }
.key { display: inline-block; width: 22px; height: 11px; margin: 0 6px 0 0; vertical-align: -1px; }
.key.total { background: var(--series-a); opacity: .75; } .key.accumulator { border: 2px solid var(--series-b); border-bottom: 0; }
.bar span { display: inline-block; width: 180px; height: 11px; margin: 0 6px; vertical-align: -1px; border-radius: 2px; }
.digits td, .digits th { padding: 2px 6px; text-align: center; min-width: 62px; font-weight: 400; }
.digits th[scope] { text-align: left; white-space: nowrap; padding-left: 0; } .digits tbody tr { border-top: 1px solid var(--line); }
.digit { width: 56px; fill: var(--ink); background: var(--card); border-radius: 4px; margin: 0 auto; }
.digits .truth > * { font-weight: 700; } .digits .wrong { color: var(--wrong); font-weight: 700; }
`;

/** Writes DIRECTORY/demo.html and returns its path. */
export function writePicture(directory, content) {
  const title = "Lockstep: digits under every recipe";
  return writePage(directory, "demo.html", { title, style: STYLE, body: bodyOf(content) });
}

function bodyOf({ rows, truth, notes, digest, device }) {
  return `<h1>Handwritten digits under every recipe</h1>
<p>A network of 512 random ReLU features and a ridge-regression head reads ${truth.heldBack.count} digits it was not trained on.
Weights and activations are quantized by each recipe and multiplied as an H200 multiplies, and exactly.</p>
${htmlTable(COLUMNS, rows)}
${notesList(notes)}
<h2>How far outputs are from float64</h2>
<p>Each of the ${truth.heldBack.count * CLASSES} outputs is in each chart; the axis is logarithmic. “As exact”: the share of outputs that an H200 gives bit for bit as exact arithmetic does.</p>
<div class="charts">${histograms(rows, truth)}</div>
<h2>Block scales</h2>
<p>Each cell is a block of elements that share a scale; its colour is the largest magnitude that the block can hold.</p>
${heatMaps(rows, truth)}
<h2>What each recipe reads</h2>
<p>The digits that divide the recipes most, and at the right three that do not. Wrong answers are red.</p>
<div class="scroll">${digitTable(rows, truth)}</div>
<p>Computed on ${device}. SHA-256 of all outputs, the same on any machine: <code>${digest}</code>.</p>`;
}
