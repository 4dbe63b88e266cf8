/**
 * Ordinary numbers: a few exponents, random mantissas, no special values. With them every error changes the result
 * (another order of summation, a wrong index, other random bits), where a NaN or an infinity would hide it.
 */
import * as fc from "fast-check";
import { elementCount, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { narrowed } from "../../arbitraries/patterns.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { wideType } from "../../arbitraries/wide.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";

/** The mask of exponents 2^-12 to 2^3. Sums of many such bf16 numbers are not exact in f32. */
const EXPONENTS = 0xf;
const LOWEST = 127 - 12;

/** Bit patterns of ordinary f32 numbers. */
export function ordinaryBits(count: number, seed: number): Uint32Array<ArrayBuffer> {
  const next = splitmix32(seed);
  const bits = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    const word = next();
    bits[i] = ((word & 0x807fffff) | ((LOWEST + ((word >>> 23) & EXPONENTS)) << 23)) >>> 0;
  }
  return bits;
}

/** A tensor of ordinary numbers, of the given type or of any wide type. */
export function ordinary(shape: Shape, dtype?: WideDType): fc.Arbitrary<PlainTensor<WideDType>> {
  return fc.tuple(dtype ? fc.constant(dtype) : wideType(), fc.nat()).map(([type, seed]) =>
    fromCodes(
      type,
      shape,
      ordinaryBits(elementCount(shape), seed).map((pattern) => narrowed(pattern, type)),
    ),
  );
}
