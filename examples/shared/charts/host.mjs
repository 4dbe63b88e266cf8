/** Charts without a browser: a document to draw in, and drawings as strings. */
import { parseHTML } from "linkedom";

const { document } = parseHTML("<!doctype html><html><body></body></html>");

/** Draws a chart of charts.mjs and returns it as SVG, which takes its style from the page that includes it. */
export function drawn(chart, data, options) {
  const element = chart(data, { ...options, document });
  element.querySelector("style")?.remove();
  element.removeAttribute("style");
  element.removeAttribute("class");
  element.setAttribute("role", "img");
  return element.outerHTML;
}
