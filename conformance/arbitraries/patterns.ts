/**
 * Arbitraries of f32 bit patterns near rounding thresholds. They are drawn as a code and a distance from it, so that they shrink
 * to simple patterns.
 */
import * as fc from "fast-check";
import { derive } from "../../src/formats/derive.js";
import type { ScalarLayout } from "../../src/formats/scalar.js";
import { integer } from "../../src/options.js";
import { wideDType } from "../../src/tensor/require.js";
import type { WideDType } from "../../src/tensor/shape.js";
import { bitsOf, magnitudeOf } from "../values/values.js";

const SIGN = 0x80000000;
const INFINITY = 0x7f800000;
const pattern = integer(0, 2 ** 32 - 1);

/** Zeros, infinities, the limits of f32, and NaNs of either sign with every payload, signalling NaNs included. */
export function specialPattern(): fc.Arbitrary<number> {
  const magnitude = fc.constantFrom(
    0,
    INFINITY,
    1,
    0x007fffff,
    0x00800000,
    0x00400000,
    0x00400001,
    0x7f7fffff,
    0x3f800000,
  );
  const nan = fc.oneof(
    fc.constantFrom(INFINITY + 1, 0x7fbfffff, 0x7fc00000, 0x7fffffff),
    fc.integer({ min: INFINITY + 1, max: 0x7fffffff }),
  );
  return signed(fc.oneof({ weight: 2, arbitrary: magnitude }, nan));
}

/** Any of the 2^32 patterns, uniformly. */
export function anyPattern(): fc.Arbitrary<number> {
  return fc.integer({ min: 0, max: 2 ** 32 - 1 });
}

/**
 * Patterns at the values of a format and at the thresholds between two values (halves, quarters, and the multiples of 2^-16 by
 * which stochastic rounding decides), or one or two f32 steps away. They include the subnormal limit, half the smallest value,
 * and the largest value with the overflow threshold above it.
 *
 * @throws `ArgumentError` for an invalid layout.
 */
export function aimedPattern(layout: ScalarLayout): fc.Arbitrary<number> {
  const { maxCode } = derive(layout);
  const binade = 2 ** layout.mantissaBits;
  const edges = [0, 1, binade - 1, binade, maxCode - 1, maxCode, maxCode + 1];
  const code = fc.oneof(
    fc.integer({ min: 0, max: maxCode + 1 }),
    fc.constantFrom(...edges.filter((edge) => edge >= 0)),
  );
  const between = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(0, 0.5, 0.25, 0.75) },
    fc.integer({ min: 0, max: 0xffff }).map((n) => n / 0x10000),
  );
  const magnitude = fc
    .tuple(code, between, fc.constantFrom(0, 1, -1, 2, -2))
    .map(([low, fraction, steps]) => {
      const [from, to] = [magnitudeOf(low, layout), magnitudeOf(low + 1, layout)];
      return Math.min(Math.max(bitsOf(from + (to - from) * fraction) + steps, 0), INFINITY);
    });
  return signed(magnitude);
}

/**
 * Inputs of an encoding to `layout`: mostly patterns aimed at it, mixed with specials and uniform patterns.
 *
 * @throws `ArgumentError` for an invalid layout.
 */
export function patternFor(layout: ScalarLayout): fc.Arbitrary<number> {
  return fc.oneof(
    { weight: 6, arbitrary: aimedPattern(layout) },
    { weight: 1, arbitrary: specialPattern() },
    { weight: 2, arbitrary: anyPattern() },
  );
}

/**
 * The code of a wide type that an f32 bit pattern truncates to, toward zero. NaN stays NaN. Throws `ArgumentError` for
 * a value that is not a 32-bit pattern.
 */
export function narrowed(bits: number, dtype: WideDType): number {
  pattern("narrowed", "bits", bits);
  wideDType("narrowed", "dtype", dtype);
  if (dtype === "f32") return bits;
  const isNan = (bits & 0x7fffffff) > INFINITY;
  if (dtype === "bf16") return (bits >>> 16) | (isNan ? 1 : 0);
  const sign = (bits >>> 16) & 0x8000;
  if (isNan) return sign | 0x7c01 | ((bits >>> 13) & 0x3ff);
  const magnitude = bits & 0x7fffffff;
  if (magnitude >= INFINITY) return sign | 0x7c00;
  const exponent = (magnitude >>> 23) - 127;
  if (exponent > 15) return sign | 0x7bff;
  if (exponent < -14)
    return sign | (exponent < -25 ? 0 : ((magnitude & 0x7fffff) | 0x800000) >>> (-1 - exponent));
  return sign | ((magnitude - 0x38000000) >>> 13);
}

function signed(magnitude: fc.Arbitrary<number>): fc.Arbitrary<number> {
  return fc.tuple(magnitude, fc.boolean()).map(([bits, negative]) => (negative ? (bits | SIGN) >>> 0 : bits));
}
