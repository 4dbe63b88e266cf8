/** The picture: one HTML file that needs nothing else, readable on light and on dark. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CLASSES } from "./data.mjs";
import { digitTable } from "./digits.mjs";
import { heatMaps } from "./heatmap.mjs";
import { histograms } from "./histogram.mjs";
import { COLUMNS } from "./table.mjs";

const STYLE = `
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5d6874; --line: #d8dde3; --page: #ffffff; --card: #f6f8fa;
  --total: #4f86c6; --accumulator: #c2410c; --wrong: #c81e3a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa5b1; --line: #353c44; --page: #15181c; --card: #1d2126;
  --total: #5b93d3; --accumulator: #fb923c; --wrong: #ff6b81; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 32px 28px 56px; max-width: 1120px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 40px 0 4px; } h3 { font-size: 15px; margin: 22px 0 4px; }
p { margin: 4px 0 12px; color: var(--soft); max-width: 90ch; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.results { width: 100%; } .results td, .results th { padding: 5px 8px; text-align: right; white-space: nowrap; }
.results tr > :first-child { text-align: left; padding-left: 0; } .results thead th { font-weight: 600; color: var(--soft); line-height: 1.25; vertical-align: bottom; }
.results tbody tr { border-top: 1px solid var(--line); }
.notes { margin: 12px 0; padding: 0; list-style: none; color: var(--soft); font-size: 13px; columns: 2; column-gap: 32px; }
.notes li { break-inside: avoid; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 14px; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)); gap: 14px; }
figure { margin: 0; padding: 10px 12px; background: var(--card); border-radius: 8px; }
figcaption { display: flex; gap: 8px; justify-content: space-between; align-items: baseline; font-weight: 600; margin-bottom: 4px; }
figcaption small { font-weight: 400; font-size: 12px; color: var(--soft); } figcaption { white-space: nowrap; }
.legend { display: flex; flex-direction: column; justify-content: center; background: none; font-size: 13px; } .legend p { margin: 2px 0; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); fill: none; } .axis { stroke: var(--soft); fill: none; }
.total { fill: var(--total); fill-opacity: .75; } .accumulator { fill: none; stroke: var(--accumulator); stroke-width: 1.6; }
.key { display: inline-block; width: 22px; height: 11px; margin: 0 6px 0 0; vertical-align: -1px; }
.key.total { background: var(--total); opacity: .75; } .key.accumulator { border: 2px solid var(--accumulator); border-bottom: 0; }
.bar span { display: inline-block; width: 180px; height: 11px; margin: 0 6px; vertical-align: -1px; border-radius: 2px; }
.scroll { overflow-x: auto; }
.digits td, .digits th { padding: 2px 6px; text-align: center; min-width: 62px; font-weight: 400; }
.digits th[scope] { text-align: left; white-space: nowrap; padding-left: 0; } .digits tbody tr { border-top: 1px solid var(--line); }
.digit { width: 56px; fill: var(--ink); background: var(--card); border-radius: 4px; margin: 0 auto; }
.digits .truth > * { font-weight: 700; } .digits .wrong { color: var(--wrong); font-weight: 700; }
code { font-size: 13px; }
`;

/** Writes DIRECTORY/demo.html, whole or not at all, and returns its path. */
export function writePicture(directory, content) {
  mkdirSync(directory, { recursive: true });
  const path = join(directory, "demo.html");
  writeFileSync(`${path}.partial`, page(content));
  renameSync(`${path}.partial`, path);
  return path;
}

function page({ rows, truth, notes, digest, device }) {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lockstep: digits under every recipe</title><style>${STYLE}</style></head><body>
<h1>Handwritten digits under every recipe</h1>
<p>A network of 512 random ReLU features and a ridge-regression head reads ${truth.heldBack.count} digits it was not trained on.
Weights and activations are quantized by each recipe and multiplied as an H200 multiplies, and exactly.</p>
${resultTable(rows)}
<ul class="notes">${notes.map((note) => `<li>${note}</li>`).join("")}</ul>
<h2>How far outputs are from float64</h2>
<p>Each of the ${truth.heldBack.count * CLASSES} outputs is in each chart; the axis is logarithmic. “As exact”: the share of outputs that an H200 gives bit for bit as exact arithmetic does.</p>
<div class="charts">${histograms(rows, truth)}</div>
<h2>Block scales</h2>
<p>Each cell is a block of elements that share a scale; its colour is the largest magnitude that the block can hold.</p>
${heatMaps(rows, truth)}
<h2>What each recipe reads</h2>
<p>The digits that divide the recipes most, and at the right three that do not. Wrong answers are red.</p>
<div class="scroll">${digitTable(rows, truth)}</div>
<p>Computed on ${device}. SHA-256 of all outputs, the same on any machine: <code>${digest}</code>.</p>
</body></html>
`;
}

function resultTable(rows) {
  const head = COLUMNS.map(({ title }) => `<th>${title.join("<br>")}</th>`).join("");
  const body = rows.map((row) => `<tr>${COLUMNS.map(({ show }) => `<td>${show(row)}</td>`).join("")}</tr>`);
  return `<div class="scroll"><table class="results"><thead><tr>${head}</tr></thead><tbody>${body.join("\n")}</tbody></table></div>`;
}
