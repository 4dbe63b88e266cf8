/** Compares the values of a weight with its codes and scales. */
import { WIDE } from "../../../formats/contract.gen.js";
import { pairTable, singleTable } from "../../kernels/code-tables.js";
import type { Kernels } from "../../kernels/kernels.js";
import type { Rows } from "../../values/rows.js";
import type { Changes } from "../changes/changes.js";
import type { OutputTensors } from "../targets/tensors.js";

/** The element type f64 in `compareRows`, in addition to the types of `WIDE`. */
const F64 = 3;
/** The number of fields and of bytes of the record in assembly/checkpoints/tally.ts. */
const TALLY = { fields: 8, bytes: 64 } as const;
const BUFFER_BYTES = 4 * 4096 + 144;

/** The scale of each block, row by row, as a multiplier: f32 values, or bytes that index `table`. */
export type BlockScales =
  | { readonly values: Float32Array; readonly table?: never }
  | { readonly values: Uint8Array; readonly table: Float32Array };

/**
 * Compares rows of a weight with the values of the codes and scales that replace them, and adds the differences to `changes`. A
 * byte of `codes` holds one code, or two 4-bit codes.
 */
export function compareRows(
  kernels: Kernels,
  { blocks, type }: Pick<OutputTensors, "blocks" | "type">,
  { rows, columns, type: valueType, values }: Rows,
  codes: Uint8Array,
  scales: BlockScales,
  changes: Changes,
): void {
  if (rows * columns === 0) return;
  const { kind, size, grid } = blocks;
  const pairs = codes.length < rows * columns;
  const isWhole = kind === "whole";
  const tally = kernels.buffer("tally", TALLY.bytes).address;
  kernels.doubles(tally, TALLY.fields).set([0, changes.max, changes.relative, 0, 0, 0, 0, 0]);
  kernels.call("compareRows", {
    values: kernels.put("values", values),
    type: valueType === "f64" ? F64 : WIDE[valueType],
    codes: kernels.put("codes", codes),
    pairs: Number(pairs),
    table: pairs ? kernels.put(`pairs of ${type}`, pairTable(type)) : kernels.put(type, singleTable(type)),
    scales: kernels.put("scales", scales.values),
    scaleTable: scales.table ? kernels.put("scale table", scales.table) : 0,
    rows,
    columns,
    height: isWhole ? rows : size[0],
    width: isWhole ? columns : size[1],
    pitch: isWhole ? 1 : grid[1],
    buffer: kernels.buffer("buffer", BUFFER_BYTES).address,
    tally,
  });
  const [changed = 0, max = 0, relative = 0, notFinite = 0, ...squares] = kernels.doubles(
    tally,
    TALLY.fields,
  );
  const [noise = 0, moreNoise = 0, signal = 0, moreSignal = 0] = squares;
  changes.elements += rows * columns;
  changes.changed += changed;
  changes.notFinite += notFinite;
  changes.noise += noise + moreNoise;
  changes.signal += signal + moreSignal;
  changes.max = max;
  changes.relative = relative;
}
