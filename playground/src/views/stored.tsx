/** A quantized tensor as it is stored in a file: a map of its scales, codes or values, and one element. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Stored } from "../data/stored.js";
import { pairOf } from "../data/use-matrix.js";
import type { Params, SetParams } from "../params.js";
import { Bits } from "../parts/bits.js";
import { Segments } from "../parts/controls.js";
import { domainOf, HeatMap, Ramp } from "../parts/heat-map.js";
import { scaleIndex } from "../reference/index.js";
import { codeText, show } from "../words.js";
import { CellGrid } from "./cells.js";

/** A map: the number of each element, and the labels of the colour scale's ends. */
interface Kind {
  readonly text: string;
  readonly of: (stored: Stored, at: number, row: number, column: number) => number;
  readonly end: (value: number) => string;
}

const power = (value: number) => `2^${show(value, 3)}`;

const KINDS: Readonly<Record<string, Kind>> = {
  scale: {
    text: "scales",
    of: (stored, _, row, column) =>
      Math.log2(Math.abs(stored.scales.values[scaleIndex(stored, row, column)] as number)),
    end: power,
  },
  code: { text: "codes", of: ({ elements }, at) => elements[at] as number, end: (value) => show(value, 3) },
  value: {
    text: "values",
    of: ({ values }, at) => Math.log2(Math.abs(values[at] as number)),
    end: power,
  },
};

export function StoredPanel({
  stored,
  params,
  set,
}: {
  readonly stored: Stored;
  readonly params: Params;
  readonly set: SetParams;
}) {
  const { rows, columns, description, notes, from } = stored;
  const name = Object.hasOwn(KINDS, params.stored) ? params.stored : "scale";
  const kind = KINDS[name] as Kind;
  const [values, domain] = useMemo(() => {
    const map = Float64Array.from({ length: rows * columns }, (_, at) =>
      kind.of(stored, at, Math.floor(at / columns), at % columns),
    );
    return [map, domainOf([map], undefined)] as const;
  }, [stored, kind, rows, columns]);
  const [row, column] = pairOf(params.at);
  const at = { row: Math.min(row, rows - 1), column: Math.min(column, columns - 1) };
  const select = (to: { readonly row: number; readonly column: number }) =>
    set({ at: `${to.row},${to.column}` });
  return (
    <section class="panel" aria-labelledby="stored-title">
      <div class="head">
        <h2 id="stored-title">As stored</h2>
        <Segments
          label="What the map of the file shows"
          value={name}
          onChange={(to) => set({ stored: to })}
          options={Object.entries(KINDS).map(([key, { text }]) => [key, text] as const)}
        />
        <Ramp ends={[kind.end(domain[0]), kind.end(domain[1])]} />
      </div>
      <p class="soft">
        {description}; shown from row {from[0]}, column {from[1]}. Below, the two dialects quantize its values
        again.
      </p>
      {notes.map((note) => (
        <p class="soft" key={note}>
          {note}
        </p>
      ))}
      <HeatMap
        size={[rows, columns]}
        values={values}
        domain={domain}
        at={at}
        onSelect={select}
        theme={params.theme}
        label={`${kind.text} of ${rows} by ${columns} elements as stored`}
      />
      <div class="pair">
        <CellGrid sides={[stored]} caption="Codes as stored; arrow keys move" at={at} onSelect={select} />
        <Element stored={stored} at={at} />
      </div>
    </section>
  );
}

function Fact({ title, children }: { readonly title: string; readonly children: ComponentChildren }) {
  return (
    <>
      <dt>{title}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Element({
  stored,
  at: { row, column },
}: {
  readonly stored: Stored;
  readonly at: { readonly row: number; readonly column: number };
}) {
  const { format, hasFields, codes, elements, values, scales, block, rows, columns, from } = stored;
  const index = row * columns + column;
  const scale = scaleIndex(stored, row, column);
  const [top, left] = [row - (row % block.rows), column - (column % block.columns)];
  const last = [Math.min(top + block.rows, rows) - 1, Math.min(left + block.columns, columns) - 1] as const;
  const code = codes[index] as number;
  return (
    <div aria-live="polite">
      <h3>
        Row {from[0] + row}, column {from[1] + column}: {show(values[index] as number, 9)}
      </h3>
      <dl>
        <Fact title="code">
          {hasFields ? <Bits code={code} format={format} /> : null} <code>{codeText(code, format)}</code> ={" "}
          {show(elements[index] as number)}
        </Fact>
        <Fact title="scale">
          <Bits code={scales.codes[scale] as number} format={scales.format} />{" "}
          <code>{codeText(scales.codes[scale] as number, scales.format)}</code> ={" "}
          {show(scales.values[scale] as number, 9)}
        </Fact>
        <Fact title="block of the scale">
          rows {from[0] + top} to {from[0] + last[0]}, columns {from[1] + left} to {from[1] + last[1]}
        </Fact>
        {scales.whole === undefined ? null : (
          <Fact title="stored for the whole tensor">{show(scales.whole, 9)}</Fact>
        )}
        <Fact title="value">{show(values[index] as number, 9)}</Fact>
      </dl>
    </div>
  );
}
