/**
 * The charts of the demo, the trainer and the playground, drawn by Observable Plot: histograms, heat maps and curves. Colours are
 * custom properties or classes of the page. `document` is the host's; without a browser, one of linkedom.
 */
import { areaY, axisX, axisY, gridX, gridY, lineY, plot, raster, ruleY } from "@observablehq/plot";
import { RAMP } from "./colours.mjs";

/**
 * Histograms on one logarithmic axis of magnitudes. A series is { bins, kind }: `area` is filled, `outline` is a line above it; its
 * class in the page is the kind.
 */
export function histogramChart(
  series,
  { edges, ticks, width, height, label, document = globalThis.document },
) {
  const tallest = Math.max(1, ...series.flatMap(({ bins }) => bins));
  const steps = ({ bins }) => {
    const points = edges.map((edge, i) => ({ x: edge, y: bins[i] ?? bins.at(-1) ?? 0 }));
    return [{ x: edges[0], y: 0 }, ...points, { x: edges.at(-1), y: 0 }];
  };
  const marks = series.map((each) => {
    const options = { x: "x", y: "y", curve: "step-after", className: each.kind };
    return each.kind === "area"
      ? areaY(steps(each), { ...options, fill: "var(--series-a)", fillOpacity: 0.6 })
      : lineY(steps(each), { ...options, stroke: "var(--series-b)", strokeWidth: 1.6 });
  });
  return plot({
    ...frame({ width, height, document, label }),
    x: { type: "log", base: 2, domain: [edges[0], edges.at(-1)], label: null },
    y: { axis: null, domain: [0, tallest] },
    marks: [
      gridX(
        ticks.map(({ at }) => at),
        GRID,
      ),
      axisX(
        ticks.map(({ at }) => at),
        { ...AXIS, tickFormat: (at) => ticks.find((tick) => tick.at === at)?.text ?? "" },
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

/** A heat map of `values`, row by row, as an image with one pixel for each. NaN is left blank. */
export function heatMap(
  values,
  { rows, columns, domain, type = "linear", width, height, label, document = globalThis.document },
) {
  return plot({
    ...frame({ width, height, document, label }),
    margin: 0,
    marginTop: 0,
    marginBottom: 0,
    x: { axis: null, domain: [0, columns] },
    y: { axis: null, domain: [rows, 0] },
    color: { type, domain, range: RAMP, interpolate: "rgb", clamp: true },
    marks: [
      raster(values, {
        width: columns,
        height: rows,
        imageRendering: "pixelated",
        y1: 0,
        y2: rows,
        x1: 0,
        x2: columns,
      }),
    ],
  });
}

/** Curves over a common axis. A curve is { points: [x, y][], colour }; `x` and `y` are { scale, axis }: options of Plot. */
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
