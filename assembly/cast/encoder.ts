// An encoder is a block of memory that holds the constants of the SIMD loops for one format, rounding mode and overflow
// policy. Constants are in memory because V8 rebuilds v128 literals in every iteration. A vector constant has 16 bytes
// with equal lanes.
//
// The "magic" loops use this identity. Let M be the format's number of mantissa bits. Let e be the largest power of two
// not above |x|, but at least the smallest normal number of the format, and let C = e * 2^(23 - M). The ulp of f32 at C
// is the format's ulp at |x|. Therefore the f32 sum |x| + C rounds |x| to the format, ties to even, and the low bits of
// the sum are the significand of the result.

import { Overflow, Rounding, Specials } from "../contract";
import {
  beyondCode,
  exponentBias,
  exponentBits,
  hasSubnormals,
  isInteger,
  isSigned,
  magnitudeBits,
  mantissaBits,
  maxCode,
  maxNegative,
  minExponent,
  signBit,
  specials,
} from "../core/minifloat";

/** The loop that an encoder uses. */
export const enum Loop {
  /** Encodes one element at a time, in any format. */
  Scalar = 0,
  /** The magic sum, for ties to even, saturation, and signed formats of at most 8 bits other than fnuz and integers. */
  Fast = 1,
  /** Rounds to bf16, ties to even, in integer arithmetic. */
  Bf16 = 2,
  /** The magic sum, and a correction of its result for any rounding mode and overflow policy. */
  Magic = 3,
  /**
   * Integer arithmetic, for any rounding mode and overflow policy: formats that are f32 with a shorter mantissa, and
   * e8m0.
   */
  Aligned = 4,
}

/** Byte offsets of an encoder's fields. */
export const enum At {
  Word = 0,
  Rounding = 4,
  Overflow = 8,
  Loop = 12,
  /** log2 of the number of bits per stored code: 2, 3, 4 or 5. */
  Storage = 16,
  /** 23 - M. */
  Shift = 20,
  Magnitude = 32,
  ExponentMask = 48,
  MinNormal = 64,
  /** (23 - M) << 23, the difference between the bit patterns of C and e. */
  Lift = 80,
  /**
   * (128 - exponent bias) << M, as i32 and as i16. The magic loops subtract it from the sum of significand and f32
   * exponent field; the difference is the code.
   */
  Bias = 96,
  Bias16 = 112,
  /**
   * Larger magnitudes are clamped to this value: the first power of two above the binade of the largest finite value.
   */
  Clamp = 128,
  /** The sign bit of a code, as i32 and as i8. */
  Sign = 144,
  Sign8 = 160,
  /** All ones if zero keeps its sign. */
  SignedZero = 176,
  MaxCode = 192,
  /** The code that replaces a code above MaxCode before the sign bit is set, for positive and for negative values. */
  PositiveOver = 208,
  NegativeOver = 224,
  /**
   * Down: all ones if the magnitude of an inexact positive (negative) value is truncated. Stochastic rounding then adds
   * its random increment. Up: all ones if that magnitude is always rounded up.
   */
  PositiveDown = 240,
  NegativeDown = 256,
  PositiveUp = 272,
  NegativeUp = 288,
  /** All ones if ties round away from zero. */
  TieUp = 304,
  /** 1 if inexact codes are rounded to odd. */
  Odd = 320,
  /** Mask of the low byte of each 16-bit lane. */
  LowByte = 336,
  One = 352,
  /** One less than half an ulp of bf16. */
  HalfBf16 = 368,
  MaxCode8 = 384,
  /**
   * Loop.Aligned encodes smaller magnitudes incorrectly. The value is 0, or 2^-126 (the smallest normal f32) for
   * formats without subnormals.
   */
  Floor = 400,
  /**
   * All ones if negative codes are two's complement; Sign is then 0.
   */
  Complement = 416,
  /** All ones as wide as a code. */
  Code = 432,
  /**
   * Written by the loops: the largest bit pattern of |x ⊗ multiplier| in each lane. encodeAligned subtracts At.Floor
   * from the patterns. encodeGroups stores the largest unclamped code in each byte instead.
   */
  Seen = 448,
  /** log2 of the bytes of random bits per element: 1, or 2 after takeWords. */
  RandomShift = 464,
  /** Mask of the bits of an f32 that bf16 has. */
  UpperHalf = 480,
  // The fields from here on describe a run of elements. Callers of loops may set them after `prepare`.
  /** The address of CODES_BYTES bytes for codes that are not packed yet. */
  Codes = 496,
  /** log2 of the number of elements that share a multiplier; 31 if all do. */
  MultiplierShift = 500,
  /** The address of the random bits of the run. */
  Random = 504,
  /** The bits of ElementScaling, and the Wide type of the input, by which elements are scaled. */
  Scaling = 508,
  SourceType = 512,
  /** The address of a buffer for scaled elements. */
  Result = 516,
}

/** The size in bytes of an encoder. */
export const ENCODER_BYTES: usize = 528;

/** The At.MultiplierShift of a multiplier that all elements share. */
const SHARED: i32 = 31;

function put(encoder: usize, at: usize, value: u32): void {
  v128.store(encoder + at, i32x4.splat(value));
}

function mask(condition: bool): u32 {
  return condition ? 0xffffffff : 0;
}

/** log2 of the number of bits per stored code: packed 4, 8, 16 or 32 bits. */
export function storageOf(word: u32): u32 {
  const bits = magnitudeBits(word) + isSigned(word);
  return bits <= 4 ? 2 : bits <= 8 ? 3 : bits <= 16 ? 4 : 5;
}

/** The f32 exponent field of the first binade above the largest finite value. */
function fieldAbove(word: u32): i32 {
  return (<i32>maxCode(word) >> mantissaBits(word)) + 1 - exponentBias(word) + 127;
}

/** Whether the format has only f32's exponent field (e8m0). */
function isExponent(word: u32): bool {
  const unusual = isSigned(word) | mantissaBits(word) | hasSubnormals(word);
  return (
    unusual === 0 &&
    exponentBits(word) === 8 &&
    exponentBias(word) === 127 &&
    specials(word) === Specials.NanOnly
  );
}

function loopFor(word: u32, rounding: i32, overflow: i32, storage: u32): Loop {
  const m = <i32>mantissaBits(word);
  // the other loops take infinity for any value beyond the largest
  if (overflow === Overflow.Propagate) return Loop.Scalar;
  if (isExponent(word)) return Loop.Aligned;
  if (!hasSubnormals(word) || m === 0) return Loop.Scalar;
  const nearest = rounding === Rounding.TiesToEven;
  if (exponentBits(word) === 8 && exponentBias(word) === 127 && specials(word) === Specials.Ieee) {
    return nearest && m === 7 && isSigned(word) ? Loop.Bf16 : Loop.Aligned;
  }
  if (fieldAbove(word) + 23 - m > 254 || minExponent(word) - m < -110) return Loop.Scalar;
  const fast =
    nearest &&
    overflow === Overflow.Saturate &&
    storage <= 3 &&
    isSigned(word) !== 0 &&
    specials(word) < <u32>Specials.Fnuz;
  return fast ? Loop.Fast : Loop.Magic;
}

/** Fills `encoder`. `storage` is usually `storageOf(word)`, but 4-bit codes may also take one byte each. */
export function prepare(encoder: usize, word: u32, rounding: i32, overflow: i32, storage: u32): void {
  const m = mantissaBits(word);
  const sign = signBit(word);
  const signed = sign !== 0;
  const loop = loopFor(word, rounding, overflow, storage);
  const saturates = overflow === Overflow.Saturate;
  store<u32>(encoder, word, At.Word);
  store<u32>(encoder, rounding, At.Rounding);
  store<u32>(encoder, overflow, At.Overflow);
  store<u32>(encoder, loop, At.Loop);
  store<u32>(encoder, storage, At.Storage);
  store<u32>(encoder, 23 - m, At.Shift);
  store<u32>(encoder, 1, At.RandomShift);
  store<i32>(encoder, SHARED, At.MultiplierShift);
  store<u32>(encoder, 0, At.Scaling);

  put(encoder, At.Magnitude, 0x7fffffff);
  put(encoder, At.Floor, hasSubnormals(word) !== 0 ? 0 : 0x00800000);
  put(encoder, At.ExponentMask, 0x7f800000);
  put(encoder, At.MinNormal, (minExponent(word) + 127) << 23);
  put(encoder, At.Lift, (23 - m) << 23);
  const bias = (128 - exponentBias(word)) << m;
  put(encoder, At.Bias, bias);
  put(encoder, At.Bias16, (bias & 0xffff) * 0x10001);
  put(encoder, At.Clamp, fieldAbove(word) << 23);
  put(encoder, At.Sign, isInteger(word) ? 0 : sign);
  put(encoder, At.Complement, mask(isInteger(word)));
  put(encoder, At.Code, (1 << (magnitudeBits(word) + isSigned(word))) - 1);
  put(encoder, At.Sign8, (sign & 0xff) * 0x01010101);
  put(encoder, At.SignedZero, mask(specials(word) !== Specials.Fnuz));

  const truncates = rounding === Rounding.TowardZero || rounding === Rounding.ToOdd;
  const downward = rounding === Rounding.TowardNegative;
  const upward = rounding === Rounding.TowardPositive;
  const cuts = truncates || rounding === Rounding.Stochastic;
  const positiveStays = saturates || truncates || downward;
  const negativeStays = signed ? saturates || truncates || upward : positiveStays;
  const beyond = beyondCode(word, 0);
  const maxNegativeCode = maxNegative(word);
  put(encoder, At.MaxCode, maxCode(word));
  put(encoder, At.MaxCode8, (maxCode(word) & 0xff) * 0x01010101);
  put(encoder, At.PositiveOver, positiveStays ? maxCode(word) : beyond);
  put(encoder, At.NegativeOver, negativeStays || isInteger(word) ? maxNegativeCode : beyond);
  put(encoder, At.PositiveDown, mask(cuts || downward));
  put(encoder, At.NegativeDown, mask(cuts || (signed ? upward : downward)));
  put(encoder, At.PositiveUp, mask(upward));
  put(encoder, At.NegativeUp, mask(signed ? downward : upward));
  put(encoder, At.TieUp, mask(rounding === Rounding.TiesToAway));
  put(encoder, At.Odd, rounding === Rounding.ToOdd ? 1 : 0);
  put(encoder, At.LowByte, 0x00ff00ff);
  put(encoder, At.One, 1);
  put(encoder, At.HalfBf16, 0x7fff);
  put(encoder, At.UpperHalf, 0xffff0000);
}

/**
 * Makes a prepared encoder read 32 random bits per element. Stochastic rounding rounds up if the sum of these bits and the
 * discarded fraction, in units of 2^-32, carries.
 */
export function takeWords(encoder: usize): void {
  store<u32>(encoder, Loop.Scalar, At.Loop);
  store<u32>(encoder, 2, At.RandomShift);
}

/**
 * The bits of the largest |x ⊗ multiplier| in the last encoded run, less At.Floor for encodeAligned. Not valid after
 * encodeGroups.
 */
export function lastSeen(encoder: usize): u32 {
  const low = max(load<u32>(encoder, At.Seen), load<u32>(encoder, At.Seen + 4));
  return max(low, max(load<u32>(encoder, At.Seen + 8), load<u32>(encoder, At.Seen + 12)));
}
