/** Compares the values of a weight with those of its codes and scales. */
import { WIDE } from "../../../formats/contract.gen.js";
import type { WideDType } from "../../../tensor/shape.js";
import type { Kernels } from "../kernels/kernels.js";
import { pairTable, singleTable } from "../kernels/tables.js";
import type { Parts } from "./parts.js";
import type { Changes } from "./wide.js";

/** What `compareRows` takes for values that are f64, beside the types of `WIDE`. */
const F64 = 3;
const TALLY = { fields: 4, bytes: 32 } as const;
const BUFFER_BYTES = 4 * 2048;

/** Values as they lie in memory, row by row. */
export interface Rows {
  readonly rows: number;
  readonly columns: number;
  readonly type: WideDType | "f64";
  readonly values: ArrayBufferView;
}

/**
 * Adds what rows of a weight became to `changes`. `codes` has one byte per element, or two elements of four bits; `scales` is the
 * scale of each block, row by row, by which codes are multiplied. Returns false if an element is NaN or infinite.
 */
export function compareRows(
  kernels: Kernels,
  { blocks, type }: Pick<Parts, "blocks" | "type">,
  { rows, columns, type: of, values }: Rows,
  codes: Uint8Array,
  scales: Float32Array,
  changes: Changes,
): boolean {
  const { kind, size, grid } = blocks;
  const pairs = codes.length < rows * columns;
  const whole = kind === "whole";
  const tally = kernels.place("tally", TALLY.bytes).address;
  const [changed, max, relative, finite] = [0, 1, 2, 3] as const;
  const fields = kernels.doubles(tally, TALLY.fields);
  fields.set([0, changes.max, changes.relative, 0]);
  kernels.call("compareRows", {
    values: kernels.put("values", values),
    type: of === "f64" ? F64 : WIDE[of],
    codes: kernels.put("codes", codes),
    pairs: Number(pairs),
    table: pairs ? kernels.put(`pairs of ${type}`, pairTable(type)) : kernels.put(type, singleTable(type)),
    scales: kernels.put("scales", scales),
    rows,
    columns,
    height: whole ? Math.max(1, rows) : size[0],
    width: whole ? Math.max(1, columns) : size[1],
    pitch: whole ? 1 : grid[1],
    buffer: kernels.place("buffer", BUFFER_BYTES).address,
    tally,
  });
  const after = kernels.doubles(tally, TALLY.fields);
  changes.elements += rows * columns;
  changes.changed += after[changed] as number;
  changes.max = after[max] as number;
  changes.relative = after[relative] as number;
  return after[finite] === 0;
}
