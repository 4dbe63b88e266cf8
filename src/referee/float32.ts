/**
 * Arithmetic in f32 for models of operators. JavaScript computes one sum, product, quotient or square root of f32 numbers in
 * f64; `Math.fround` of that result is the correctly rounded f32 result.
 */
import type { Backend } from "../backends/backend.js";
import type { SpecialFunctionName } from "../formats/special-functions.js";
import { tensor } from "../ops/create.js";
import { specialFunction } from "../ops/elementwise/special-function.js";
import { Scope } from "../tensor/scope.js";

/** The smallest normal f32. */
export const MIN_NORMAL = 2 ** -126;

const MAX_F32 = (2 - 2 ** -23) * 2 ** 127;
/** The least number that rounds to infinity: it lies midway between the largest f32 and 2^128. */
const OVERFLOW = (2 - 2 ** -24) * 2 ** 127;

/**
 * x * y + z, rounded once to f32, to nearest even. The product x * y must be exact in f64. The product of two f32 numbers is
 * always exact.
 */
export function fma(x: number, y: number, z: number): number {
  const product = x * y;
  const sum = product + z;
  const nearest = Math.fround(sum);
  // Rounding the f64 sum to f32 is correct unless the sum lies midway between two f32 numbers, `nearest` and `neighbour`.
  const distance = sum - nearest;
  const neighbour = nearest + 2 * distance;
  if (distance === 0 || (Math.fround(neighbour) !== neighbour && Math.abs(sum) !== OVERFLOW)) return nearest;
  const addend = sum - product;
  const error = product - (sum - addend) + (z - addend);
  if (Math.abs(sum) === OVERFLOW) return error * sum < 0 ? Math.sign(sum) * MAX_F32 : nearest;
  return error !== 0 && error > 0 === distance > 0 ? neighbour : nearest;
}

const float = new Float32Array(1);
const word = new Int32Array(float.buffer);

/** The bits of an f32 number as a signed integer. */
export function toBits(x: number): number {
  float[0] = x;
  return word[0] as number;
}

/** The f32 number with these bits. */
export function fromBits(code: number): number {
  word[0] = code;
  return float[0] as number;
}

/** A polynomial by Horner's method: p is the first coefficient, then p = fma(p, x, c) for each further coefficient c. */
export function polynomial(x: number, [first, ...coefficients]: readonly number[]): number {
  return coefficients.reduce((p, c) => fma(p, x, c), first as number);
}

/** log2 e and ln 2, rounded to f32. */
export const LOG2E = Math.fround(Math.LOG2E);
export const LN2 = Math.fround(Math.LN2);

/** Applies a math function of CUDA, as nvcc 13.0 compiles it without fast math, to each number. */
export function applyMath(backend: Backend, name: SpecialFunctionName, values: Float32Array): Float32Array {
  using _ = new Scope();
  const x = tensor(backend, values, [values.length]);
  return specialFunction(x, { function: name }).dataSync() as Float32Array;
}
