// Computes the stored scale of a block and the multiplier of its elements from the amax of the block. Every step is one
// rounded f32 operation, written ⊗ (product) or ⊘ (quotient) where it matters. The order of the steps is part of the
// definition (numerics.md §2.3, §3.1, §4.1, §5.1).

import { ElementScaling, ScaleRule, Wide } from "../contract";
import { decode, exponentBias, magnitudeBits, mantissaBits, maxCode, maxNegative } from "./minifloat";
import { largestWide, roundFour, roundWide } from "./wide";

const FLT_MAX = reinterpret<f32>(0x7f7fffff);
const SIXTH = reinterpret<f32>(0x3e2aaaab); // fl(1/6)
const E4M3_MIN_NORMAL: u32 = 0x3c800000; // 2^-6
const E4M3_MAX: u32 = 0x43e00000; // 448

/** Constants of e4m3 scales in memory, because V8 rebuilds a vector literal in several instructions wherever it is used. */
const CONSTANTS = memory.data<u32>(
  [
    0x40c00000,
    0x3c800000,
    0x3c600000,
    0x43e00000,
    0x43780000,
    1,
    0x7f800000,
    20 << 23,
    0x7f800000,
    968,
    0x2e000000,
    0x3e000000,
    0x20,
    0x7f,
    0x38800000,
    0x47e00000,
    904,
  ],
  16,
);

/** Byte offsets in CONSTANTS. */
const enum Constant {
  Six = 0,
  /** 2^-6. */
  MinNormal = 4,
  /** 7 * 2^-9. */
  MaxSubnormal = 8,
  /** 448. */
  Max = 12,
  /** 248. From here on, E4m3HalfUp gives the largest scale. */
  Large = 16,
  /** The integer 1. */
  One = 20,
  /** The mask of the exponent field. */
  Exponent = 24,
  /** The increment that turns a power of two into the term that rounds a sum to three mantissa bits. */
  Lift = 28,
  Infinity = 32,
  /** The exponent field of 2^-6 with three mantissa bits. */
  Bias = 36,
  /** 2^-35. */
  Sum = 40,
  /** 0.125 and its code. */
  Eighth = 44,
  EighthCode = 48,
  /** The code of NaN. */
  NaN = 52,
  /** For ue5m3: 2^-14, the largest number, and the exponent field as in Bias. */
  MinNormalUe5m3 = 56,
  MaxUe5m3 = 60,
  BiasUe5m3 = 64,
}

/** Broadcasts a constant to every lane. */
function constant(at: Constant): v128 {
  return v128.load32_splat(CONSTANTS + at);
}

const EPSILON: f32 = 1.1920928955078125e-7; // 2^-23, the distance from 1 to the next f32

/** Byte offsets of the fields of a prepared scale rule: a ScaleRule with its constants. */
export const enum RuleAt {
  Rule = 0,
  /** The largest finite element value, max. */
  Max = 4,
  /** The f32 nearest to 1 / max. */
  Reciprocal = 8,
  /** floor(log2 max). */
  MaxExponent = 12,
  Pow2 = 16,
  Epsilon = 20,
  /** The value of an f32 scale that would overflow. */
  Overflow = 24,
  /** NVFP4's encode scale of the tensor, S_enc (numerics.md §5.1). */
  Encode = 28,
  /** The f32 nearest to 1 / S_enc. */
  Decode = 32,
  /** NVFP4's amax of the tensor, or its per-tensor scale (`tensorScale`). */
  Global = 36,
  /** The format's largest finite value times the largest block scale: 6 * 448 or 6 * 256 for NVFP4. */
  Full = 40,
  /** Whether 4over6 compares squared errors. */
  Squared = 44,
  /**
   * The number that is added to the bits of an amax before its exponent is read, so that some amaxes carry into the next
   * exponent.
   */
  Carry = 48,
  /** The bits of ElementScaling. */
  Scaling = 52,
  /** The Wide type of the input. */
  Type = 56,
}

/** The size in bytes of a prepared rule. */
export const RULE_BYTES: usize = 64;

/**
 * Returns max / amax as TransformerEngine computes it. First, an amax below `epsilon` is replaced by `epsilon`. The
 * scale is 1 if amax is then 0, infinite or NaN. An infinite quotient becomes `overflow`. With `pow2`, the result is
 * rounded down to a power of two.
 */
export function scaleFromAmax(amax: f32, max: f32, pow2: u32, epsilon: f32, overflow: f32): f32 {
  if (amax < epsilon) amax = epsilon;
  if (!(amax > 0 && amax < Infinity)) return 1;
  let scale = max / amax;
  if (scale === Infinity) scale = overflow;
  return pow2 ? reinterpret<f32>(reinterpret<u32>(scale) & 0xff800000) : scale;
}

/** The RuleAt.Carry of a rule. It rounds an amax half up to its first bits, or up to the next power of two (numerics.md §4.1). */
function carryOf(kind: i32, word: u32): u32 {
  if (kind === ScaleRule.E8m0Ceil) return 0x007fffff;
  if (kind === ScaleRule.E8m0Even) return 0x00400000 >> mantissaBits(word);
  if (kind !== ScaleRule.E8m0EvenShort) return 0;
  return magnitudeBits(word) === 5 ? 0x00080000 : 0x00200000;
}

/** NVFP4's encode scale S_enc of a tensor with amax `g`; `max` is 6 * 448, or 6 * 256. */
function globalScale(g: f32, max: f32): f32 {
  const scale = min(max / g, FLT_MAX);
  return g === 0 || scale === 0 ? 1 : scale;
}

/** The value that a rule maps an amax to: the largest value, or half of the distance between the least and the largest. */
function largestOf(kind: i32, word: u32): f32 {
  const largest = reinterpret<f32>(decode(maxCode(word), word));
  if (kind !== ScaleRule.F32QuotientRange) return largest;
  const step = reinterpret<f32>(decode(1, word));
  return <f32>(maxCode(word) + maxNegative(word)) * 0.5 * step;
}

/** The parameters that determine the scales of blocks, and the scaling of elements. */
@unmanaged
export class ScaleParameters {
  /** A ScaleRule. */
  rule: i32;
  /** The format of the codes. */
  word: u32;
  /** Whether f32 scales are powers of two, and the least amax of f32 scales. */
  pow2: bool;
  epsilon: f32;
  /** NVFP4's amax of the tensor, or its per-tensor scale (`tensorScale`); 448 or 256; whether 4over6 compares squared errors. */
  globalAmax: f32;
  e4m3Max: f32;
  squared: bool;
  /** The bits of ElementScaling. */
  scaling: u32;
}

/** Prepares the rule at `rule`, RULE_BYTES bytes, for inputs of a Wide type. */
export function prepareRule(rule: usize, parameters: ScaleParameters, type: u32): void {
  const kind = parameters.rule;
  const word = parameters.word;
  const largest = largestOf(kind, word);
  store<i32>(rule, kind, RuleAt.Rule);
  store<f32>(rule, largest, RuleAt.Max);
  store<f32>(rule, 1 / largest, RuleAt.Reciprocal);
  store<i32>(rule, <i32>(maxCode(word) >> mantissaBits(word)) - exponentBias(word), RuleAt.MaxExponent);
  store<u32>(rule, <u32>parameters.pow2, RuleAt.Pow2);
  store<f32>(rule, parameters.epsilon, RuleAt.Epsilon);
  store<f32>(rule, largestWide(type), RuleAt.Overflow);
  store<f32>(rule, 6 * parameters.e4m3Max, RuleAt.Full);
  replaceAmax(rule, parameters.globalAmax);
  store<u32>(rule, <u32>parameters.squared, RuleAt.Squared);
  store<u32>(rule, carryOf(kind, word), RuleAt.Carry);
  store<u32>(rule, parameters.scaling, RuleAt.Scaling);
  store<u32>(rule, type, RuleAt.Type);
}

/** Sets the fields that depend on the tensor's amax in a rule that is otherwise prepared. */
export function replaceAmax(rule: usize, g: f32): void {
  const encodeScale = globalScale(g, load<f32>(rule, RuleAt.Full));
  store<f32>(rule, encodeScale, RuleAt.Encode);
  store<f32>(rule, 1 / encodeScale, RuleAt.Decode);
  store<f32>(rule, g, RuleAt.Global);
}

function isF32(kind: i32): bool {
  if (kind === ScaleRule.F32 || kind === ScaleRule.F32QuotientRange) return true;
  return kind >= ScaleRule.F32Quotient && kind <= ScaleRule.F32Reciprocal;
}

/** Whether a rule has e4m3 scales and a per-tensor scale that `tensorScale` computes. */
function hasTensorScale(kind: i32): bool {
  if (kind === ScaleRule.E4m3HalfUp) return true;
  return kind >= ScaleRule.E4m3Quotient && kind <= ScaleRule.TwoLevelDivisor;
}

/** The stored per-tensor scale for this amax, under a rule for which hasTensorScale holds. `type` is the input type. */
export function tensorScale(rule: i32, amax: f32, type: u32): f32 {
  if (rule === ScaleRule.E4m3Quotient || rule === ScaleRule.E4m3HalfUp) return 1;
  if (rule !== ScaleRule.TwoLevelDivisor) return amax / 2688;
  const reciprocal = roundWide(type, 1 / max<f32>(amax, reinterpret<f32>(0x00800000)));
  const divisor = roundWide(type, reciprocal * 2688);
  return divisor < Infinity ? divisor : 1;
}

/** Bytes of a stored scale. */
export function scaleBytes(kind: i32): usize {
  return isF32(kind) ? 4 : 1;
}

/**
 * Computes the stored scales (f32 or bytes) and the f32 multipliers of `count` f32 amaxes. The arrays of amaxes and
 * multipliers must have room for a multiple of four. FourOverSix is not supported here.
 */
export function applyRule(rule: usize, amaxes: usize, count: i32, scales: usize, multipliers: usize): void {
  const kind = load<i32>(rule, RuleAt.Rule);
  if (isF32(kind)) {
    for (let i: usize = 0; i < (<usize>count) << 2; i += 4)
      applyF32(rule, amaxes + i, scales + i, multipliers + i);
    return;
  }
  if (hasTensorScale(kind)) {
    for (let i = 0; i < count; i += 4) {
      const at = (<usize>i) << 2;
      storeCodes(ofTensor(rule, v128.load(amaxes + at), multipliers + at), scales, i, count);
    }
    return;
  }
  for (let i = 0; i < count; i += 4) {
    const amax = v128.load(amaxes + ((<usize>i) << 2));
    let code: v128;
    if (kind === ScaleRule.E8m0Up) code = e8m0Up(f32x4.mul(amax, v128.load32_splat(rule, RuleAt.Reciprocal)));
    else if (kind === ScaleRule.E8m0UpQuotient)
      code = e8m0Up(f32x4.div(amax, v128.load32_splat(rule, RuleAt.Max)));
    else if (kind === ScaleRule.E8m0UpLog2)
      code = e8m0UpLog2(f32x4.div(amax, v128.load32_splat(rule, RuleAt.Max)));
    else if (kind === ScaleRule.E8m0UpLeast) {
      const clampedAmax = f32x4.max(amax, f32x4.splat(<f32>1e-4));
      code = e8m0Up(f32x4.div(clampedAmax, v128.load32_splat(rule, RuleAt.Max)));
    } else if (kind === ScaleRule.E8m0UpNormal)
      code = e8m0UpNormal(f32x4.div(amax, v128.load32_splat(rule, RuleAt.Max)));
    else if (kind === ScaleRule.E8m0FloorLog2)
      code = e8m0FloorLog2(amax, v128.load32_splat(rule, RuleAt.MaxExponent));
    else if (kind === ScaleRule.TwoLevel) code = twoLevel(rule, amax, multipliers + ((<usize>i) << 2));
    else if (kind === ScaleRule.Ue5m3Quotient)
      code = ue5m3Quotient(rule, amax, multipliers + ((<usize>i) << 2));
    else {
      const carry = v128.load32_splat(rule, RuleAt.Carry);
      code = e8m0Exponent(amax, carry, v128.load32_splat(rule, RuleAt.MaxExponent));
    }
    if (kind === ScaleRule.E8m0EvenShort) {
      const beyond = i32x4.ge_s(
        i32x4.add(amax, v128.load32_splat(rule, RuleAt.Carry)),
        i32x4.splat(0x7f800000),
      );
      code = v128.bitselect(i32x4.splat(127), code, beyond);
      v128.store(multipliers + ((<usize>i) << 2), v128.andnot(e8m0Multiplier(rule, code), beyond));
    } else if (kind === ScaleRule.E8m0UpNormal) {
      const isZero = i32x4.eq(code, i32x4.splat(0));
      v128.store(multipliers + ((<usize>i) << 2), v128.andnot(e8m0Multiplier(rule, code), isZero));
    } else if (kind !== ScaleRule.TwoLevel && kind !== ScaleRule.Ue5m3Quotient)
      v128.store(multipliers + ((<usize>i) << 2), e8m0Multiplier(rule, code));
    storeCodes(code, scales, i, count);
  }
}

/** Writes four codes as bytes at index `i` of an array of `count`; codes past its end are not written. */
function storeCodes(code: v128, scales: usize, i: i32, count: i32): void {
  const halves = i16x8.narrow_i32x4_u(code, code);
  const bytes = i32x4.extract_lane(i8x16.narrow_i16x8_u(halves, halves), 0);
  if (i + 4 <= count) store<i32>(scales + <usize>i, bytes);
  else for (let j = i; j < count; ++j) store<u8>(scales + <usize>j, bytes >> ((j - i) << 3));
}

function applyF32(rule: usize, amax: usize, stored: usize, multiplier: usize): void {
  if (load<i32>(rule, RuleAt.Rule) !== ScaleRule.F32) {
    applyQuotient(rule, load<f32>(amax), stored, multiplier);
    return;
  }
  const scale = scaleFromAmax(
    load<f32>(amax),
    load<f32>(rule, RuleAt.Max),
    load<u32>(rule, RuleAt.Pow2),
    load<f32>(rule, RuleAt.Epsilon),
    load<f32>(rule, RuleAt.Overflow),
  );
  store<f32>(multiplier, scale);
  store<f32>(stored, 1 / scale);
}

/** Writes the scale amax / max and the factor of its elements: a divisor, or its reciprocal as a multiplier. */
function applyQuotient(rule: usize, amax: f32, stored: usize, multiplier: usize): void {
  if (load<i32>(rule, RuleAt.Rule) === ScaleRule.F32Reciprocal) {
    const byOwn = reciprocalScale(rule, amax);
    store<f32>(multiplier, byOwn);
    store<f32>(stored, 1 / byOwn);
    return;
  }
  const divides = (load<u32>(rule, RuleAt.Scaling) & ElementScaling.Divides) !== 0;
  const scale = quotientScale(
    load<i32>(rule, RuleAt.Rule),
    amax,
    load<f32>(rule, RuleAt.Max),
    load<f32>(rule, RuleAt.Epsilon),
    load<u32>(rule, RuleAt.Type),
  );
  store<f32>(multiplier, divides ? scale : 1 / scale);
  store<f32>(stored, scale);
}

/**
 * Returns (1 ⊘ amax) ⊗ max. First, an amax below epsilon, which is rounded to the input type, is replaced by epsilon. Returns 1
 * for an amax of 0.
 */
function reciprocalScale(rule: usize, amax: f32): f32 {
  const epsilon = roundWide(load<u32>(rule, RuleAt.Type), load<f32>(rule, RuleAt.Epsilon));
  if (amax < epsilon) amax = epsilon;
  return amax === 0 ? 1 : (1 / amax) * load<f32>(rule, RuleAt.Max);
}

/** The distance from 1 to the next number of a Wide type: 2^-23, 2^-7 or 2^-10. */
function epsilonOf(type: u32): f32 {
  return reinterpret<f32>(type === Wide.F32 ? 0x34000000 : type === Wide.Bf16 ? 0x3c000000 : 0x3a800000);
}

/**
 * Returns amax / max for F32Quotient and the rules that only round it differently. First, an amax below `epsilon` is replaced by
 * `epsilon`. `type` is the Wide type of the input.
 */
export function quotientScale(rule: i32, amax: f32, max: f32, epsilon: f32, type: u32): f32 {
  const scale = (amax < epsilon ? epsilon : amax) / max;
  if (rule === ScaleRule.F32QuotientTyped) return roundWide(type, scale);
  if (rule === ScaleRule.F32QuotientLeast || rule === ScaleRule.F32QuotientRange) {
    const typed = roundWide(type, scale);
    return typed === 0 ? epsilonOf(type) : typed;
  }
  if (rule !== ScaleRule.F32QuotientUp) return scale;
  const bits = reinterpret<u32>(scale) + 0x007fffff;
  const power = bits & 0x7f800000;
  return reinterpret<f32>(power < 0x00800000 ? 0x00800000 : power > 0x7f000000 ? 0x7f000000 : power);
}

/**
 * The e8m0 code 127 + ceil(log2 p), clamped to [0, 254]. Adding `carry` increments the exponent field if the mantissa
 * is not 0. An exponent field of 0 is incremented if p is above 2^-127.
 */
function e8m0Up(p: v128): v128 {
  const tiny = i32x4.lt_s(p, i32x4.splat(0x00800000));
  const carry = v128.bitselect(i32x4.splat(0x003fffff), i32x4.splat(0x007fffff), tiny);
  return i32x4.min_s(i32x4.shr_u(i32x4.add(p, carry), 23), i32x4.splat(254));
}

/** The exponent field of p, rounded up to a power of two: 1 for all subnormals, 0 for zero, and at most 254. */
function e8m0UpNormal(p: v128): v128 {
  return i32x4.min_s(i32x4.shr_u(i32x4.add(p, i32x4.splat(0x007fffff)), 23), i32x4.splat(254));
}

/**
 * The e8m0 code 127 + floor(log2 r) - maxExponent, clamped to [0, 254], where the bits of r are the bits of amax plus `carry`;
 * infinity gives 254. Of the amaxes below 2^-126, only the binade from 2^-127 matters; its mantissas have one bit less, so the
 * carry is halved.
 */
function e8m0Exponent(amax: v128, carry: v128, maxExponent: v128): v128 {
  const tiny = i32x4.lt_s(amax, i32x4.splat(0x00800000));
  const scaledCarry = v128.bitselect(i32x4.shr_u(carry, 1), carry, tiny);
  const field = i32x4.shr_u(i32x4.add(amax, scaledCarry), 23);
  const code = i32x4.max_s(i32x4.sub(field, maxExponent), i32x4.splat(0));
  const isInfinite = i32x4.eq(amax, i32x4.splat(0x7f800000));
  return v128.bitselect(i32x4.splat(254), i32x4.min_s(code, i32x4.splat(254)), isInfinite);
}

/**
 * As e8m0Up, but log2 p is rounded to f32 before it is rounded up. The rounded logarithm is k for p from 2^k up to 2^k * (1 + h
 * ln 2), where h is half the distance from k to the next f32.
 */
function e8m0UpLog2(p: v128): v128 {
  const k = i32x4.sub(i32x4.shr_u(p, 23), i32x4.splat(127));
  // just below a power of two, f32 has the smaller spacing of the lower binade
  const below = v128.and(i32x4.lt_s(k, i32x4.splat(0)), f32x4.splat(0.5));
  const binade = v128.and(f32x4.sub(f32x4.abs(f32x4.convert_i32x4_s(k)), below), i32x4.splat(0x7f800000));
  const estimate = i32x4.trunc_sat_f32x4_s(f32x4.mul(binade, f32x4.splat(0.34657359)));
  const tiny = i32x4.lt_s(p, i32x4.splat(0x00800000));
  const carry = v128.bitselect(
    i32x4.splat(0x003fffff - 11),
    i32x4.sub(i32x4.splat(0x007fffff), estimate),
    tiny,
  );
  return i32x4.min_s(i32x4.shr_u(i32x4.add(p, carry), 23), i32x4.splat(254));
}

/**
 * The e8m0 code 127 + floor(l) - maxExponent modulo 256, where l is the f32 nearest to log2 amax; 0 for zero, 254 for infinity.
 * l is at least K for amax from 2^K * (1 - h ln 2) on, where h is half the distance from K to the previous f32.
 */
function e8m0FloorLog2(amax: v128, maxExponent: v128): v128 {
  const tiny = i32x4.lt_s(amax, i32x4.splat(0x00800000));
  // a subnormal amax is a whole multiple of 2^-149
  const y = v128.bitselect(f32x4.convert_i32x4_s(amax), amax, tiny);
  const unit = v128.and(tiny, i32x4.splat(-149));
  const next = i32x4.sub(i32x4.add(i32x4.shr_u(y, 23), unit), i32x4.splat(126));
  // just below a power of two, f32 has the smaller spacing of the lower binade
  const below = v128.and(i32x4.gt_s(next, i32x4.splat(0)), f32x4.splat(0.5));
  const binade = v128.and(f32x4.sub(f32x4.abs(f32x4.convert_i32x4_s(next)), below), i32x4.splat(0x7f800000));
  const estimate = i32x4.trunc_sat_f32x4_s(f32x4.mul(binade, f32x4.splat(<f32>Math.LN2)));
  const field = i32x4.add(i32x4.shr_u(i32x4.add(y, estimate), 23), unit);
  const wrapped = v128.and(i32x4.sub(field, maxExponent), i32x4.splat(255));
  const code = v128.bitselect(i32x4.splat(254), wrapped, i32x4.eq(amax, i32x4.splat(0x7f800000)));
  return v128.andnot(code, i32x4.eq(amax, i32x4.splat(0)));
}

/** The multiplier of the elements of a block with this scale. */
function e8m0Multiplier(rule: usize, code: v128): v128 {
  const scaling = load<u32>(rule, RuleAt.Scaling);
  const multiplier = e8m0Reciprocal(code);
  if (scaling & ElementScaling.FromNormal) return i32x4.min_s(multiplier, i32x4.splat(0x7e800000));
  if ((scaling & ElementScaling.UnlessLeast) === 0) return multiplier;
  return v128.bitselect(f32x4.splat(1), multiplier, i32x4.eq(code, i32x4.splat(0)));
}

/** 2^(127 - code). Code 254 gives a subnormal; code 255 gives the same value. */
function e8m0Reciprocal(code: v128): v128 {
  return i32x4.max_s(i32x4.shl(i32x4.sub(i32x4.splat(254), code), 23), i32x4.splat(0x00400000));
}

/**
 * Returns the e4m3 codes of amax ⊗ (S_enc ⊗ fl(1/6)), where fl rounds to f32. Writes the multipliers min(1 ⊘ (scale ⊗
 * (1 ⊘ S_enc)), FLT_MAX).
 */
function twoLevel(rule: usize, amax: v128, multipliers: usize): v128 {
  const raw = f32x4.mul(amax, f32x4.splat(load<f32>(rule, RuleAt.Encode) * SIXTH));
  // rounds to e4m3 by adding a power of two, as in encoder.ts
  const a = i32x4.min_s(raw, i32x4.splat(E4M3_MAX));
  const e = v128.and(i32x4.max_s(a, i32x4.splat(E4M3_MIN_NORMAL)), i32x4.splat(0x7f800000));
  const c = i32x4.add(e, i32x4.splat(20 << 23));
  const y = f32x4.add(a, c);
  const scale = f32x4.sub(y, c);
  const product = f32x4.mul(scale, v128.load32_splat(rule, RuleAt.Decode));
  const quotient = f32x4.div(f32x4.splat(1), product);
  v128.store(multipliers, i32x4.min_s(quotient, i32x4.splat(0x7f7fffff)));
  return i32x4.sub(i32x4.add(i32x4.sub(y, c), i32x4.shr_u(e, 20)), i32x4.splat(968));
}

/**
 * The exponents of values, as powers of two, in a format of three mantissa bits whose least normal number is `normal`. No value
 * is NaN.
 */
function exponentOf(values: v128, normal: v128): v128 {
  return v128.and(i32x4.max_s(values, normal), constant(Constant.Exponent));
}

/** Sums that round values to three mantissa bits (encoder.ts); `e` is their exponentOf. */
function roundingSum(values: v128, e: v128): v128 {
  return f32x4.add(values, i32x4.add(e, constant(Constant.Lift)));
}

/** The rounded values that roundingSum computed. */
function scaleOf(sum: v128, e: v128): v128 {
  return f32x4.sub(sum, i32x4.add(e, constant(Constant.Lift)));
}

/** The codes that roundingSum computed, without a sign; `bias` is the exponent field of `normal` with three mantissa bits. */
function codesOf(sum: v128, e: v128, bias: v128): v128 {
  const significand = i32x4.sub(sum, i32x4.add(e, constant(Constant.Lift)));
  return i32x4.sub(i32x4.add(significand, i32x4.shr_u(e, 20)), bias);
}

/** The codes and factors of E4m3HalfUp. A block with scale 0 gets a factor that makes its elements 0. */
function halfUpE4m3(rule: usize, amax: v128, factors: usize): v128 {
  const raw = f32x4.div(amax, constant(Constant.Six));
  const isTiny = f32x4.lt(raw, constant(Constant.MinNormal));
  const isLarge = f32x4.ge(raw, constant(Constant.Large));
  const bounded = v128.bitselect(f32x4.pmin(raw, constant(Constant.MaxSubnormal)), raw, isTiny);
  const value = v128.bitselect(constant(Constant.Max), bounded, isLarge);
  // ggml adds half a unit in f32, which rounds the number just below 2^-10 up to it
  const summed = f32x4.add(value, constant(Constant.Sum));
  // the last bit of a tie is 0; setting it makes the tie round up
  const tieUp = v128.or(summed, constant(Constant.One));
  const e = exponentOf(tieUp, constant(Constant.MinNormal));
  const sum = roundingSum(tieUp, e);
  const scale = scaleOf(sum, e);
  const isZero = i32x4.eq(scale, i32x4.splat(0));
  if (load<u32>(rule, RuleAt.Scaling) & ElementScaling.Divides)
    v128.store(factors, v128.bitselect(constant(Constant.Infinity), scale, isZero));
  else v128.store(factors, v128.andnot(f32x4.div(f32x4.splat(1), scale), isZero));
  return codesOf(sum, e, constant(Constant.Bias));
}

/** Returns the scale codes under the rule Ue5m3Quotient. Writes the divisor or the multiplier of each block to `factors`. */
function ue5m3Quotient(rule: usize, amax: v128, factors: usize): v128 {
  const sixth = roundFour(load<u32>(rule, RuleAt.Type), f32x4.div(amax, constant(Constant.Six)));
  const value = f32x4.pmin(sixth, constant(Constant.MaxUe5m3));
  const e = exponentOf(value, constant(Constant.MinNormalUe5m3));
  const sum = roundingSum(value, e);
  const scale = scaleOf(sum, e);
  const divisor = v128.bitselect(f32x4.splat(EPSILON), scale, f32x4.eq(scale, f32x4.splat(0)));
  const divides = load<u32>(rule, RuleAt.Scaling) & ElementScaling.Divides;
  v128.store(factors, divides ? divisor : f32x4.div(f32x4.splat(1), divisor));
  return codesOf(sum, e, constant(Constant.BiasUe5m3));
}

/** The e4m3 scales before rounding, under a rule with a per-tensor scale `t`. */
function rawOfTensor(kind: i32, type: u32, amax: v128, t: v128): v128 {
  if (kind === ScaleRule.TwoLevelProduct) {
    const quotient = f32x4.div(amax, f32x4.mul(constant(Constant.Six), t));
    const one = f32x4.splat(1);
    return v128.bitselect(one, quotient, f32x4.eq(quotient, f32x4.splat(0)));
  }
  const sixth = f32x4.div(amax, constant(Constant.Six));
  return kind === ScaleRule.TwoLevelDivisor ? f32x4.mul(t, roundFour(type, sixth)) : f32x4.div(sixth, t);
}

/** The least e4m3 scale of a rule with a per-tensor scale. */
function leastOfTensor(kind: i32): f32 {
  if (kind === ScaleRule.TwoLevelDivisor) return 0;
  return reinterpret<f32>(kind === ScaleRule.TwoLevelProduct ? 0x3b000000 : E4M3_MIN_NORMAL);
}

/**
 * Returns the e4m3 codes of the scales under a rule with a per-tensor scale. Writes the divisors or multipliers of the elements.
 * A NaN scale has a NaN factor.
 */
function ofTensor(rule: usize, amax: v128, multipliers: usize): v128 {
  const kind = load<i32>(rule, RuleAt.Rule);
  if (kind === ScaleRule.E4m3HalfUp) return halfUpE4m3(rule, amax, multipliers);
  const t = v128.load32_splat(rule, RuleAt.Global);
  const raw = rawOfTensor(kind, load<u32>(rule, RuleAt.Type), amax, t);
  const isNaN = f32x4.ne(raw, raw);
  const clamped = f32x4.pmin(f32x4.pmax(raw, f32x4.splat(leastOfTensor(kind))), constant(Constant.Max));
  const value = v128.andnot(clamped, isNaN);
  const e = exponentOf(value, constant(Constant.MinNormal));
  const sum = roundingSum(value, e);
  let scale = scaleOf(sum, e);
  let code = codesOf(sum, e, constant(Constant.Bias));
  if (kind === ScaleRule.TwoLevelDivisor) {
    const isZero = i32x4.eq(code, i32x4.splat(0));
    code = v128.bitselect(constant(Constant.EighthCode), code, isZero);
    scale = v128.bitselect(constant(Constant.Eighth), scale, isZero);
  }
  code = v128.bitselect(constant(Constant.NaN), code, isNaN);
  scale = v128.or(scale, isNaN);
  v128.store(multipliers, factorOfTensor(kind, load<u32>(rule, RuleAt.Scaling), scale, t));
  return code;
}

/** The divisors or multipliers of elements under e4m3 scales and the per-tensor scale `t`. */
function factorOfTensor(kind: i32, scaling: u32, scale: v128, t: v128): v128 {
  const one = f32x4.splat(1);
  const isQuotient = kind === ScaleRule.E4m3Quotient || kind === ScaleRule.TwoLevelQuotient;
  if (isQuotient) return f32x4.div(f32x4.div(one, t), scale);
  const fullScale = kind === ScaleRule.TwoLevelDivisor ? f32x4.div(scale, t) : f32x4.mul(scale, t);
  return scaling & ElementScaling.Divides ? fullScale : f32x4.div(one, fullScale);
}
