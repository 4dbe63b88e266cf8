/** One number in every format: bits, neighbours, and the reason for its code. */
import {
  explainEncode,
  OVERFLOWS,
  type OverflowName,
  ROUNDINGS,
  type RoundingExplanation,
  type RoundingName,
  SCALAR_FORMATS,
  type ScalarFormat,
} from "lockstep";
import { useMemo } from "preact/hooks";
import { bitsOf, parseNumber } from "../data/numbers.js";
import type { Params, SetParams } from "../params.js";
import { Bits } from "../parts/bits.js";
import { Choose, Example, Examples, TextField } from "../parts/controls.js";
import { NumberLine } from "../parts/number-line.js";
import { codeText, exactly, hex, percent, show } from "../words.js";
import { FormatDetail } from "./format-detail.js";

const FORMATS = Object.keys(SCALAR_FORMATS) as ScalarFormat[];

const EXAMPLES = ["0.3", "1/3", "2.5", "449", "2^-9", "-0", "0x7f7fffff", "nan"];

interface ViewProps {
  readonly params: Params;
  readonly set: SetParams;
}

/** The settings in the address, or defaults if they are invalid. */
function settingsOf({ rounding, overflow, format }: Params) {
  return {
    rounding: ROUNDINGS.find((name) => name === rounding) ?? ("tiesToEven" as RoundingName),
    overflow: OVERFLOWS.find((name) => name === overflow) ?? ("saturate" as OverflowName),
    format: FORMATS.find((name) => name === format) ?? ("e4m3" as ScalarFormat),
  };
}

export function ValueView({ params, set }: ViewProps) {
  const { rounding, overflow, format } = settingsOf(params);
  const parsed = parseNumber(params.x);
  const x = parsed ?? Number.NaN;
  const rows = useMemo(
    () => FORMATS.map((each) => explainEncode(x, { format: each, rounding, overflow })),
    [x, rounding, overflow],
  );
  const chosen = rows.find((row) => row.format === format) as RoundingExplanation;
  return (
    <>
      <section class="panel" aria-labelledby="value-title">
        <h2 id="value-title">A number</h2>
        <div class="controls">
          <TextField
            label="Number, or the bits of an f32 as 0x…"
            value={params.x}
            onChange={(text) => set({ x: text })}
            fault={
              parsed === undefined
                ? "Type a number such as 0.3, 1/3, 1.5*2^-9, inf or 0x3e99999a."
                : undefined
            }
            wide
          />
          <Choose
            label="Rounding"
            value={rounding}
            onChange={(name) => set({ rounding: name })}
            options={ROUNDINGS.map((value) => ({ value }))}
          />
          <Choose
            label="Overflow"
            value={overflow}
            onChange={(name) => set({ overflow: name })}
            options={OVERFLOWS.map((value) => ({ value }))}
          />
        </div>
        <Examples>
          {EXAMPLES.map((text) => (
            <Example key={text} text={text} onPick={() => set({ x: text })} />
          ))}
        </Examples>
        <Single x={x} />
      </section>
      <div class="beside">
        <section class="panel" aria-labelledby="formats-title">
          <h2 id="formats-title">In every format</h2>
          <table class="formats">
            <thead>
              <tr>
                <th scope="col">format</th>
                <th scope="col">bits</th>
                <th scope="col">code</th>
                <th scope="col">value</th>
                <th scope="col">between its neighbours</th>
                <th scope="col">error</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <FormatRow
                  key={row.format}
                  row={row}
                  isChosen={row === chosen}
                  onChoose={() => set({ format: row.format })}
                />
              ))}
            </tbody>
          </table>
        </section>
        <FormatDetail x={x} chosen={chosen} />
      </div>
    </>
  );
}

/** The number as f32, which every format rounds. */
function Single({ x }: { readonly x: number }) {
  const nearest = Math.fround(x);
  const bits = bitsOf(x);
  return (
    <div class="single">
      <Bits code={bits} format="f32" />
      <p>
        f32 <code>{hex(bits, 32)}</code> = <span class="digits">{exactly(nearest)}</span>
        {Number.isNaN(x) || nearest === x ? null : (
          <span class="soft"> (nearest f32 to what was typed; formats are rounded from f32)</span>
        )}
      </p>
    </div>
  );
}

function errorText({ format, value, result, decision }: RoundingExplanation): string {
  if (decision === "exact") return "exact";
  if (!Number.isFinite(value) || !Number.isFinite(result) || value === 0) return "";
  const input = SCALAR_FORMATS[format].signed ? value : Math.abs(value);
  return percent(Math.abs(result - input) / Math.abs(input), 2);
}

function FormatRow({
  row,
  isChosen,
  onChoose,
}: {
  readonly row: RoundingExplanation;
  readonly isChosen: boolean;
  readonly onChoose: () => void;
}) {
  const { format, code, result } = row;
  return (
    <tr class={isChosen ? "chosen" : ""}>
      <th scope="row">
        <button type="button" class="link" aria-pressed={isChosen} onClick={onChoose}>
          {format}
        </button>
      </th>
      <td class="cell-bits">
        <Bits code={code} format={format} />
      </td>
      <td class="cell-code">
        <code>{codeText(code, format)}</code>
      </td>
      <td class="cell-value number">{show(result)}</td>
      <td class="cell-line">
        <NumberLine rounding={row} />
      </td>
      <td class="cell-error number soft">{errorText(row)}</td>
    </tr>
  );
}
