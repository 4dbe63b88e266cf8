/** Writes self-contained HTML files that are readable in light and dark colour schemes. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const STYLE = `
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5d6874; --line: #d8dde3; --page: #ffffff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa5b1; --line: #353c44; --page: #15181c; --card: #1d2126; } }
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
figure { margin: 0; padding: 10px 12px; background: var(--card); border-radius: 8px; }
svg:not(svg svg) { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); fill: none; } .axis { stroke: var(--soft); fill: none; }
.scroll { overflow-x: auto; }
code { font-size: 13px; }
`;

/** Writes DIRECTORY/FILE atomically and returns its path. `style` is appended to the common style sheet. */
export function writePage(directory, file, { title, style, body }) {
  mkdirSync(directory, { recursive: true });
  const path = join(directory, file);
  writeFileSync(
    `${path}.partial`,
    `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title><style>${STYLE}${style}</style></head><body>
${body}
</body></html>
`,
  );
  renameSync(`${path}.partial`, path);
  return path;
}

export function notesList(notes) {
  return `<ul class="notes">${notes.map((note) => `<li>${note}</li>`).join("")}</ul>`;
}
