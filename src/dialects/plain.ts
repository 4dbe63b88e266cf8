/** Quantized tensors as plain numbers: one code for each element, and one scale for each block. */
import { blocksIn, isTensorWide, scaleSpan } from "../formats/block.js";
import { valueOfCode } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { unpackFour } from "../tensor/packed.js";
import { type QuantizedTensor, type QuantizeSpec, requireQuantized } from "../tensor/quantized.js";
import { asMatrix, storageBits } from "../tensor/shape.js";

/** The rowwise copy of a quantized matrix [rows, columns]. */
export interface PlainQuantized {
  readonly rows: number;
  readonly columns: number;
  /** A code for each element, in row-major order. */
  readonly codes: Uint8Array;
  /** A code or an f32 for each scale, in the order of `scaleAt`. */
  readonly scales: Uint8Array | Float32Array;
  /** The amax or the scale of the tensor, where a rule stores one. */
  readonly whole?: number;
  /** The amaxes of rows, which `rowScaled` stores instead. */
  readonly lineAmaxes?: Float32Array;
}

/** The rowwise copy of `t`, whose scales are in the logical layout. It waits for the device. */
export function plainOf(t: QuantizedTensor): PlainQuantized {
  const { data, scaleInv, amax } = requireQuantized("plainOf", "t", t).copy("rowwise");
  const [rows, columns] = asMatrix(t.shape);
  const bytes = data.dataSync() as Uint8Array;
  const codes = storageBits(data.dtype) === 4 ? unpackFour(bytes).subarray(0, rows * columns) : bytes.slice();
  const scales = scaleInv.dataSync().slice() as Uint8Array | Float32Array;
  const stored = amax?.dataSync().slice() as Float32Array | undefined;
  const beside = stored && (t.spec.rowScaled ? { lineAmaxes: stored } : { whole: Number(stored[0]) });
  return { rows, columns, codes, scales, ...beside };
}

/** The index of the scale of an element. */
export function scaleAt(
  spec: Pick<QuantizeSpec, "quantizer" | "tile">,
  columns: number,
): (row: number, column: number) => number {
  if (isTensorWide(spec.tile)) return () => 0;
  const [lines, length] = scaleSpan(spec);
  const across = blocksIn(columns, length);
  return (row, column) => Math.floor(row / lines) * across + Math.floor(column / length);
}

/** The value of a stored scale of that type. */
export function scaleValue(type: ScalarFormat | "f32", stored: number): number {
  return type === "f32" ? stored : Math.abs(valueOfCode(type, stored));
}

/** A code as text, such as `0x7e`. */
export function codeText(code: number): string {
  return `0x${code.toString(16).padStart(2, "0")}`;
}

/** A number as text: a power of two as one, others with as many digits as they have. */
export function numberText(value: number): string {
  if (Object.is(value, -0)) return "-0";
  const power = Math.log2(Math.abs(value));
  const isShort = Math.abs(power) < 10 || !Number.isInteger(power);
  return isShort ? String(value) : `${value < 0 ? "-" : ""}2^${power}`;
}
