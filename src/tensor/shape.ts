/** Shapes and element types: what a tensor is before it has memory. */
import { ShapeError } from "../errors.js";
import { factsOf } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";

/** An element type: a scalar format, or a plain type. FP4 is stored two codes a byte, even element low. */
export type DType = ScalarFormat | "f32" | "i32" | "u8" | "u16" | "u32";

/** The types that quantizers read and dequantizers write. */
export const WIDE_DTYPES = ["f32", "bf16", "f16"] as const satisfies readonly DType[];
export type WideDType = (typeof WIDE_DTYPES)[number];

/** The sizes of the dimensions, outermost first; [] is a scalar. */
export type Shape = readonly number[];

/** Bits one element takes in memory. */
export function storageBits(dtype: DType): number {
  switch (dtype) {
    case "f32":
    case "i32":
    case "u32":
      return 32;
    case "u16":
      return 16;
    case "u8":
      return 8;
    default:
      return factsOf(dtype).storageBits;
  }
}

/** Whether quantizers read and dequantizers write that type. */
export function isWide(dtype: DType): dtype is WideDType {
  return dtype === "f32" || dtype === "bf16" || dtype === "f16";
}

/** The number of elements. */
export function elementCount(shape: Shape): number {
  let product = 1;
  for (let i = 0; i < shape.length; i++) product *= shape[i] as number;
  return product;
}

/** Bytes of a tensor. Throws `ShapeError` for sizes that are no sizes and for FP4 rows of odd length. */
export function byteLength(dtype: DType, shape: Shape): number {
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || size < 0) {
      throw new ShapeError(`shape [${shape}]: ${size} is not a size; sizes are integers from 0`);
    }
  }
  const bits = storageBits(dtype);
  if (bits < 8 && (shape.at(-1) ?? 1) % 2 !== 0) {
    throw new ShapeError(
      `${dtype} [${shape}]: the last dimension is odd and two codes share a byte; pad it to an even size`,
    );
  }
  return (elementCount(shape) * bits) / 8;
}

/** A shape seen as a matrix: the leading dimensions flattened to rows; [K] is [1,K], [] is [1,1]. */
export function asMatrix(shape: Shape): readonly [rows: number, columns: number] {
  const last = shape.length - 1;
  if (last < 0) return [1, 1];
  let rows = 1;
  for (let i = 0; i < last; i++) rows *= shape[i] as number;
  return [rows, shape[last] as number];
}

/** Whether two shapes are the same. */
export function sameShape(a: Shape, b: Shape): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** `value` rounded up to a multiple of `step`. */
export function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}
