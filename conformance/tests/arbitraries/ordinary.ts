/**
 * Numbers of a few sizes with every bit of their mantissas drawn, none of them special: a sum in another order, a number in
 * another's place or another draw of random bits gives another result, where a NaN or an infinity would hide it.
 */
import * as fc from "fast-check";
import { elementCount, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { narrowed } from "../../arbitraries/patterns.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { wideType } from "../../arbitraries/wide.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";

/** Of exponents from 2^-12 to 2^3: f32 holds no sum of many numbers of bf16 of so many sizes exactly. */
const EXPONENTS = 0xf;
const LOWEST = 127 - 12;

/** f32 patterns of ordinary numbers. */
export function ordinaryBits(count: number, seed: number): Uint32Array<ArrayBuffer> {
  const next = splitmix32(seed);
  const bits = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    const word = next();
    bits[i] = ((word & 0x807fffff) | ((LOWEST + ((word >>> 23) & EXPONENTS)) << 23)) >>> 0;
  }
  return bits;
}

/** A tensor of ordinary numbers, of any wide type where none is given. */
export function ordinary(shape: Shape, dtype?: WideDType): fc.Arbitrary<PlainTensor<WideDType>> {
  return fc.tuple(dtype ? fc.constant(dtype) : wideType(), fc.nat()).map(([type, seed]) =>
    fromCodes(
      type,
      shape,
      ordinaryBits(elementCount(shape), seed).map((pattern) => narrowed(pattern, type)),
    ),
  );
}
