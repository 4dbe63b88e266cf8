/** The ways in which a number can become a code: roundings, zeros and overflows, including some that no dialect uses. */
import { codeOf, factsOf, isIntegral, lastCode, valueOfCode } from "../../formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "../../formats/scalar.js";

/** How a value between two codes is rounded. `stochastic` allows either neighbour. */
export type ElementRounding =
  | "tiesToEven"
  | "tiesToAway"
  | "tiesToZero"
  | "towardZero"
  | "awayFromZero"
  | "towardNegative"
  | "towardPositive"
  | "stochastic";

/**
 * How zeros are encoded. `kept`: with the sign of the value. `addsZero`: -0 becomes +0 before rounding. `plusZero`: every value
 * that rounds to zero becomes +0. `minusZero`: +0 becomes -0.
 */
export type ElementZero = "kept" | "addsZero" | "plusZero" | "minusZero";

/** The result for a value beyond the largest finite value: the largest finite value, or NaN or infinity. */
export type ElementOverflow = "saturate" | "nonfinite";

/** How a value becomes a code. */
export interface ElementRule {
  readonly rounding: ElementRounding;
  readonly zero: ElementZero;
  readonly overflow: ElementOverflow;
}

/**
 * Whether a magnitude between code c and c+1 rounds up. `below` and `above` are its distances to the two; `isOdd` is the parity
 * of c.
 */
type TakesUpper = (below: number, above: number, isOdd: boolean, isNegative: boolean) => boolean;

const TAKES_UPPER: Readonly<Record<Exclude<ElementRounding, "stochastic">, TakesUpper>> = {
  tiesToEven: (below, above, isOdd) => below > above || (below === above && isOdd),
  tiesToAway: (below, above) => below >= above,
  tiesToZero: (below, above) => below > above,
  towardZero: () => false,
  awayFromZero: (below) => below > 0,
  towardNegative: (below, _, __, isNegative) => below > 0 && isNegative,
  towardPositive: (below, _, __, isNegative) => below > 0 && !isNegative,
};

export const ELEMENT_ROUNDINGS = [...Object.keys(TAKES_UPPER), "stochastic"] as readonly ElementRounding[];
export const ELEMENT_ZEROS = ["kept", "addsZero", "plusZero", "minusZero"] as const;
export const ELEMENT_OVERFLOWS = ["saturate", "nonfinite"] as const;

/** The magnitudes of all finite numbers of a sign, in ascending order. */
function magnitudesOf(format: ScalarFormat, isNegative: boolean): Float64Array {
  const cached = MAGNITUDES[Number(isNegative)]?.get(format);
  if (cached) return cached;
  const layout: ScalarLayout = SCALAR_FORMATS[format];
  const last = lastCode(layout, factsOf(format).maxCode, isNegative);
  const magnitudes = Float64Array.from({ length: last + 1 }, (_, code) =>
    Math.abs(valueOfCode(format, code > 0 ? codeOf(layout, isNegative, code) : 0)),
  );
  MAGNITUDES[Number(isNegative)]?.set(format, magnitudes);
  return magnitudes;
}

const MAGNITUDES = [new Map<ScalarFormat, Float64Array>(), new Map<ScalarFormat, Float64Array>()];

/** The largest code whose value is at most `magnitude`. */
function codeBelow(values: Float64Array, magnitude: number): number {
  let [low, high] = [0, values.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((values[middle] as number) <= magnitude) low = middle;
    else high = middle;
  }
  return low;
}

/** Whether a rule rounds a finite value to `code`. */
export function becomes(format: ScalarFormat, rule: ElementRule, value: number, code: number): boolean {
  const layout: ScalarLayout = SCALAR_FORMATS[format];
  const { bits, maxCode, hasInfinity, hasNaN } = factsOf(format);
  const signBit = 2 ** (bits - 1);
  const magnitude = Math.abs(value);
  const isNegative = value < 0 || Object.is(value, -0);
  const values = magnitudesOf(format, isNegative);
  const last = values.length - 1;
  const lower = codeBelow(values, magnitude);
  const zero = !isIntegral(layout.specials) && zeroSign(rule.zero, value, isNegative) ? signBit : 0;
  const isCode = (each: number): boolean => code === (each === 0 ? zero : codeOf(layout, isNegative, each));
  if (rule.rounding === "stochastic" && lower < last && magnitude > (values[lower] as number))
    return isCode(lower) || isCode(lower + 1);
  const rounding = rule.rounding === "stochastic" ? "tiesToEven" : rule.rounding;
  const isBeyond = lower === last && isAbove(values, magnitude, rounding, isNegative);
  if (isBeyond && rule.overflow === "nonfinite" && (hasInfinity || hasNaN)) return code % signBit > maxCode;
  return isCode(
    lower === last ? last : lower + Number(steps(values, magnitude, lower, rounding, isNegative)),
  );
}

function steps(
  values: Float64Array,
  magnitude: number,
  lower: number,
  rounding: Exclude<ElementRounding, "stochastic">,
  isNegative: boolean,
): boolean {
  const [below, above] = [magnitude - (values[lower] as number), (values[lower + 1] as number) - magnitude];
  return TAKES_UPPER[rounding](below, above, lower % 2 === 1, isNegative);
}

/** Whether a magnitude that is at least the largest finite one rounds past it, toward the next value of an unbounded format. */
function isAbove(
  values: Float64Array,
  magnitude: number,
  rounding: Exclude<ElementRounding, "stochastic">,
  isNegative: boolean,
): boolean {
  const last = values.length - 1;
  const largest = values[last] as number;
  const next = largest + (largest - (values[last - 1] as number));
  if (magnitude >= next) return true;
  return TAKES_UPPER[rounding](magnitude - largest, next - magnitude, last % 2 === 1, isNegative);
}

function zeroSign(zero: ElementZero, value: number, isNegative: boolean): boolean {
  if (zero === "plusZero") return false;
  if (zero === "addsZero") return isNegative && value !== 0;
  return isNegative || (zero === "minusZero" && value === 0);
}
