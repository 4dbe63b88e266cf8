/**
 * The charts of the demo, the trainer and the playground, drawn by Observable Plot: histograms, heat maps and curves. Colours are
 * custom properties of the page: --series-a, --series-b, --line, --soft. `document` is the host's; without a browser, host.mjs.
 */
import { areaY, axisX, axisY, gridX, gridY, lineY, plot, raster, rect, ruleY } from "@observablehq/plot";
import { RAMP } from "./colours.mjs";

/**
 * Histograms on one logarithmic axis of magnitudes. A series is { bins, kind }: `area` is filled, `outline` is a line above it.
 */
export function histogramChart(
  series,
  { edges, ticks, width, height, label, document = globalThis.document },
) {
  const tallest = Math.max(1, ...series.flatMap(({ bins }) => bins));
  const steps = ({ bins }) => {
    return edges.map((edge, i) => ({ x: edge, y: bins[i] ?? bins.at(-1) ?? 0 }));
  };
  const marks = series.map((each) => {
    const options = { x: "x", y: "y", curve: "step-after" };
    return each.kind === "area"
      ? areaY(steps(each), { ...options, fill: "var(--series-a)", fillOpacity: 0.6 })
      : lineY(steps(each), { ...options, stroke: "var(--series-b)", strokeWidth: 1.6 });
  });
  return plot({
    ...frame({ width, height, document, label }),
    marginLeft: 2,
    marginRight: 2,
    x: { type: "log", base: 2, domain: [edges[0], edges.at(-1)], label: null },
    y: { axis: null, domain: [0, tallest] },
    marks: [
      gridX(
        ticks.map(({ at }) => at),
        GRID,
      ),
      axisX(
        ticks.map(({ at }) => at),
        // as strings: a logarithmic axis omits the results of tickFormat for numbers that are not powers of its base
        { ...AXIS, text: ticks.map(({ text }) => text) },
      ),
      ...marks,
      ruleY([0], { stroke: "var(--soft)" }),
    ],
  });
}

const GRID = { stroke: "var(--line)", strokeOpacity: 1 };
const AXIS = { tickSize: 0, fill: "var(--soft)", tickPadding: 6 };

const frame = ({ width, height, document, label }) => ({
  width,
  height,
  ...(document ? { document } : {}),
  ariaLabel: label,
  marginTop: 8,
  marginBottom: 22,
  style: { background: "transparent", fontFamily: "inherit" },
});

/**
 * A heat map of `values`, row by row. NaN is left blank. In a browser it is an image with one pixel for each value, elsewhere a
 * rectangle for each.
 */
export function heatMap(
  values,
  { rows, columns, domain, width, height, label, document = globalThis.document },
) {
  const hasCanvas = document === globalThis.document;
  return plot({
    ...frame({ width, height, document, label }),
    margin: 0,
    marginTop: 0,
    marginBottom: 0,
    x: { axis: null, domain: [0, columns] },
    y: { axis: null, domain: [rows, 0] },
    color: { type: "linear", domain, range: RAMP, interpolate: "rgb", clamp: true },
    marks: [hasCanvas ? pixels(values, rows, columns) : rectangles(values, columns)],
  });
}

function pixels(values, height, width) {
  return raster(values, { width, height, imageRendering: "pixelated", x1: 0, x2: width, y1: 0, y2: height });
}

function rectangles(values, columns) {
  const cells = Array.from(values, (value, i) => ({ value, x: i % columns, y: Math.floor(i / columns) }));
  return rect(
    cells.filter(({ value }) => !Number.isNaN(value)),
    {
      x1: "x",
      x2: ({ x }) => x + 1,
      y1: "y",
      y2: ({ y }) => y + 1,
      fill: "value",
      shapeRendering: "crispEdges",
    },
  );
}

/** Curves on common axes. A curve is { points: [x, y][], colour }; `x` and `y` are { scale, axis }: options of Plot. */
export function curveChart(curves, { x, y, width, height, label, document = globalThis.document }) {
  return plot({
    ...frame({ width, height, document, label }),
    marginLeft: 58,
    x: { label: null, ...x.scale },
    y: { label: null, ...y.scale },
    marks: [
      gridY({ ...GRID, ...y.axis }),
      axisY({ ...AXIS, ...y.axis }),
      axisX({ ...AXIS, ...x.axis }),
      ...curves.map(({ points, colour }) =>
        lineY(points, { x: "0", y: "1", stroke: colour, strokeWidth: 1.7, strokeLinejoin: "round" }),
      ),
    ],
  });
}
