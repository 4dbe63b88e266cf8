/**
 * The computation of scales from amaxes. Scales and amaxes are f32 values; codes of scales belong to the scale's
 * format.
 */
import { SCALAR_FORMATS, type ScalarLayout } from "../../../src/formats/scalar.js";
import {
  add,
  bitsOf,
  compare,
  div,
  FLT_MAX,
  floorLog2,
  mul,
  ofNumber,
  over,
  plus,
  powerOfTwo,
  type Rational,
  rational,
  sub,
  times,
  truncate,
} from "./rational.js";
import { decode, encode, maxCode } from "./scalar.js";

const { e2m1, e4m3, e8m0 } = SCALAR_FORMATS;

/** The stored scale of a block, and the factor by which its elements are multiplied before encoding. */
export interface BlockScale {
  readonly stored: number;
  readonly multiplier: number;
}

/** The largest |x|, NaN ignored; 0 for an empty block. */
export function amaxOf(values: Iterable<number>): number {
  let amax = 0;
  for (const value of values) if (Math.abs(value) > amax) amax = Math.abs(value);
  return amax;
}

/** The largest finite value of a format, such as 448 or 57344. */
export function largest(layout: ScalarLayout): number {
  return decode(maxCode(layout), layout);
}

function encodeSaturating(value: number, layout: ScalarLayout): number {
  return encode(bitsOf(value), layout, "tiesToEven", "saturate");
}

export interface AmaxScaleOptions {
  readonly max: number;
  readonly pow2: boolean;
  readonly epsilon: number;
  /** The scale that replaces one that overflows. */
  readonly overflow: number;
}

/** The multiplier max / amax (numerics.md §2.3); 1 for an amax of 0, infinity or NaN. */
export function scaleFromAmax(amax: number, { max, pow2, epsilon, overflow }: AmaxScaleOptions): number {
  const floored = amax < epsilon ? epsilon : amax;
  if (!Number.isFinite(floored) || floored === 0) return 1;
  const quotient = div(max, floored);
  const scale = Number.isFinite(quotient) ? quotient : overflow;
  if (!pow2) return scale;
  return decode(Math.floor(bitsOf(scale) / 2 ** 23), e8m0);
}

/** The f32 scale that is stored for a multiplier: its reciprocal. */
export function f32Scale(multiplier: number): BlockScale {
  return { stored: bitsOf(div(1, multiplier)), multiplier };
}

/** The multiplier 2^(127 - code) (numerics.md §1.4); NaN for code 255. */
export function e8m0Reciprocal(code: number): number {
  return div(1, decode(code, e8m0));
}

/** The scale of MXFP8 (numerics.md §4.1): amax * fl(1/max), rounded up to a power of two. */
function e8m0Up(amax: number, element: ScalarLayout): BlockScale {
  const product = mul(amax, div(1, largest(element)));
  const stored = encode(bitsOf(product), e8m0, "towardPositive", "saturate");
  return { stored, multiplier: e8m0Reciprocal(stored) };
}

/** As `e8m0Up`, but of the quotient amax / max, rounded to f32. */
function e8m0UpQuotient(amax: number, element: ScalarLayout): BlockScale {
  const stored = encode(bitsOf(div(amax, largest(element))), e8m0, "towardPositive", "saturate");
  return { stored, multiplier: e8m0Reciprocal(stored) };
}

type E8m0Rule = (amax: number, element: ScalarLayout) => BlockScale;

/**
 * The rule by the exponent of amax, before that of the element's largest value is subtracted: the difference is clamped to -127
 * to 127 (OCP MX 1.0 §6.3 for the floor). An infinite amax gives code 254.
 */
function byExponent(exponentOf: (amax: Rational, element: ScalarLayout) => number): E8m0Rule {
  const codeOf = (amax: number, element: ScalarLayout): number => {
    if (amax === 0) return 0;
    if (amax === Number.POSITIVE_INFINITY) return 254;
    const exponent = exponentOf(ofNumber(amax), element) - floorLog2(ofNumber(largest(element)));
    return Math.min(Math.max(exponent, -127), 127) + 127;
  };
  return (amax, element) => {
    const stored = codeOf(amax, element);
    return { stored, multiplier: e8m0Reciprocal(stored) };
  };
}

function ceilLog2(a: Rational): number {
  const floor = floorLog2(a);
  return compare(a, powerOfTwo(floor)) === 0 ? floor : floor + 1;
}

/** The number rounded to `bits` mantissa bits, ties away from zero. */
function roundedTo(a: Rational, bits: number): Rational {
  const ulp = powerOfTwo(floorLog2(a) - bits);
  return times(rational(truncate(plus(over(a, ulp), rational(1n, 2n)))), ulp);
}

/** The rules whose scales are e8m0, by name (numerics.md §4.1). */
export const E8M0_RULES = {
  e8m0Up,
  e8m0UpQuotient,
  e8m0Floor: byExponent(floorLog2),
  e8m0Ceil: byExponent(ceilLog2),
  e8m0Even: byExponent((amax, { mantissaBits }) => floorLog2(roundedTo(amax, mantissaBits))),
  e8m0EvenShort: byExponent((amax) => floorLog2(roundedTo(amax, 1))),
} as const satisfies Readonly<Record<string, E8m0Rule>>;

/** S_enc of a tensor with amax G (numerics.md §5.1). `e4m3Max` is 448, or 256 as an option of 4over6. */
export function globalEncodeScale(g: number, e4m3Max = 448): number {
  const scale = Math.min(div(6 * e4m3Max, g), FLT_MAX);
  return g === 0 || scale === 0 ? 1 : scale;
}

function elementMultiplier(code: number, encodeScale: number): number {
  return Math.min(div(1, mul(decode(code, e4m3), div(1, encodeScale))), FLT_MAX);
}

/** The scale of a block with amax b in a tensor with amax G (numerics.md §5.1). */
export function twoLevel(b: number, g: number): BlockScale {
  const encodeScale = globalEncodeScale(g);
  const raw = mul(b, mul(encodeScale, div(1, 6)));
  const stored = encodeSaturating(Math.min(raw, FLT_MAX), e4m3);
  return { stored, multiplier: elementMultiplier(stored, encodeScale) };
}

export type ErrorMetric = "mae" | "mse";

export interface FourOverSixOptions {
  readonly g: number;
  readonly e4m3Max: 256 | 448;
  readonly metric: ErrorMetric;
}

/**
 * The scale of 4over6 (numerics.md §5.8): maps the block's amax to 6 or to 4, whichever has the smaller error; a tie
 * goes to 6.
 */
export function fourOverSix(lines: readonly (readonly number[])[], options: FourOverSixOptions): BlockScale {
  const encodeScale = globalEncodeScale(options.g, options.e4m3Max);
  const base = mul(div(amaxOf(lines.flat()), 6), encodeScale);
  const candidate = (target: number): BlockScale => {
    const stored = encodeSaturating(Math.min(target, 448), e4m3);
    return { stored, multiplier: elementMultiplier(stored, encodeScale) };
  };
  const six = candidate(base);
  const four = candidate(mul(base, 1.5));
  return blockError(lines, four, options) < blockError(lines, six, options) ? four : six;
}

/**
 * The sum of errors of a block. Each line is summed element by element. The sums of the 16 lines of a 16x16 tile are
 * then added as a tree, with distances 8, 4, 2, 1.
 */
function blockError(
  lines: readonly (readonly number[])[],
  scale: BlockScale,
  options: FourOverSixOptions,
): number {
  const sums = lines.map((line) => line.reduce((sum, x) => add(sum, elementError(x, scale, options)), 0));
  if (sums.length === 1) return sums[0] ?? 0;
  for (let stride = 8; stride >= 1; stride /= 2) {
    for (let i = 0; i < stride; i++) sums[i] = add(sums[i] ?? 0, sums[i + stride] ?? 0);
  }
  return sums[0] ?? 0;
}

function elementError(x: number, scale: BlockScale, { g, e4m3Max, metric }: FourOverSixOptions): number {
  const q = decode(encodeSaturating(mul(x, scale.multiplier), e2m1), e2m1);
  const restored = div(mul(mul(q, decode(scale.stored, e4m3)), g), 6 * e4m3Max);
  const difference = sub(restored, x);
  return metric === "mae" ? Math.abs(difference) : mul(difference, difference);
}
