// Activations and their derivatives. A value and a slope are evaluated in f64 and rounded once to f32; the
// product of the chain rule is f32.
//
//   gelu     x / (1 + e^-2u), u = x (0.79788456 + 0.03567741 x^2): the tanh form, as 1 + tanh u = 2 / (1 + e^-2u)
//   silu     x / (1 + e^-x)              qgelu    x / (1 + e^-1.702x)         sigmoid  1 / (1 + e^-x)
//   relu     x where x > 0, else 0       srelu    x^2 where x > 0, else 0
//
// The decimals stand for their nearest f32. relu and srelu take NaN to 0. gelu, silu and qgelu give NaN at
// -infinity, and their slopes at both infinities, where the formula multiplies 0 by infinity.
//
// Every export takes `scratch`: SCRATCH bytes of the calling thread's own.
import { multiply } from "./chunk";
import { Activation } from "./contract";
import { exp2x2, highHalf, join, logistic2x2 } from "./math";
import { BUFFER, CHUNK } from "./scratch";
import { narrow, widen } from "./wide";

const LOG2E = reinterpret<f64>(0x3ff71547652b82fe); // 1.4426950408889634

const GELU = memory.data<u64>(
  [
    0xc0026aec2a847833, // -2.3022082635570995, -2 log2(e) c0
    0xbfba5a7d16a48d66, // -0.10294324686815556, -2 log2(e) c1
    0x3ff9884540000000, // 1.5957691669464111, 2 c0
    0x3fcb6676e0000000, // 0.21406446397304535, 6 c1
    0x3ff0000000000000, // 1
  ],
  16,
);

/** dst[i] = act(src[i]) for i in [begin, end). */
export function activation(
  src: usize,
  srcType: u32,
  dst: usize,
  dstType: u32,
  kind: u32,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    widen(src, srcType, i, count, scratch);
    activate(kind, alphaOf(kind), scratch, count);
    narrow(scratch, dst, dstType, i, count);
  }
}

/** dst[i] = grad[i] * act'(src[i]) for i in [begin, end). */
export function activationBackward(
  grad: usize,
  gradType: u32,
  src: usize,
  srcType: u32,
  dst: usize,
  dstType: u32,
  kind: u32,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const factor = scratch + BUFFER;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    widen(src, srcType, i, count, scratch);
    widen(grad, gradType, i, count, factor);
    differentiate(kind, alphaOf(kind), scratch, count);
    multiply(scratch, factor, count);
    narrow(scratch, dst, dstType, i, count);
  }
}

/** The factor of x inside the logistic function of silu and qgelu. */
export function alphaOf(kind: u32): f32 {
  return kind === Activation.Qgelu ? 1.702 : 1.0;
}

/** Replaces `count` f32 values by act(x); a multiple of four is touched. */
export function activate(kind: u32, alpha: f32, values: usize, count: usize): void {
  const rate = f64x2.splat(<f64>alpha * -LOG2E);
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    const low = value(kind, rate, f64x2.promote_low_f32x4(x));
    const high = value(kind, rate, f64x2.promote_low_f32x4(highHalf(x)));
    v128.store(values, join(low, high));
  }
}

/** Replaces `count` f32 values by act'(x); a multiple of four is touched. */
export function differentiate(kind: u32, alpha: f32, values: usize, count: usize): void {
  const factor = f64x2.splat(<f64>alpha);
  const rate = f64x2.splat(<f64>alpha * -LOG2E);
  for (const end = values + (count << 2); values < end; values += 16) {
    const x = v128.load(values);
    const low = slope(kind, factor, rate, f64x2.promote_low_f32x4(x));
    const high = slope(kind, factor, rate, f64x2.promote_low_f32x4(highHalf(x)));
    v128.store(values, join(low, high));
  }
}

/** act(x) in two f64 lanes; `rate` is -alpha log2(e). */
function value(kind: u32, rate: v128, x: v128): v128 {
  const one = v128.load64_splat(GELU, 32);
  switch (kind) {
    case Activation.Gelu:
      return f64x2.div(x, f64x2.add(one, exp2x2(geluExponent(x))));
    case Activation.Relu:
      return v128.and(x, positive(x));
    case Activation.Srelu:
      return v128.and(f64x2.mul(x, x), positive(x));
    case Activation.Sigmoid:
      return logistic2x2(f64x2.mul(x, rate));
    default:
      return f64x2.div(x, f64x2.add(one, exp2x2(f64x2.mul(x, rate))));
  }
}

/** act'(x) in two f64 lanes; `rate` is -alpha log2(e). */
function slope(kind: u32, alpha: v128, rate: v128, x: v128): v128 {
  const one = v128.load64_splat(GELU, 32);
  switch (kind) {
    case Activation.Gelu: {
      const curve = f64x2.mul(v128.load64_splat(GELU, 24), f64x2.mul(x, x));
      return swishSlope(
        f64x2.mul(x, f64x2.add(v128.load64_splat(GELU, 16), curve)),
        logistic2x2(geluExponent(x)),
      );
    }
    case Activation.Relu:
      return v128.and(one, positive(x));
    case Activation.Srelu:
      return v128.and(f64x2.add(x, x), positive(x));
    case Activation.Sigmoid: {
      // Even in x: e / (1 + e)^2 with e = e^-|x| keeps its accuracy where the logistic function nears 1.
      const e = exp2x2(f64x2.mul(f64x2.abs(x), rate));
      const sum = f64x2.add(one, e);
      return f64x2.div(e, f64x2.mul(sum, sum));
    }
    default:
      return swishSlope(f64x2.mul(alpha, x), logistic2x2(f64x2.mul(x, rate)));
  }
}

/** The slope of x s(v(x)), s the logistic function: s + x v' s (1 - s), from `product` = x v' and s. */
function swishSlope(product: v128, s: v128): v128 {
  const one = v128.load64_splat(GELU, 32);
  return f64x2.add(s, f64x2.mul(product, f64x2.mul(s, f64x2.sub(one, s))));
}

/** -2 u log2(e) of the gelu. */
function geluExponent(x: v128): v128 {
  const curve = f64x2.mul(v128.load64_splat(GELU, 8), f64x2.mul(x, x));
  return f64x2.mul(x, f64x2.add(v128.load64_splat(GELU, 0), curve));
}

/** All ones where x > 0. */
function positive(x: v128): v128 {
  return f64x2.gt(x, f64x2.splat(0));
}
