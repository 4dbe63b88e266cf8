/** Shapes and element types: what a tensor is before it has memory. */
import { ShapeError } from "../errors.js";
import { factsOf } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";

/** An element type: a scalar format, or a plain type. FP4 is stored two codes a byte, even element low. */
export type DType = ScalarFormat | "f32" | "i32" | "u8" | "u16" | "u32";

/** The types that quantizers read and dequantizers write. */
export type WideDType = "f32" | "bf16" | "f16";

/** The sizes of the dimensions, outermost first; [] is a scalar. */
export type Shape = readonly number[];

/** Bits one element takes in memory. */
export function storageBits(dtype: DType): number {
  return isPlain(dtype) ? PLAIN_BITS[dtype] : factsOf(dtype).storageBits;
}

const PLAIN_BITS = { f32: 32, i32: 32, u32: 32, u16: 16, u8: 8 } as const;

function isPlain(dtype: DType): dtype is keyof typeof PLAIN_BITS {
  return Object.hasOwn(PLAIN_BITS, dtype);
}

/** Whether quantizers read and dequantizers write that type. */
export function isWide(dtype: DType): dtype is WideDType {
  return dtype === "f32" || dtype === "bf16" || dtype === "f16";
}

/** The number of elements. */
export function elementCount(shape: Shape): number {
  return shape.reduce((product, size) => product * size, 1);
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
  return [elementCount(shape.slice(0, -1)), shape.at(-1) ?? 1];
}

/** Whether two shapes are the same. */
export function sameShape(a: Shape, b: Shape): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}

/** `value` rounded up to a multiple of `step`. */
export function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}
