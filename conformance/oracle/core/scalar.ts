/** Encoding and decoding of any scalar layout, by exact comparison with the values of all codes. */
import type { ScalarLayout } from "../../../src/formats/scalar.js";
import {
  compare,
  divide,
  floorLog2,
  fromBits,
  magnitude,
  minus,
  ofNumber,
  plus,
  powerOfTwo,
  type Rational,
  rational,
  times,
  toNumber,
  truncate,
} from "./rational.js";

export type RoundingName =
  | "tiesToEven"
  | "tiesToAway"
  | "towardZero"
  | "towardPositive"
  | "towardNegative"
  | "toOdd"
  | "stochastic";

export type OverflowName = "saturate" | "nonfinite" | "propagate";

/** Inputs have `code` from the bit pattern `first` (an unsigned integer) up to the next step. */
export interface Step {
  readonly first: number;
  readonly code: number;
}

const ZERO = rational(0n);
const HALF = rational(1n, 2n);
const F32_LAYOUT: ScalarLayout = {
  exponentBits: 8,
  mantissaBits: 23,
  bias: 127,
  signed: true,
  subnormals: true,
  specials: "ieee",
};
const F32_INFINITY = 0x7f800000;
const F32_SIGN = 0x80000000;

/** The sign bit of a code. For an unsigned layout: the number of codes. */
function signBit(layout: ScalarLayout): number {
  return 2 ** (layout.exponentBits + layout.mantissaBits);
}

/** The largest finite code, sign clear. */
export function maxCode(layout: ScalarLayout): number {
  const lastCode = signBit(layout) - 1;
  if (layout.specials === "nanOnly") return lastCode - 1;
  return layout.specials === "ieee" ? lastCode - 2 ** layout.mantissaBits : lastCode;
}

/** Whether negative codes are 2^bits minus the code of the magnitude. */
function isInteger({ specials }: ScalarLayout): boolean {
  return specials === "integer" || specials === "symmetric";
}

/** Adds the sign to the code of a magnitude. */
function withSign(layout: ScalarLayout, negative: boolean, code: number): number {
  if (!negative || (code === 0 && layout.specials === "fnuz")) return code;
  return isInteger(layout) ? (2 * signBit(layout) - code) % (2 * signBit(layout)) : signBit(layout) + code;
}

/** The code of NaN input of either sign. */
function nanCode(layout: ScalarLayout): number {
  if (isInteger(layout)) return 0;
  return layout.specials === "fnuz" ? signBit(layout) : signBit(layout) - 1;
}

/** The code of a value beyond the largest finite one, with overflow "nonfinite". */
function beyondCode(layout: ScalarLayout, sign: number): number {
  if (layout.specials === "fnuz") return nanCode(layout);
  if (layout.specials === "nanOnly") return sign + nanCode(layout);
  return sign + maxCode(layout) + (layout.specials === "ieee" ? 1 : 0);
}

/** The exponent of the smallest normal numbers. */
function minExponent(layout: ScalarLayout): number {
  return layout.subnormals ? 1 - layout.bias : -layout.bias;
}

/** The value of a code without its sign. Every exponent field counts as normal, and exponents are unbounded. */
function codeMagnitude(code: number, layout: ScalarLayout): Rational {
  const binade = 2 ** layout.mantissaBits;
  const field = Math.floor(code / binade);
  const mantissa = code % binade;
  const subnormal = field === 0 && layout.subnormals;
  const significand = rational(BigInt(subnormal ? mantissa : binade + mantissa));
  return times(significand, powerOfTwo((subnormal ? 1 : field) - layout.bias - layout.mantissaBits));
}

/**
 * The last code whose value is not above a, under an unbounded exponent range, and the position of a between this value and the
 * next, in [0, 1). Below the smallest value of a layout that lacks zero: code 0, position 0.
 */
function locate(a: Rational, layout: ScalarLayout): { code: number; fraction: Rational } {
  const lowest = minExponent(layout);
  if (a.num === 0n) return { code: 0, fraction: ZERO };
  if (!layout.subnormals && compare(a, powerOfTwo(lowest)) < 0) return { code: 0, fraction: ZERO };
  const exponent = Math.max(floorLog2(a), lowest);
  const units = divide(a, powerOfTwo(exponent - layout.mantissaBits));
  const integerPart = truncate(units);
  const binades = exponent - lowest - (layout.subnormals ? 0 : 1);
  return {
    code: Number(integerPart) + binades * 2 ** layout.mantissaBits,
    fraction: minus(units, rational(integerPart)),
  };
}

/** How a rounding mode changes the magnitude, once the sign is known. */
type Direction = "even" | "away" | "down" | "up" | "odd" | "random";

function direction(rounding: RoundingName, negative: boolean): Direction {
  switch (rounding) {
    case "tiesToEven":
      return "even";
    case "tiesToAway":
      return "away";
    case "towardZero":
      return "down";
    case "towardPositive":
      return negative ? "down" : "up";
    case "towardNegative":
      return negative ? "up" : "down";
    case "toOdd":
      return "odd";
    case "stochastic":
      return "random";
  }
}

function roundsUp(code: number, fraction: Rational, toward: Direction, random16: number): boolean {
  const half = compare(fraction, HALF);
  switch (toward) {
    case "even":
      return half > 0 || (half === 0 && code % 2 === 1);
    case "away":
      return half >= 0;
    case "down":
      return false;
    case "up":
      return fraction.num > 0n;
    case "odd":
      return fraction.num > 0n && code % 2 === 0;
    case "random":
      return random16 < Number(truncate(times(fraction, powerOfTwo(16))));
  }
}

/**
 * The code of an f32 bit pattern (numerics.md choices 2 to 6). Only stochastic rounding reads `random16`. An "ieee"
 * layout must have a mantissa bit, a "fnuz" layout a sign and subnormals.
 */
export function encode(
  bits: number,
  layout: ScalarLayout,
  rounding: RoundingName,
  overflow: OverflowName,
  random16 = 0,
): number {
  const x = fromBits(bits);
  if (Number.isNaN(x)) return layout.specials === "finite" ? maxCode(layout) : nanCode(layout);
  const negative = layout.signed && bits >= F32_SIGN;
  if (!Number.isFinite(x)) {
    const policy = overflow === "propagate" ? "nonfinite" : overflow;
    return signedCode(Number.POSITIVE_INFINITY, negative, layout, policy);
  }

  const toward = direction(rounding, negative);
  const { code, fraction } = locate(magnitude(ofNumber(x)), layout);
  const roundedCode = roundsUp(code, fraction, toward, random16) ? code + 1 : code;
  const stays = toward === "down" || toward === "odd";
  return signedCode(roundedCode, negative, layout, stays ? "saturate" : overflow);
}

/** Adds the sign to a magnitude's code, which may lie past the largest one. */
function signedCode(
  magnitudeCode: number,
  negative: boolean,
  layout: ScalarLayout,
  overflow: OverflowName,
): number {
  const last = maxCode(layout) + (negative && layout.specials === "integer" ? 1 : 0);
  if (magnitudeCode <= last) return withSign(layout, negative, magnitudeCode);
  if (overflow !== "nonfinite" || isInteger(layout)) return withSign(layout, negative, last);
  return beyondCode(layout, negative ? signBit(layout) : 0);
}

/**
 * The code of an f32 bit pattern under the quantizers' 8-bit stochastic rounding: the magnitude rounds up if `random8` plus the
 * upper 8 dropped bits carries. Saturates. For layouts with a minus zero.
 */
export function encodeByCarry(bits: number, layout: ScalarLayout, random8: number): number {
  const truncatedCode = encode(bits, layout, "towardZero", "saturate");
  const x = fromBits(bits);
  if (!Number.isFinite(x) || truncatedCode % signBit(layout) === maxCode(layout)) return truncatedCode;
  const { fraction } = locate(magnitude(ofNumber(x)), layout);
  const remainder = Number(truncate(times(fraction, powerOfTwo(8))));
  return remainder + random8 >= 256 ? truncatedCode + 1 : truncatedCode;
}

/**
 * The code of an f32 bit pattern under stochastic rounding with a 32-bit word from the caller (numerics.md choice 6): the
 * magnitude rounds up if the word plus the dropped fraction, truncated to a multiple of 2^-32, is at least 1.
 */
export function encodeByWord(
  bits: number,
  layout: ScalarLayout,
  overflow: OverflowName,
  word: number,
): number {
  const x = fromBits(bits);
  if (!Number.isFinite(x)) return encode(bits, layout, "stochastic", overflow);
  const negative = layout.signed && bits >= F32_SIGN;
  const { code, fraction } = locate(magnitude(ofNumber(x)), layout);
  const carries = truncate(times(fraction, powerOfTwo(32))) + BigInt(word) >= 1n << 32n;
  return signedCode(carries ? code + 1 : code, negative, layout, overflow);
}

/** The exact value of a code. Layouts may have NaN, infinities and -0. */
export function decode(code: number, layout: ScalarLayout): number {
  const negative = layout.signed && code >= signBit(layout);
  if (isInteger(layout)) {
    const steps = BigInt(negative ? code - 2 * signBit(layout) : code);
    return toNumber(times(rational(steps), powerOfTwo(1 - layout.bias - layout.mantissaBits)));
  }
  const bare = negative ? code - signBit(layout) : code;
  if (layout.specials === "fnuz" && negative && bare === 0) return Number.NaN;
  if (bare > maxCode(layout)) {
    const infinite = layout.specials === "ieee" && bare === maxCode(layout) + 1;
    if (!infinite) return Number.NaN;
    return negative ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  }
  const value = toNumber(codeMagnitude(bare, layout));
  return negative ? -value : value;
}

/** The threshold at which rounding changes from `code` to the next code, and whether the threshold itself rounds up. */
function decision(
  code: number,
  toward: Direction,
  layout: ScalarLayout,
): { at: Rational; included: boolean } {
  const magnitude = codeMagnitude(code, layout);
  const next = codeMagnitude(code + 1, layout);
  const middle = times(plus(magnitude, next), HALF);
  const odd = code % 2 === 1;
  switch (toward) {
    case "even":
      return { at: middle, included: odd };
    case "away":
      return { at: middle, included: true };
    case "down":
      return { at: next, included: true };
    case "up":
      return { at: magnitude, included: false };
    case "odd":
      return odd ? { at: next, included: true } : { at: magnitude, included: false };
    case "random":
      throw new RangeError("steps: stochastic rounding is not a function of its input alone");
  }
}

/** The first f32 bit pattern at or past a threshold. */
function firstPattern(point: { at: Rational; included: boolean }): number {
  const { code, fraction } = locate(point.at, F32_LAYOUT);
  return fraction.num === 0n && point.included ? code : code + 1;
}

/** The steps for one sign, from plus or minus zero to its last NaN; `first` counts from that zero. */
function halfSteps(
  layout: ScalarLayout,
  rounding: RoundingName,
  overflow: OverflowName,
  high: boolean,
): Step[] {
  const negative = layout.signed && high;
  const max = maxCode(layout) + (negative && layout.specials === "integer" ? 1 : 0);
  const toward = direction(rounding, negative);
  const largest = withSign(layout, negative, max);
  const special = isInteger(layout) ? largest : beyondCode(layout, negative ? signBit(layout) : 0);
  const overflowCode = overflow === "nonfinite" ? special : largest;
  const result: Step[] = [{ first: 0, code: withSign(layout, negative, 0) }];
  for (let code = 0; code <= max; code++) {
    if (code === max && (toward === "down" || toward === "odd")) break;
    const first = firstPattern(decision(code, toward, layout));
    if (first >= F32_INFINITY) break;
    result.push({ first, code: code === max ? overflowCode : withSign(layout, negative, code + 1) });
  }
  const nan = layout.specials === "finite" ? maxCode(layout) : nanCode(layout);
  result.push(
    { first: F32_INFINITY, code: overflow === "saturate" ? largest : special },
    { first: F32_INFINITY + 1, code: nan },
  );
  return result;
}

/**
 * All of `encode` as a step function over the bit patterns 0 to 2^32 - 1, computed from the exact rounding thresholds without
 * calling `encode`. Every step changes the code. Throws RangeError for stochastic rounding.
 */
export function steps(layout: ScalarLayout, rounding: RoundingName, overflow: OverflowName): Step[] {
  const positive = halfSteps(layout, rounding, overflow, false);
  const negative = halfSteps(layout, rounding, overflow, true);
  const thresholds = [...positive, ...negative.map(({ first, code }) => ({ first: first + F32_SIGN, code }))];
  const finalSteps = thresholds.filter((step, i) => thresholds[i + 1]?.first !== step.first);
  return finalSteps.filter((step, i) => finalSteps[i - 1]?.code !== step.code);
}
