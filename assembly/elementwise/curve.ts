// Activation curves. Each function evaluates an activation or its derivative on one chunk of f32, in place. Every curve has its
// own loop, which calls exp2x2 directly, so that the compiler inlines it. This is three times as fast as one loop that selects
// the curve. All functions process `count` values and may overwrite the padding up to the next multiple of four.
import { Activation } from "../contract";
import { exp2x2, highHalf, join } from "../core/math";

const LOG2E = reinterpret<f64>(0x3ff71547652b82fe); // 1.4426950408889634

/** Constants of gelu. u = x (c0 + c1 x^2) is the argument of tanh, with c0 = 0.79788456 and c1 = 0.03567741. */
const CURVES = memory.data<u64>(
  [
    0xc0026aec2a847833, // -2.3022082635570995, -2 log2(e) c0 of the gelu
    0xbfba5a7d16a48d66, // -0.10294324686815556, -2 log2(e) c1
    0x3ff9884540000000, // 1.5957691669464111, 2 c0
    0x3fcb6676e0000000, // 0.21406446397304535, 6 c1
    0x3ff0000000000000, // 1
  ],
  16,
);

/** values[i] = act(values[i]); `alpha` is the factor of x in the logistic function of silu and qgelu. */
export function activate(kind: u32, alpha: f32, values: usize, count: usize): void {
  switch (kind) {
    case Activation.Gelu:
      gelu(values, count);
      break;
    case Activation.Relu:
      relu(values, count);
      break;
    case Activation.Srelu:
      srelu(values, count);
      break;
    case Activation.Sigmoid:
      sigmoid(values, count);
      break;
    default:
      swish(values, alpha, count);
      break;
  }
}

/** values[i] = act'(values[i]). */
export function differentiate(kind: u32, alpha: f32, values: usize, count: usize): void {
  switch (kind) {
    case Activation.Gelu:
      geluDerivative(values, count);
      break;
    case Activation.Relu:
      reluDerivative(values, count);
      break;
    case Activation.Srelu:
      sreluDerivative(values, count);
      break;
    case Activation.Sigmoid:
      logisticDerivative(values, count);
      break;
    default:
      swishDerivative(values, alpha, count);
      break;
  }
}

function gelu(values: usize, count: usize): void {
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    const a = f64x2.promote_low_f32x4(x);
    const b = f64x2.promote_low_f32x4(highHalf(x));
    const low = overOnePlus(a, exp2x2(geluExponent(a)));
    const high = overOnePlus(b, exp2x2(geluExponent(b)));
    v128.store(values, join(low, high));
  }
}

function swish(values: usize, alpha: f32, count: usize): void {
  const rate = f64x2.splat(<f64>alpha * -LOG2E);
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    const a = f64x2.promote_low_f32x4(x);
    const b = f64x2.promote_low_f32x4(highHalf(x));
    const low = overOnePlus(a, exp2x2(f64x2.mul(a, rate)));
    const high = overOnePlus(b, exp2x2(f64x2.mul(b, rate)));
    v128.store(values, join(low, high));
  }
}

function sigmoid(values: usize, count: usize): void {
  for (const end = values + (count << 2); values < end; values += 16) {
    v128.store(values, logistic(v128.load(values)));
  }
}

/** 1 / (1 + e^-x) in four f32 lanes. */
export function logistic(x: v128): v128 {
  const one = v128.load64_splat(CURVES, 32);
  const rate = f64x2.splat(-LOG2E);
  const a = f64x2.promote_low_f32x4(x);
  const b = f64x2.promote_low_f32x4(highHalf(x));
  return join(overOnePlus(one, exp2x2(f64x2.mul(a, rate))), overOnePlus(one, exp2x2(f64x2.mul(b, rate))));
}

function relu(values: usize, count: usize): void {
  const zero = f32x4.splat(0);
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    v128.store(values, v128.and(x, f32x4.gt(x, zero)));
  }
}

function srelu(values: usize, count: usize): void {
  const zero = f32x4.splat(0);
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    v128.store(values, v128.and(f32x4.mul(x, x), f32x4.gt(x, zero)));
  }
}

function geluDerivative(values: usize, count: usize): void {
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    const a = f64x2.promote_low_f32x4(x);
    const b = f64x2.promote_low_f32x4(highHalf(x));
    const low = productDerivative(geluProduct(a), exp2x2(geluExponent(a)));
    const high = productDerivative(geluProduct(b), exp2x2(geluExponent(b)));
    v128.store(values, join(low, high));
  }
}

function swishDerivative(values: usize, alpha: f32, count: usize): void {
  const factor = f64x2.splat(<f64>alpha);
  const rate = f64x2.splat(<f64>alpha * -LOG2E);
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    const a = f64x2.promote_low_f32x4(x);
    const b = f64x2.promote_low_f32x4(highHalf(x));
    const low = productDerivative(f64x2.mul(factor, a), exp2x2(f64x2.mul(a, rate)));
    const high = productDerivative(f64x2.mul(factor, b), exp2x2(f64x2.mul(b, rate)));
    v128.store(values, join(low, high));
  }
}

/**
 * The derivative does not depend on the sign of x. Using e^-|x| keeps its accuracy where the logistic function
 * approaches 1.
 */
function logisticDerivative(values: usize, count: usize): void {
  const rate = f64x2.splat(-LOG2E);
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    const a = f64x2.promote_low_f32x4(x);
    const b = f64x2.promote_low_f32x4(highHalf(x));
    const low = bell(exp2x2(f64x2.mul(f64x2.abs(a), rate)));
    const high = bell(exp2x2(f64x2.mul(f64x2.abs(b), rate)));
    v128.store(values, join(low, high));
  }
}

function reluDerivative(values: usize, count: usize): void {
  const zero = f32x4.splat(0);
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    v128.store(values, v128.and(f32x4.splat(1), f32x4.gt(x, zero)));
  }
}

function sreluDerivative(values: usize, count: usize): void {
  const zero = f32x4.splat(0);
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    v128.store(values, v128.and(f32x4.add(x, x), f32x4.gt(x, zero)));
  }
}

/** x / (1 + e). */
function overOnePlus(x: v128, e: v128): v128 {
  return f64x2.div(x, f64x2.add(v128.load64_splat(CURVES, 32), e));
}

/** e / (1 + e)^2. */
function bell(e: v128): v128 {
  const sum = f64x2.add(v128.load64_splat(CURVES, 32), e);
  return f64x2.div(e, f64x2.mul(sum, sum));
}

/**
 * The derivative of x s(v(x)), where s is the logistic function: s + x v' s (1 - s). `product` is x v', and e is e^-v.
 */
function productDerivative(product: v128, e: v128): v128 {
  const one = v128.load64_splat(CURVES, 32);
  const s = overOnePlus(one, e);
  return f64x2.add(s, f64x2.mul(product, f64x2.mul(s, f64x2.sub(one, s))));
}

/** The exponent of gelu as a power of two: -2 u log2(e), where u is the argument of tanh. */
function geluExponent(x: v128): v128 {
  const curve = f64x2.mul(v128.load64_splat(CURVES, 8), f64x2.mul(x, x));
  return f64x2.mul(x, f64x2.add(v128.load64_splat(CURVES, 0), curve));
}

/** x times the derivative of 2u, where u is the argument of tanh in gelu. */
function geluProduct(x: v128): v128 {
  const curve = f64x2.mul(v128.load64_splat(CURVES, 24), f64x2.mul(x, x));
  return f64x2.mul(x, f64x2.add(v128.load64_splat(CURVES, 16), curve));
}
