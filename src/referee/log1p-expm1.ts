/** log1pf and expm1f of CUDA, as nvcc 13.0 compiles them without fast math, and models of operators that use them. */
import type { Backend } from "../backends/backend.js";
import { roundToInteger } from "./arithmetic.js";
import type { Model } from "./call.js";
import { applyMath, fma, fromBits, LN2, LOG2E, polynomial, toBits } from "./float32.js";
import { computeValue, mapElements } from "./pointwise.js";
import { zeroValue } from "./value.js";

const { abs, fround, max, min } = Math;

/** x + 1 for x of at least -1, rounded to f32 toward zero. */
function onePlusTowardZero(x: number): number {
  const sum = x + 1;
  const part = sum - x;
  const error = x - (sum - part) + (1 - part);
  const nearest = fround(sum);
  return nearest > sum || (nearest === sum && error < 0) ? fromBits(toBits(nearest) - 1) : nearest;
}

const LOG1P_COEFFICIENTS = [
  0xbd39bf78, 0x3dd80012, 0xbe0778e0, 0x3e146475, 0xbe2a68dd, 0x3e4caf9e, 0xbe800042, 0x3eaaaae6, 0xbf000000,
].map(fromBits);

/**
 * log1pf. e is the integer for which (1 + x) / 2^e is in [0.75, 1.5), where 1 + x is rounded toward zero. With
 * r = x / 2^e + (2^-e - 1), the result is fma(e, ln 2, fma(p * r, r, r)), where p is a polynomial in r of degree 8.
 */
export function log1p(x: number): number {
  if (x === -1) return Number.NEGATIVE_INFINITY;
  if (!(x > -1)) return Number.NaN;
  if (x === Number.POSITIVE_INFINITY) return x;
  if (x === 0) return x;
  const shift = (toBits(onePlusTowardZero(x)) - 0x3f400000) & -0x800000;
  const scaledInput = fromBits(toBits(x) - shift);
  const r = fround(scaledInput + fma(0.25, fromBits(0x40800000 - shift), -1));
  const fraction = fma(fround(polynomial(r, LOG1P_COEFFICIENTS) * r), r, r);
  return fma(fround(shift * 2 ** -23), LN2, fraction);
}

const LN2_HIGH = fromBits(0x3f317200);
const LN2_LOW = fromBits(0x35bfbe8e);
const EXPM1_COEFFICIENTS = [0x3ab5ebe6, 0x3c095663, 0x3d2aabe3, 0x3e2aa9f6, 0x3efffffe].map(fromBits);
const SMALL_BOUND = fromBits(0x3ed1eb85);

/**
 * expm1f. n is the integer nearest to x / ln 2, or 0 for |x| below `SMALL_BOUND`, and f is x - n ln 2, computed in two steps. The
 * result is fma(fma(p * f, f, f), 2^n, 2^n - 1), where p is a polynomial in f of degree 4. If n is 128, it is computed with 2^127
 * and doubled.
 */
export function expm1(x: number): number {
  if (x === 0) return x;
  const n = abs(x) < SMALL_BOUND ? 0 : roundToInteger(fround(x * LOG2E));
  const f = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, x));
  const exponent = n === 128 ? 127 : n;
  if (exponent > 128) return Number.POSITIVE_INFINITY;
  if (exponent < -25) return -1;
  const power = fround(2 ** exponent);
  const result = fma(fma(fround(polynomial(f, EXPM1_COEFFICIENTS) * f), f, f), power, fround(power - 1));
  return n === 128 ? fround(result + result) : result;
}

/** log1pf(expf(x)). */
function log1pExp(backend: Backend, x: Float32Array): Float32Array {
  return mapElements(log1p, applyMath(backend, "expf", x));
}

/** log1pf(expf(x * beta)) / beta, or x where x * beta is above the threshold (ActivationSoftplusKernel.cu). */
export const softplus: Model = (call) => {
  const [beta, threshold] = [fround(call.number("beta", 1)), fround(call.number("threshold", 20))];
  return computeValue(call, [call.tensor("self")], (x) => {
    const products = mapElements((v) => v * beta, x);
    return mapElements(
      (v, s, l) => (s > threshold ? v : l / beta),
      x,
      products,
      log1pExp(call.backend, products),
    );
  });
};

/** x * tanhf(log1pf(expf(x))) (ActivationMishKernel.cu). */
export const mish: Model = (call) =>
  computeValue(call, [call.tensor("self")], (x) =>
    mapElements((v, t) => v * t, x, applyMath(call.backend, "tanhf", log1pExp(call.backend, x))),
  );

/**
 * min(0, x) - log1pf(expf(-|x|)). The second result is a buffer, which has no elements on CUDA (ActivationLogSigmoidKernel.cu).
 */
export const logSigmoid: Model = (call) => {
  const x = call.tensor("self");
  const results = computeValue(call, [x], (values) =>
    mapElements(
      (v, l) => min(0, v) - l,
      values,
      log1pExp(
        call.backend,
        mapElements((v) => -abs(v), values),
      ),
    ),
  );
  return [...results, zeroValue(x.dtype, [0])];
};

/** x * scale if x is positive, else expm1f(x * input_scale) * (alpha * scale) (ActivationEluKernel.cu). */
export const elu: Model = (call) => {
  const [alpha, scale, inputScale] = ["alpha", "scale", "input_scale"].map((name) =>
    fround(call.number(name, 1)),
  ) as [number, number, number];
  const factor = fround(alpha * scale);
  return computeValue(call, [call.tensor("self")], (x) =>
    mapElements((v) => (v > 0 ? v * scale : fround(expm1(fround(v * inputScale))) * factor), x),
  );
};

/** max(x, y) + log1pf(expf(-|x - y|)), or x if both operands are the same infinity (LogAddExpKernel.cu). */
export const logAddExp: Model = (call) =>
  computeValue(call, [call.tensor("self"), call.tensor("other")], (x, y) => {
    const operand = y as Float32Array;
    const logarithms = log1pExp(
      call.backend,
      mapElements((a, b) => -abs(fround(a - b)), x, operand),
    );
    return mapElements(
      (a, b, l) => (a === b && abs(a) === Number.POSITIVE_INFINITY ? a : max(a, b) + l),
      x,
      operand,
      logarithms,
    );
  });
