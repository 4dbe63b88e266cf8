/** A replayed run as an HTML page: counts, a strip with a cell for each operation, and a table. It has no script. */
import { describeDivision, type Verdict } from "../../referee/replay.js";
import type { RecordedOperation, TensorReference } from "../../referee/run.js";
import { escapeMarkup } from "./markup.js";

/** The content of the page besides the verdicts. */
export interface RunPage {
  /** The path of the run. */
  readonly run: string;
  /** The last line of the report: the number of operations that are the same, differ, or are not modelled. */
  readonly summary: string;
  /** The line about the comparison with another run. */
  readonly comparison?: string | undefined;
  /** The chip, the versions and the settings, by name. */
  readonly contract: readonly (readonly [term: string, value: string])[];
  readonly operations: readonly RecordedOperation[];
  readonly verdicts: readonly Verdict[];
  /** The lines that explain the differences of a verdict. */
  readonly explain: (verdict: Verdict) => readonly string[];
}

/** The colours of verdicts: blue, orange and grey differ for all kinds of colour vision. */
const COLOURS = { same: "#0072b2", differs: "#d55e00", "not modelled": "#999" } as const;

const STYLE = [
  "body{font:14px sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#222;background:#fff}",
  "table{border-collapse:collapse}th,td{text-align:left;padding:.2em .8em .2em 0;vertical-align:top}",
  "tr{border-top:1px solid #ddd}pre{margin:.3em 0;white-space:pre-wrap}",
  ".strip{display:flex;flex-wrap:wrap;gap:2px;margin:1em 0}.strip a{width:10px;height:14px}",
  ...Object.entries(COLOURS).map(
    ([verdict, colour]) =>
      `.${classOf(verdict)}{color:${colour}}.strip a.${classOf(verdict)}{background:${colour}}`,
  ),
].join("");

function classOf(verdict: string): string {
  return verdict.replace(" ", "-");
}

const typeOf = ({ dtype, shape }: TensorReference): string => `${dtype} [${shape.join(", ")}]`;

/** Describes a verdict: "same, K in 2 splits, unverified". */
function wordsOf(judged: Verdict): string {
  const { verdict, unverified, reason } = judged;
  const division = describeDivision(judged);
  return [
    verdict,
    ...(division === undefined ? [] : [`K in ${division}`]),
    ...(unverified ? ["unverified"] : []),
    ...(reason === undefined ? [] : [reason]),
  ].join(", ");
}

function rowOf(page: RunPage, verdict: Verdict): string {
  const { index, schema } = verdict;
  const outputs = page.operations[index]?.outputs.map(typeOf).join("; ") ?? "";
  const lines = page.explain(verdict);
  const explanation = lines.length > 0 ? `<pre>${escapeMarkup(lines.join("\n"))}</pre>` : "";
  return [
    `<tr id="operation-${index}"><td>${index}</td><td>${escapeMarkup(schema)}</td><td>${escapeMarkup(outputs)}</td>`,
    `<td><span class="${classOf(verdict.verdict)}">${escapeMarkup(wordsOf(verdict))}</span>${explanation}</td></tr>`,
  ].join("");
}

/** Returns the page of a run. */
export function runPage(page: RunPage): string {
  const { run, summary, comparison, contract, verdicts } = page;
  const title = escapeMarkup(`Replay of ${run}`);
  const cells = verdicts.map((verdict) => {
    const { index, schema } = verdict;
    const label = escapeMarkup(`${index} ${schema}: ${wordsOf(verdict)}`);
    return `<a class="${classOf(verdict.verdict)}" href="#operation-${index}" title="${label}" aria-label="${label}"></a>`;
  });
  const terms = contract.map(
    ([term, value]) => `<tr><th>${escapeMarkup(term)}</th><td>${escapeMarkup(value)}</td></tr>`,
  );
  return `${[
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${title}</title><style>${STYLE}</style></head><body>`,
    `<h1>${title}</h1><p>${escapeMarkup(summary)}</p>`,
    comparison === undefined ? "" : `<p>${escapeMarkup(comparison)}</p>`,
    `<div class="strip">${cells.join("")}</div>`,
    "<table><thead><tr><th>place</th><th>operator</th><th>outputs</th><th>verdict</th></tr></thead><tbody>",
    ...verdicts.map((verdict) => rowOf(page, verdict)),
    "</tbody></table>",
    `<h2>Contract</h2><table><tbody>${terms.join("")}</tbody></table>`,
    "</body></html>",
  ].join("\n")}\n`;
}
