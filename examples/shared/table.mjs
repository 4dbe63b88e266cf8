/** Formats tables for the terminal and for a page. A column is { title: two lines, width, show(row) }. */

/** The lines with the titles, and the line below them. */
export function headLines(columns) {
  const titles = [0, 1].map((line) => joined(columns, (column) => column.title[line]));
  return [...titles, joined(columns, ({ width }) => "─".repeat(width))];
}

export function rowLine(columns, row) {
  return joined(columns, ({ show }) => show(row));
}

/** Joins cells to a line. The first column is aligned left, all others right. */
function joined(columns, cellOf) {
  const cells = columns.map((column) => [cellOf(column), column.width]);
  return cells.map(([cell, width], i) => (i === 0 ? cell.padEnd(width) : cell.padStart(width))).join("  ");
}

export function htmlTable(columns, rows) {
  const head = columns.map(({ title }) => `<th>${title.join("<br>")}</th>`).join("");
  const body = rows.map((row) => `<tr>${columns.map(({ show }) => `<td>${show(row)}</td>`).join("")}</tr>`);
  return `<div class="scroll"><table class="results"><thead><tr>${head}</tr></thead><tbody>${body.join("\n")}</tbody></table></div>`;
}
