/** Quantized tensors as plain numbers: a code for each element and a scale for each block. */
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
  /** A code or an f32 for each scale, indexed by `scaleAt`. */
  readonly scales: Uint8Array | Float32Array;
  /** The tensor amax or tensor scale, where a rule stores one. */
  readonly whole?: number;
  /** The row amaxes, which `rowScaled` stores instead of a tensor amax. */
  readonly lineAmaxes?: Float32Array;
}

/** Reads the rowwise copy of `t`; the scales must be in the logical layout. Waits for the device. */
export function plainOf(t: QuantizedTensor): PlainQuantized {
  const { data, scaleInv, amax } = requireQuantized("plainOf", "t", t).copy("rowwise");
  const [rows, columns] = asMatrix(t.shape);
  const bytes = data.dataSync() as Uint8Array;
  const codes = storageBits(data.dtype) === 4 ? unpackFour(bytes).subarray(0, rows * columns) : bytes.slice();
  const scales = scaleInv.dataSync().slice() as Uint8Array | Float32Array;
  const stored = amax?.dataSync().slice() as Float32Array | undefined;
  const tensorPart = stored && (t.spec.rowScaled ? { lineAmaxes: stored } : { whole: Number(stored[0]) });
  return { rows, columns, codes, scales, ...tensorPart };
}

/** Returns the function that gives the index of an element's scale. */
export function scaleAt(
  spec: Pick<QuantizeSpec, "quantizer" | "tile">,
  columns: number,
): (row: number, column: number) => number {
  if (isTensorWide(spec.tile)) return () => 0;
  const [lines, length] = scaleSpan(spec);
  const across = blocksIn(columns, length);
  return (row, column) => Math.floor(row / lines) * across + Math.floor(column / length);
}

/** Decodes a stored scale of a type. */
export function scaleValue(type: ScalarFormat | "f32", stored: number): number {
  return type === "f32" ? stored : Math.abs(valueOfCode(type, stored));
}

/** Prints a code, such as `0x7e`. */
export function codeText(code: number): string {
  return `0x${code.toString(16).padStart(2, "0")}`;
}

/** Prints a number: a power of two as such, others with all their digits. */
export function numberText(value: number): string {
  if (Object.is(value, -0)) return "-0";
  const power = Math.log2(Math.abs(value));
  const isShort = Math.abs(power) < 10 || !Number.isInteger(power);
  return isShort ? String(value) : `${value < 0 ? "-" : ""}2^${power}`;
}
