/** Charts without a browser: a document to draw in, and drawings as text. */
import { parseHTML } from "linkedom";

const { document } = parseHTML("<!doctype html><html><body></body></html>");

/** Draws a chart of charts.mjs and returns it as SVG text, whose style is that of the page around it. */
export function drawn(chart, data, options) {
  const element = chart(data, { ...options, document });
  element.querySelector("style")?.remove();
  element.removeAttribute("style");
  element.removeAttribute("class");
  element.setAttribute("role", "img");
  return element.outerHTML;
}
