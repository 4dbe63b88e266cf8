// Encoding and decoding of every scalar format. A format is described only by its format word (contract.ts), never by name. The
// SIMD loops of assembly/cast give the same results faster.

import { Overflow, Rounding, Specials } from "../contract";

const F32_INFINITY: u32 = 0x7f800000;
const F32_NAN: u32 = 0x7fffffff;

export function exponentBits(word: u32): u32 {
  return word & 15;
}

export function mantissaBits(word: u32): u32 {
  return (word >> 4) & 15;
}

export function isSigned(word: u32): u32 {
  return (word >> 8) & 1;
}

export function hasSubnormals(word: u32): u32 {
  return (word >> 9) & 1;
}

export function specials(word: u32): u32 {
  return (word >> 10) & 7;
}

export function exponentBias(word: u32): i32 {
  return <i32>word >> 16;
}

/** Number of bits below the sign bit. */
export function magnitudeBits(word: u32): u32 {
  return exponentBits(word) + mantissaBits(word);
}

/** Mask of the sign bit; 0 for an unsigned format. */
export function signBit(word: u32): u32 {
  return isSigned(word) << magnitudeBits(word);
}

/** Whether codes are two's complement. */
export function isInteger(word: u32): bool {
  return specials(word) >= <u32>Specials.Integer;
}

/** The code of the largest finite value. */
export function maxCode(word: u32): u32 {
  const ones: u32 = (1 << magnitudeBits(word)) - 1;
  const kind = specials(word);
  if (kind == Specials.Ieee) return (((1 << exponentBits(word)) - 1) << mantissaBits(word)) - 1;
  return kind == Specials.NanOnly ? ones - 1 : ones;
}

/** The largest magnitude of a negative number, as the code of a magnitude. (For positive numbers it is maxCode.) */
export function maxNegative(word: u32): u32 {
  return specials(word) == Specials.Integer ? maxCode(word) + 1 : maxCode(word);
}

/** The code of a number from its sign bit (or 0) and the code of its magnitude. */
function signed(word: u32, sign: u32, code: u32): u32 {
  return isInteger(word) && sign != 0 ? (0 - code) & ((sign << 1) - 1) : sign | code;
}

/**
 * The code of NaN: all ones below the sign bit; in fnuz formats their single NaN; in formats without NaN the largest
 * finite value, in integers 0.
 */
function nanCode(word: u32): u32 {
  if (isInteger(word)) return 0;
  return specials(word) == Specials.Fnuz ? signBit(word) : (1 << magnitudeBits(word)) - 1;
}

/**
 * The code for values beyond the largest finite one: infinity if the format has it, else NaN, else the largest finite
 * value. `sign` is the sign bit to set.
 */
export function beyondCode(word: u32, sign: u32): u32 {
  const kind = specials(word);
  if (kind == Specials.Fnuz) return signBit(word);
  if (isInteger(word)) return signed(word, sign, sign ? maxNegative(word) : maxCode(word));
  return sign | (kind == Specials.Finite ? maxCode(word) : maxCode(word) + 1);
}

/** The exponent of the smallest binade. */
export function minExponent(word: u32): i32 {
  return <i32>hasSubnormals(word) - exponentBias(word);
}

/**
 * Whether rounding increments the magnitude. `code` is the code at or below the magnitude, and `rest` the discarded fraction in
 * units of 2^-64. Stochastic rounding adds the 32 bits of `random` to the fraction in units of 2^-32, and rounds up if the sum
 * carries.
 */
function roundsUp(rounding: i32, negative: bool, code: i32, rest: u64, random: u32): bool {
  const half: u64 = 1 << 63;
  switch (rounding) {
    case Rounding.TiesToEven:
      return rest > half || (rest == half && (code & 1) != 0);
    case Rounding.TiesToAway:
      return rest >= half;
    case Rounding.TowardPositive:
      return rest != 0 && !negative;
    case Rounding.TowardNegative:
      return rest != 0 && negative;
    case Rounding.ToOdd:
      return rest != 0 && (code & 1) == 0;
    case Rounding.Stochastic:
      return <u64>random + (rest >> 32) > 0xffffffff;
    default:
      return false;
  }
}

/** Whether a finite value beyond the largest one rounds to the largest one although the overflow policy is Nonfinite. */
function staysFinite(rounding: i32, negative: bool): bool {
  return (
    rounding == Rounding.TowardZero ||
    rounding == Rounding.ToOdd ||
    (rounding == Rounding.TowardPositive && negative) ||
    (rounding == Rounding.TowardNegative && !negative)
  );
}

/**
 * The code of an f32, passed as its bits. `random` holds 32 bits, which only Stochastic rounding reads. Unsigned formats encode
 * |x|. In a format without zero, everything below the smallest value becomes that value.
 */
export function encode(bits: u32, word: u32, rounding: i32, overflow: i32, random: u32): u32 {
  const magnitude = bits & 0x7fffffff;
  if (magnitude > F32_INFINITY) return nanCode(word);

  const negative = isSigned(word) != 0 && bits >> 31 != 0;
  const sign = negative ? signBit(word) : 0;
  const zeroSign = specials(word) >= <u32>Specials.Fnuz ? 0 : sign;
  const saturates = overflow != Overflow.Nonfinite;
  const last = negative ? maxNegative(word) : maxCode(word);
  if (magnitude == F32_INFINITY) {
    return overflow == Overflow.Saturate ? signed(word, sign, last) : beyondCode(word, sign);
  }
  if (magnitude == 0) return zeroSign;

  // |x| = significand * 2^(exponent - 23), the significand in [2^23, 2^24)
  const lift = magnitude < 0x00800000 ? clz(magnitude) - 8 : 0;
  const exponent = <i32>max(magnitude >> 23, 1) - 127 - <i32>lift;
  const significand = (magnitude < 0x00800000 ? magnitude : (magnitude & 0x007fffff) | 0x00800000) << lift;

  const m = <i32>mantissaBits(word);
  const lowest = minExponent(word);
  if (exponent < lowest && !hasSubnormals(word)) return sign;
  const binade = max(exponent, lowest);
  const shift = <u64>min(23 - m + binade - exponent, 63);
  const rest: u64 = shift === 0 ? 0 : (<u64>significand) << (64 - shift);
  let code = ((binade + exponentBias(word) - 1) << m) + <i32>(<u64>significand >> shift);
  if (roundsUp(rounding, negative, code, rest, random)) code++;

  if (code > <i32>last) {
    return saturates || staysFinite(rounding, negative) ? signed(word, sign, last) : beyondCode(word, sign);
  }
  return signed(word, code == 0 ? zeroSign : sign, code);
}

/** The exact value of a code, as f32 bits. Every NaN is 0x7fffffff. */
export function decode(code: u32, word: u32): u32 {
  const m = mantissaBits(word);
  const ones: u32 = (1 << magnitudeBits(word)) - 1;
  const negative = (code & signBit(word)) != 0;
  const magnitude = isInteger(word) && negative ? ones + 1 - (code & ones) : code & ones;
  const kind = specials(word);
  if (kind == Specials.Fnuz && negative && magnitude == 0) return F32_NAN;
  if (kind == Specials.NanOnly && magnitude == ones) return F32_NAN;
  const sign: u32 = negative ? 0x80000000 : 0;
  if (kind == Specials.Ieee && magnitude > maxCode(word)) {
    return magnitude == maxCode(word) + 1 ? sign | F32_INFINITY : F32_NAN;
  }
  const field = magnitude >> m;
  const subnormal = field == 0 && hasSubnormals(word) != 0;
  const significand = (magnitude & ((1 << m) - 1)) | (subnormal ? 0 : 1 << m);
  const exponent = (subnormal ? 1 : <i32>field) - exponentBias(word) - <i32>m;
  // 2^exponent is a normal f64, and the product is exact and representable in f32
  const value = <f64>significand * reinterpret<f64>((<u64>(exponent + 1023)) << 52);
  return sign | reinterpret<u32>(<f32>value);
}
