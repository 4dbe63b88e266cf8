/** The rounding of one number to a scalar format, and the reason for it (numerics.md §1.2). */
import type { OverflowName, RoundingName } from "../backends/ops.js";
import { codeOf, factsOf, isIntegral, lastCode, valueOfCode } from "../formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "../formats/scalar.js";
import { floorLog2 } from "./binary.js";

/** A code and its value. */
export interface CodeValue {
  /** The code. */
  readonly code: number;
  /** Its value. */
  readonly value: number;
}

/** The random bits of a stochastic rounding. */
export interface RandomBits {
  /** The random bits of the element, as an integer. */
  readonly bits: number;
  /** The number of bits: 16 in `encode`, 8 in quantizers, 32 if the caller supplied them. */
  readonly width: 8 | 16 | 32;
}

/** A rounding mode of `encode`, or the round-half-toward-zero of some element scalings. */
export type ExplainedRounding = RoundingName | "tiesToZero";

/** How a number became a code, as plain data. */
export interface RoundingExplanation {
  /** The destination format. */
  readonly format: ScalarFormat;
  /** The rounding mode. */
  readonly rounding: ExplainedRounding;
  /** The result for values beyond the largest finite one. */
  readonly overflow: OverflowName;
  /** The number before rounding. */
  readonly value: number;
  /**
   * The neighbour toward zero, with the sign of the value. Absent for NaN, infinities, and values below the smallest value of a
   * format without zero.
   */
  readonly lower?: CodeValue;
  /**
   * The neighbour away from zero. It has no code if it is the first value past the largest finite one. Absent like `lower`, and
   * for values further beyond.
   */
  readonly upper?: { readonly code?: number; readonly value: number };
  /** The position between `lower` and `upper`, in [0, 1). 0 unless both exist. */
  readonly fraction: number;
  /** Whether the value lies exactly halfway between the neighbours. */
  readonly tie: boolean;
  /** For stochastic rounding: the random bits, and the discarded fraction in the same units. */
  readonly random?: RandomBits & { readonly discarded: number };
  /** The reason for the code, in words. */
  readonly decision: string;
  /** The code. */
  readonly code: number;
  /** Its value. */
  readonly result: number;
}

/** The parameters of a rounding. */
export interface RoundingChoice {
  readonly format: ScalarFormat;
  readonly rounding: ExplainedRounding;
  readonly overflow: OverflowName;
  /** For stochastic rounding. */
  readonly random?: RandomBits;
}

/** Rounds a number to a format and says why. NaN, infinities and overflow follow numerics.md, choices 3 to 5. */
export function roundTo(value: number, choice: RoundingChoice): RoundingExplanation {
  const { format, rounding, overflow, random } = choice;
  const layout: ScalarLayout = SCALAR_FORMATS[format];
  const { maxCode, hasInfinity, hasNaN } = factsOf(format);
  const signBit = 2 ** (layout.exponentBits + layout.mantissaBits);
  const negative = layout.signed && (value < 0 || Object.is(value, -0));
  const sign = negative ? signBit : 0;
  const last = lastCode(layout, maxCode, negative);
  const largest = codeOf(layout, negative, last);
  const resultOf = (code: number, decision: string, more: Partial<RoundingExplanation> = {}) => ({
    format,
    rounding,
    overflow,
    value,
    fraction: 0,
    tie: false,
    ...more,
    decision,
    code,
    result: valueOfCode(format, code),
  });
  if (Number.isNaN(value)) {
    const code = nanCode(layout, maxCode, signBit);
    return resultOf(
      code,
      layout.specials === "finite"
        ? "NaN, which the format lacks: the largest value"
        : hasNaN
          ? "NaN"
          : "NaN, which the format lacks: zero",
    );
  }
  const special = hasNaN ? beyondCode(layout, maxCode, sign, signBit) : largest;
  const beyond = overflow === "nonfinite" ? special : largest;
  const words = (code: number): string =>
    code === largest ? "saturates" : `becomes ${hasInfinity ? "infinity" : "NaN"}`;
  const overflows = words(beyond);
  if (!Number.isFinite(value)) {
    const code = overflow === "saturate" ? largest : special;
    return resultOf(code, `infinity: ${words(code)}`);
  }
  const magnitude = Math.abs(value);
  if (!layout.subnormals && magnitude < valueOfCode(format, 0))
    return resultOf(sign, "below the smallest value, which it becomes");
  const { code: cut, fraction } = locate(magnitude, layout);
  const direction = directionOf(rounding, negative);
  const codes = neighbours(layout, format, cut, last, negative);
  if (cut > last) {
    const stays = direction === "down" || direction === "odd";
    return resultOf(
      stays ? largest : beyond,
      `beyond the largest value: ${stays ? "becomes it" : overflows}`,
      {
        lower: codes.lower,
      },
    );
  }
  const discarded = random && Math.floor(fraction * 2 ** random.width);
  const more = {
    ...codes,
    fraction,
    tie: fraction === 0.5,
    ...(random && discarded !== undefined ? { random: { ...random, discarded } } : {}),
  };
  const [isUp, why] = decide(direction, cut, fraction, random, discarded ?? 0);
  const rounded = cut + (isUp ? 1 : 0);
  if (rounded > last) {
    if (direction === "down" || direction === "odd")
      return resultOf(largest, `${why}, so it stays at the largest value`, more);
    return resultOf(beyond, `${why}, beyond the largest value: ${overflows}`, more);
  }
  return resultOf(codeOf(layout, negative, rounded), why, more);
}

function nanCode({ specials }: ScalarLayout, maxCode: number, signBit: number): number {
  if (specials === "finite") return maxCode;
  if (isIntegral(specials)) return 0;
  return specials === "fnuz" ? signBit : signBit - 1;
}

function beyondCode({ specials }: ScalarLayout, maxCode: number, sign: number, signBit: number): number {
  if (specials === "fnuz") return signBit;
  return sign + (specials === "ieee" ? maxCode + 1 : signBit - 1);
}

/** The last code whose value is at most a, under an unbounded exponent range, and a's position between it and the next code. */
function locate(a: number, layout: ScalarLayout): { readonly code: number; readonly fraction: number } {
  const { mantissaBits, bias, subnormals } = layout;
  const lowest = (subnormals ? 1 : 0) - bias;
  if (a === 0) return { code: 0, fraction: 0 };
  const exponent = Math.max(floorLog2(a), lowest);
  const units = a / 2 ** (exponent - mantissaBits);
  const code = Math.floor(units);
  const binades = exponent - lowest - (subnormals ? 0 : 1);
  return { code: code + binades * 2 ** mantissaBits, fraction: units - code };
}

function magnitudeOf(code: number, { mantissaBits, bias, subnormals }: ScalarLayout): number {
  const [field, fraction] = [Math.floor(code / 2 ** mantissaBits), code % 2 ** mantissaBits];
  if (field === 0 && subnormals) return fraction * 2 ** (1 - bias - mantissaBits);
  return (2 ** mantissaBits + fraction) * 2 ** (field - bias - mantissaBits);
}

function neighbours(
  layout: ScalarLayout,
  format: ScalarFormat,
  cut: number,
  last: number,
  isNegative: boolean,
): Required<Pick<RoundingExplanation, "lower" | "upper">> {
  const at = Math.min(cut, last);
  const signed = (code: number): number => codeOf(layout, isNegative, code);
  const lower = { code: signed(at), value: valueOfCode(format, signed(at)) };
  const next = magnitudeOf(at + 1, layout) * (isNegative ? -1 : 1);
  return { lower, upper: at < last ? { code: signed(at + 1), value: next } : { value: next } };
}

type Direction = "even" | "away" | "zero" | "down" | "up" | "odd" | "random";

function directionOf(rounding: ExplainedRounding, negative: boolean): Direction {
  const fixed = {
    tiesToEven: "even",
    tiesToAway: "away",
    tiesToZero: "zero",
    towardZero: "down",
    towardPositive: negative ? "down" : "up",
    towardNegative: negative ? "up" : "down",
    toOdd: "odd",
    stochastic: "random",
  } as const satisfies Record<ExplainedRounding, Direction>;
  return fixed[rounding];
}

/** Whether the magnitude rounds up, and why. */
function decide(
  direction: Direction,
  cut: number,
  fraction: number,
  random: RandomBits | undefined,
  discarded: number,
): readonly [isUp: boolean, why: string] {
  if (fraction === 0) return [false, "exact"];
  switch (direction) {
    case "even":
      if (fraction !== 0.5) return [fraction > 0.5, fraction > 0.5 ? "above the middle" : "below the middle"];
      return cut % 2 === 1 ? [true, "tie: up to the even code"] : [false, "tie: down to the even code"];
    case "zero":
      if (fraction === 0.5) return [false, "tie: toward zero"];
      return [fraction > 0.5, fraction > 0.5 ? "above the middle" : "below the middle"];
    case "away":
      return fraction >= 0.5
        ? [true, fraction === 0.5 ? "tie: away from zero" : "above the middle"]
        : [false, "below the middle"];
    case "down":
      return [false, "toward zero"];
    case "up":
      return [true, "away from zero"];
    case "odd":
      return cut % 2 === 0 ? [true, "up to the odd code"] : [false, "down to the odd code"];
    case "random":
      return randomly(random ?? { bits: 0, width: 16 }, discarded);
  }
}

/**
 * Stochastic rounding (choice 6). Quantizers round up if their 8-bit sum carries, `encode` if the random bits are below the
 * fraction, and both if the 32-bit sum carries when the caller supplied the bits.
 */
function randomly({ bits, width }: RandomBits, discarded: number): readonly [boolean, string] {
  if (width === 16) {
    const isUp = bits < discarded;
    return [isUp, `random ${bits} is ${isUp ? "below" : "not below"} the fraction ${discarded}`];
  }
  const isUp = bits + discarded >= 2 ** width;
  return [
    isUp,
    `random ${bits} + fraction ${discarded} ${isUp ? "carries" : "does not carry"} beyond ${width} bits`,
  ];
}
