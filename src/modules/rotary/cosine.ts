/** Cosines and sines, rounded to the nearest f32. */
import { cosSin, fixed, toOdd } from "./fixed-point.js";

/** π / 2 as the sum of three numbers, the first two of which have 33 bits; and 2 / π. */
const FIRST = 1.5707963267341256;
const SECOND = 6.077100506303966e-11;
const THIRD = 2.0222662487959506e-21;
const INVERSE = 0.6366197723675814;
/** A bound of quadrants. Products of a smaller quadrant with FIRST or SECOND are exact. */
const MAX_QUADRANT = 2 ** 20;
/** A bound of the relative error of the results of `inQuadrant`, which is a few units of 2^-53. */
const ERROR = 2 ** -46;

/** The coefficients of the Taylor series in the square of the angle, highest first. */
const COS = coefficients(0);
const SIN = coefficients(1);

function coefficients(first: 0 | 1): readonly number[] {
  const list: number[] = [];
  let factor = 1;
  for (let n = first; n <= 22; n += 2) {
    list.unshift(factor);
    factor /= -(n + 1) * (n + 2);
  }
  return list;
}

/**
 * Returns the f32 numbers nearest to the cosine and the sine of an f32 angle. They are computed in f64. If the error of f64
 * leaves two candidates, they are computed again in fixed-point arithmetic. The result is the same on every machine.
 */
export function cosineAndSine(angle: number): readonly [cos: number, sin: number] {
  const quadrant = Math.round(angle * INVERSE);
  if (Math.abs(quadrant) < MAX_QUADRANT) {
    const [cos, sin] = inQuadrant(angle, quadrant);
    if (hasUniqueRounding(cos) && hasUniqueRounding(sin)) return [Math.fround(cos), Math.fround(sin)];
  }
  if (!Number.isFinite(angle)) return [Number.NaN, Number.NaN];
  const [cos, sin] = cosSin(fixed(angle));
  return [Math.fround(toOdd(cos)), Math.fround(toOdd(sin))];
}

/** Whether all numbers within the error bound of x round to the same f32. */
function hasUniqueRounding(x: number): boolean {
  return Math.fround(x * (1 - ERROR)) === Math.fround(x * (1 + ERROR));
}

function inQuadrant(angle: number, quadrant: number): readonly [cos: number, sin: number] {
  const upper = angle - quadrant * FIRST;
  const second = quadrant * SECOND;
  const reduced = upper - second;
  // the exact rounding error of the difference, and the third part of π / 2
  const subtrahend = reduced - upper;
  const remainder = upper - (reduced - subtrahend) - (second + subtrahend) - quadrant * THIRD;
  const r = reduced + remainder;
  const lowPart = reduced - r + remainder;
  const square = r * r;
  const cos = polynomial(COS, square) - r * lowPart;
  const sin = r * polynomial(SIN, square) + lowPart;
  switch (quadrant & 3) {
    case 0:
      return [cos, sin];
    case 1:
      return [-sin, cos];
    case 2:
      return [-cos, -sin];
    default:
      return [sin, -cos];
  }
}

function polynomial(list: readonly number[], x: number): number {
  let sum = 0;
  for (const coefficient of list) sum = sum * x + coefficient;
  return sum;
}
