/** Heat maps of the tensor under both dialects. */
import { useMemo } from "preact/hooks";
import { Segments } from "../parts/controls.js";
import { domainOf, HeatMap, type Place, Ramp } from "../parts/heat-map.js";
import { type Pair, type Quantization, scaleIndex } from "../reference/index.js";
import { show } from "../words.js";

/** A map: its values, on one colour scale for both dialects, and the labels of the scale's ends. */
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
        <Ramp ends={[kind.end(domain[0]), kind.end(domain[1])]} />
      </div>
      <div class="pair">
        {[a, b].map((quantization, i) => (
          <figure key={i === 0 ? "a" : "b"}>
            <figcaption class={i === 0 ? "name-a" : "name-b"}>{i === 0 ? "A" : "B"}</figcaption>
            <HeatMap
              size={[quantization.rows, quantization.columns]}
              values={values[i] as Float64Array}
              domain={domain}
              at={at}
              onSelect={onSelect}
              theme={theme}
              label={`${kind.text} of ${quantization.rows} by ${quantization.columns} elements under ${quantization.choice.dialect}`}
            />
          </figure>
        ))}
      </div>
      <p class="soft">Click on an element to look at it below; there the arrow keys move.</p>
    </section>
  );
}
