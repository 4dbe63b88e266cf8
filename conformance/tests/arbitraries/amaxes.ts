/** Matrices whose blocks have given amaxes: all amaxes of a type, or the amaxes at which scale rules change their scales. */
import { blockFormat } from "../../../src/formats/block.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { bitsOf } from "../../values/values.js";

const INFINITY = 0x7f800000;
const SIXTEEN = Array.from({ length: 1 << 16 }, (_, code) => code);

/** f32 amaxes around powers of two times numbers of few bits, where exponents, roundings and logarithms change. */
const STEPS: readonly number[] = [1, 1.125, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.96875].flatMap((mantissa) =>
  Array.from({ length: 277 }, (_, i) => bitsOf(Math.fround(mantissa * 2 ** (i - 149)))).flatMap((bits) =>
    Array.from({ length: 65 }, (_, i) => Math.min(Math.max(bits + i - 32, 0), INFINITY)),
  ),
);

/** The bits of the amaxes to test: all 2^16 codes of bf16 or f16, or `STEPS` for f32. */
export function amaxesOf(dtype: WideDType): readonly number[] {
  return dtype === "f32" ? STEPS : SIXTEEN;
}

/**
 * Amaxes of tensors: the amax whose scale is 1, others on both sides of it, and amaxes whose scales underflow or overflow. NaN
 * and negative numbers are left out: they are not amaxes, and the result is undefined (numerics.md §5.2).
 */
const TENSORS = [2688, 3, 0.1, 1e5, 2 ** -149, 2 ** -126, 1e-30, 3e38, 0, Infinity];

/** The amax of the tensor with which blocks are quantized; undefined where only blocks determine scales. */
export function tensorAmaxesOf({ quantizer, rowScaled }: QuantizeSpec): readonly (number | undefined)[] {
  return blockFormat(quantizer).tensorAmax && !rowScaled ? TENSORS : [undefined];
}

/**
 * A block for each amax, at varying positions in the block. The other elements are as large, half as large or smaller, with any
 * mantissa and sign. Blocks are rows of `blockLength` elements, or columns if `isColumnwise`. The number of blocks is a multiple
 * of 32.
 */
export function matrixOfAmaxes(
  amaxes: readonly number[],
  dtype: WideDType,
  blockLength: number,
  { isColumnwise, seed }: { readonly isColumnwise: boolean; readonly seed: number },
): PlainTensor<WideDType> {
  const [mantissa, width] = { f32: [23, 32], bf16: [7, 16], f16: [10, 16] }[dtype] as [number, number];
  const sign = 2 ** (width - 1);
  const count = Math.ceil(amaxes.length / 32) * 32;
  const randomWords = words(seed, count * blockLength);
  const codes = words(0, count * blockLength);
  for (let line = 0; line < count; line++) {
    const amax = amaxes[line % amaxes.length] as number;
    const magnitude = amax % sign;
    for (let i = 0; i < blockLength; i++) {
      const bits = randomWords[line * blockLength + i] as number;
      const decrease = (bits >>> 8) % 2 ** (mantissa + 1 + (bits % 3));
      const code = i === line % blockLength ? amax : Math.max(magnitude - decrease, 0) + (bits % 2) * sign;
      codes[isColumnwise ? i * count + line : line * blockLength + i] = code;
    }
  }
  return fromCodes(dtype, isColumnwise ? [blockLength, count] : [count, blockLength], codes);
}
