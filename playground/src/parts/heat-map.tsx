/** A heat map, in which a click chooses an element. */
import { heatMap } from "../../../examples/shared/charts/charts.mjs";
import { RAMP } from "../../../examples/shared/charts/colours.mjs";
import { Chart } from "./chart.js";

/** An element of a matrix. */
export interface Place {
  readonly row: number;
  readonly column: number;
}

/** The ends of the colour scale: all values but the largest thousandth. */
export function domainOf(maps: readonly Float64Array[], from: number | undefined): readonly [number, number] {
  const sorted = maps.flatMap((map) => Array.from(map).filter(Number.isFinite)).sort((x, y) => x - y);
  const low = from ?? sorted[0] ?? 0;
  const high = sorted[Math.floor(0.999 * (sorted.length - 1))] ?? 1;
  return [low, high > low ? high : low + 1];
}

/** The colour scale, with its ends. */
export function Ramp({ ends }: { readonly ends: readonly [string, string] }) {
  return (
    <p class="ramp">
      {ends[0]}{" "}
      <span aria-hidden="true" style={{ background: `linear-gradient(90deg, ${RAMP.join(", ")})` }} />{" "}
      {ends[1]}
    </p>
  );
}

/** Numbers of a matrix as colours. A click chooses an element. */
export function HeatMap({
  size: [rows, columns],
  values,
  domain,
  at,
  onSelect,
  theme,
  label,
}: {
  readonly size: readonly [rows: number, columns: number];
  readonly values: Float64Array;
  readonly domain: readonly [number, number];
  readonly at: Place;
  readonly onSelect: (to: Place) => void;
  readonly theme: string;
  readonly label: string;
}) {
  const pick = (event: MouseEvent) => {
    const { left, top, width, height } = (event.currentTarget as Element).getBoundingClientRect();
    const place = (from: number, size: number, count: number) =>
      Math.min(count - 1, Math.max(0, Math.floor((from / size) * count)));
    onSelect({
      row: place(event.clientY - top, height, rows),
      column: place(event.clientX - left, width, columns),
    });
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions lint/a11y/useKeyWithClickEvents: the grid of cells has the same by keys
    <div class="map" onClick={pick}>
      <Chart
        label={label}
        inputs={[values, domain, theme]}
        draw={(width) =>
          heatMap(values, { rows, columns, domain, width, height: heightOf(width, rows, columns), label })
        }
      />
      <span
        class="cursor"
        aria-hidden="true"
        style={{ left: `${(100 * (at.column + 0.5)) / columns}%`, top: `${(100 * (at.row + 0.5)) / rows}%` }}
      />
    </div>
  );
}

function heightOf(width: number, rows: number, columns: number): number {
  return Math.max(24, Math.min(width * 0.75, (width * rows) / columns));
}
