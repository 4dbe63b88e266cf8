/** Text in SVG pictures and HTML pages. */

/** Replaces the characters that are markup in SVG and HTML, also inside of attributes. */
export const escapeMarkup = (text: string): string =>
  text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c] ?? "&quot;");
