/** Heat maps of the tensor under both dialects. */
import { useMemo } from "preact/hooks";
import { heatMap } from "../../../examples/shared/charts/charts.mjs";
import { RAMP } from "../../../examples/shared/charts/colours.mjs";
import { Chart } from "../parts/chart.js";
import { Segments } from "../parts/controls.js";
import { type Pair, type Quantization, scaleIndex } from "../reference/index.js";
import { show } from "../words.js";

interface Place {
  readonly row: number;
  readonly column: number;
}

/** A map: its values, in one colour scale for both dialects, and how the ends of the scale are written. */
interface MapKind {
  readonly text: string;
  readonly values: (quantization: Quantization, other: Quantization) => Float64Array;
  readonly end: (value: number) => string;
  readonly from?: number;
}

function mapped(
  quantization: Quantization,
  of: (at: number, row: number, column: number) => number,
): Float64Array {
  const { rows, columns } = quantization;
  return Float64Array.from({ length: rows * columns }, (_, at) =>
    of(at, Math.floor(at / columns), at % columns),
  );
}

const KINDS: Readonly<Record<string, MapKind>> = {
  error: {
    text: "error",
    values: (q) => mapped(q, (at) => Math.abs((q.values[at] as number) - (q.inputs[at] as number))),
    end: (value) => show(value, 3),
    from: 0,
  },
  scale: {
    text: "scale",
    values: (q) =>
      mapped(q, (_, row, column) => Math.log2(q.scales.values[scaleIndex(q, row, column)] as number)),
    end: (value) => `2^${show(value, 3)}`,
  },
  difference: {
    text: "A against B",
    values: (q, other) =>
      mapped(q, (at) => Math.abs((q.values[at] as number) - (other.values[at] as number))),
    end: (value) => show(value, 3),
    from: 0,
  },
  input: {
    text: "input",
    values: (q) => mapped(q, (at) => Math.log2(Math.abs(q.inputs[at] as number))),
    end: (value) => `2^${show(value, 3)}`,
  },
};

/** The ends of the colour scale: all values but the largest thousandth. */
function domainOf(maps: readonly Float64Array[], from: number | undefined): readonly [number, number] {
  const sorted = maps.flatMap((map) => Array.from(map).filter(Number.isFinite)).sort((x, y) => x - y);
  const low = from ?? sorted[0] ?? 0;
  const high = sorted[Math.floor(0.999 * (sorted.length - 1))] ?? 1;
  return [low, high > low ? high : low + 1];
}

export function MapPanel({
  pair,
  at,
  onSelect,
  map,
  onMap,
  theme,
}: {
  readonly pair: Pair;
  readonly at: Place;
  readonly onSelect: (to: Place) => void;
  readonly map: string;
  readonly onMap: (map: string) => void;
  readonly theme: string;
}) {
  const name = Object.hasOwn(KINDS, map) ? map : "error";
  const kind = KINDS[name] as MapKind;
  const { a, b } = pair;
  const [values, domain] = useMemo(() => {
    const both = [kind.values(a, b), kind.values(b, a)] as const;
    return [both, domainOf(both, kind.from)] as const;
  }, [kind, a, b]);
  return (
    <section class="panel" aria-labelledby="map-title">
      <div class="head">
        <h2 id="map-title">Map</h2>
        <Segments
          label="What the map shows"
          value={name}
          onChange={onMap}
          options={Object.entries(KINDS).map(([key, { text }]) => [key, text] as const)}
        />
        <p class="ramp">
          {kind.end(domain[0])}{" "}
          <span aria-hidden="true" style={`background: linear-gradient(90deg, ${RAMP.join(", ")})`} />{" "}
          {kind.end(domain[1])}
        </p>
      </div>
      <div class="pair">
        {[a, b].map((quantization, i) => (
          <figure key={i === 0 ? "a" : "b"}>
            <figcaption class={i === 0 ? "name-a" : "name-b"}>{i === 0 ? "A" : "B"}</figcaption>
            <HeatMap
              quantization={quantization}
              values={values[i] as Float64Array}
              domain={domain}
              at={at}
              onSelect={onSelect}
              theme={theme}
              what={kind.text}
            />
          </figure>
        ))}
      </div>
      <p class="soft">Click on an element to look at it below; there the arrow keys move.</p>
    </section>
  );
}

function HeatMap({
  quantization,
  values,
  domain,
  at,
  onSelect,
  theme,
  what,
}: {
  readonly quantization: Quantization;
  readonly values: Float64Array;
  readonly domain: readonly [number, number];
  readonly at: Place;
  readonly onSelect: (to: Place) => void;
  readonly theme: string;
  readonly what: string;
}) {
  const { rows, columns, choice } = quantization;
  const label = `${what} of ${rows} by ${columns} elements under ${choice.dialect}`;
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
        style={`left: ${(100 * (at.column + 0.5)) / columns}%; top: ${(100 * (at.row + 0.5)) / rows}%`}
      />
    </div>
  );
}

function heightOf(width: number, rows: number, columns: number): number {
  return Math.max(24, Math.min(width * 0.75, (width * rows) / columns));
}
