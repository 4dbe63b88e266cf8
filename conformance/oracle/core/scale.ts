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
  divide,
  FLT_MAX,
  floorLog2,
  mul,
  ofNumber,
  plus,
  powerOfTwo,
  type Rational,
  rational,
  sub,
  times,
  truncate,
} from "./rational.js";
import { decode, encode, maxCode } from "./scalar.js";

const { e2m1, e4m3, e8m0, ue5m3 } = SCALAR_FORMATS;

/** The stored scale of a block, and the factor by which its elements are multiplied before encoding. */
export interface BlockScale {
  readonly stored: number;
  readonly multiplier: number;
  /** The divisor of elements. Default: the stored f32 scale. */
  readonly divisor?: number;
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

/** Half the distance from the smallest to the largest value of an integer format, such as 127.5. */
export function halfRange(layout: ScalarLayout): number {
  const minimum = decode(encode(bitsOf(-FLT_MAX), layout, "tiesToEven", "saturate"), layout);
  return (largest(layout) - minimum) / 2;
}

function encodeSaturating(value: number, layout: ScalarLayout): number {
  return encode(bitsOf(value), layout, "tiesToEven", "saturate");
}

export interface AmaxScaleOptions {
  readonly max: number;
  readonly pow2: boolean;
  readonly epsilon: number;
  /** The scale to use if the quotient overflows. */
  readonly overflow: number;
}

/** The multiplier max / amax (numerics.md §2.3); 1 for an amax of 0, infinity or NaN. */
export function scaleFromAmax(amax: number, { max, pow2, epsilon, overflow }: AmaxScaleOptions): number {
  const amaxOrEpsilon = Math.max(amax, Math.fround(epsilon));
  if (!Number.isFinite(amaxOrEpsilon) || amaxOrEpsilon === 0) return 1;
  const quotient = div(max, amaxOrEpsilon);
  const scale = Number.isFinite(quotient) ? quotient : overflow;
  if (!pow2) return scale;
  return decode(Math.floor(bitsOf(scale) / 2 ** 23), e8m0);
}

/** The stored f32 scale of a multiplier: its reciprocal. */
export function f32Scale(multiplier: number): BlockScale {
  return { stored: bitsOf(div(1, multiplier)), multiplier };
}

/** The input types. */
export type WideName = "f32" | "bf16" | "f16";

/** Rounds a number to an input type. */
export function roundedIn(value: number, type: WideName): number {
  if (type === "f32") return value;
  const layout = SCALAR_FORMATS[type];
  return decode(encode(bitsOf(value), layout, "tiesToEven", "nonfinite"), layout);
}

/** The smallest power of two that is at least `scale`, from 2^-126 to 2^127. */
function powerFrom(scale: number): number {
  if (!Number.isFinite(scale)) return 2 ** 127;
  if (scale === 0) return 2 ** -126;
  return 2 ** Math.min(Math.max(ceilLog2(ofNumber(scale)), -126), 127);
}

/** The distance from 1 to the next number of each input type. */
const EPSILONS: Readonly<Record<WideName, number>> = { f32: 2 ** -23, bf16: 2 ** -7, f16: 2 ** -10 };

/** The multiplier of f32Reciprocal: (1 / amax) * max, 1 for an amax of 0 (numerics.md §3.6). */
export function reciprocalScale(
  amax: number,
  { max, epsilon, type }: { readonly max: number; readonly epsilon: number; readonly type: WideName },
): number {
  const amaxOrEpsilon = Math.max(amax, roundedIn(Math.fround(epsilon), type));
  return amaxOrEpsilon === 0 ? 1 : mul(div(1, amaxOrEpsilon), max);
}

/** The rules whose stored scale is amax / max, by name: each adjusts the quotient (numerics.md §3.6). */
export const QUOTIENTS = {
  f32Quotient: (scale: number) => scale,
  f32QuotientTyped: roundedIn,
  f32QuotientUp: powerFrom,
  f32QuotientRange: (scale: number, type: WideName) => roundedIn(scale, type) || EPSILONS[type],
  f32QuotientLeast: (scale: number, type: WideName) => roundedIn(scale, type) || EPSILONS[type],
} as const satisfies Readonly<Record<string, (scale: number, type: WideName) => number>>;

/** The stored scale amax / max. An amax below `epsilon` counts as `epsilon`. */
export function quotient(
  rule: keyof typeof QUOTIENTS,
  amax: number,
  { max, epsilon, type }: { readonly max: number; readonly epsilon: number; readonly type: WideName },
): number {
  return QUOTIENTS[rule](div(Math.max(amax, Math.fround(epsilon)), max), type);
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

/** As `e8m0Up`, but from the quotient amax / max, rounded to f32. */
function e8m0UpQuotient(amax: number, element: ScalarLayout): BlockScale {
  const stored = encode(bitsOf(div(amax, largest(element))), e8m0, "towardPositive", "saturate");
  return { stored, multiplier: e8m0Reciprocal(stored) };
}

/**
 * ceil(log2 p) with the logarithm rounded to f32. For p = 2^k * q with q in [1, 2), log2 p rounds to k if log2 q is at most half
 * the distance from k to the next f32, which is h = 2^-t. So q is compared with 2^h, the 2^t-th root of 2.
 */
function ceilOfLog2(p: Rational): number {
  const k = floorLog2(p);
  const q = divide(p, powerOfTwo(k));
  if (compare(q, rational(1n)) === 0 || k === 0) return compare(q, rational(1n)) === 0 ? k : k + 1;
  const binade = floorLog2(rational(BigInt(Math.abs(k))));
  const isPower = Math.abs(k) === 2 ** binade;
  const t = 24 - binade + (k < 0 && isPower ? 1 : 0);
  const lowerBound = rational(rootOfTwo(t), SCALE);
  if (compare(q, lowerBound) <= 0) return k;
  if (compare(q, plus(lowerBound, rational(1n, 2n ** 64n))) <= 0) throw new Error(`log2 of ${p} is too near`);
  return k + 1;
}

/**
 * floor(log2 a) with the logarithm rounded to f32. For a = 2^K / q with q in [1, 2), log2 a rounds to K if log2 q is at most half
 * the distance from K to the previous f32.
 */
function floorOfLog2(a: Rational): number {
  const k = floorLog2(a);
  if (k === -1 || compare(a, powerOfTwo(k)) === 0) return k;
  const next = k + 1;
  const binade = floorLog2(rational(BigInt(Math.abs(next))));
  const t = 24 - binade + (next > 0 && next === 2 ** binade ? 1 : 0);
  const q = divide(powerOfTwo(next), a);
  const upperBound = rational(rootOfTwo(t), SCALE);
  if (compare(q, upperBound) <= 0) return next;
  if (compare(q, plus(upperBound, rational(1n, 2n ** 64n))) <= 0) throw new Error(`log2 of ${a} is too near`);
  return k;
}

const SCALE = 2n ** 128n;

/** floor(2^(2^-t) * 2^128), with an error below 2^64. */
function rootOfTwo(t: number): bigint {
  const cachedRoot = ROOTS[t];
  if (cachedRoot !== undefined) return cachedRoot;
  const root = t === 0 ? 2n * SCALE : squareRoot(rootOfTwo(t - 1) * SCALE);
  ROOTS[t] = root;
  return root;
}

const ROOTS: bigint[] = [];

function squareRoot(n: bigint): bigint {
  let root = 1n << BigInt(Math.ceil(n.toString(2).length / 2));
  for (;;) {
    const next = (root + n / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

/** As `e8m0UpQuotient`, from the logarithm of the quotient rounded to f32. */
function e8m0UpLog2(amax: number, element: ScalarLayout): BlockScale {
  const p = div(amax, largest(element));
  if (p === 0 || p === Number.POSITIVE_INFINITY) return e8m0UpQuotient(amax, element);
  const stored = Math.min(Math.max(ceilOfLog2(ofNumber(p)), -127), 127) + 127;
  return { stored, multiplier: e8m0Reciprocal(stored) };
}

/** As `e8m0Floor`, from the logarithm of amax rounded to f32. A negative code wraps to a byte; the elements become 0. */
function e8m0FloorLog2(amax: number, element: ScalarLayout): BlockScale {
  if (amax === 0 || amax === Number.POSITIVE_INFINITY) return E8M0_RULES.e8m0Floor(amax, element);
  const code = floorOfLog2(ofNumber(amax)) - floorLog2(ofNumber(largest(element))) + 127;
  return code < 0
    ? { stored: code + 256, multiplier: 0 }
    : { stored: code, multiplier: e8m0Reciprocal(code) };
}

/** As `e8m0UpQuotient`, but at least 2^-126. A quotient of 0 has code 0, and the elements become 0. */
function e8m0UpNormal(amax: number, element: ScalarLayout): BlockScale {
  if (div(amax, largest(element)) === 0) return { stored: 0, multiplier: 0 };
  const { stored } = e8m0UpQuotient(amax, element);
  const code = Math.max(stored, 1);
  return { stored: code, multiplier: e8m0Reciprocal(code) };
}

type E8m0Rule = (amax: number, element: ScalarLayout) => BlockScale;

/**
 * A rule that subtracts the exponent of the element format's largest value from the exponent of amax and clamps the difference to
 * -127 to 127 (OCP MX 1.0 §6.3 for the floor). An infinite amax gives code 254.
 */
function byExponent(exponentOf: (amax: Rational, element: ScalarLayout) => number): E8m0Rule {
  const scaleCode = (amax: number, element: ScalarLayout): number => {
    if (amax === 0) return 0;
    if (amax === Number.POSITIVE_INFINITY) return 254;
    const exponent = exponentOf(ofNumber(amax), element) - floorLog2(ofNumber(largest(element)));
    return Math.min(Math.max(exponent, -127), 127) + 127;
  };
  return (amax, element) => {
    const stored = scaleCode(amax, element);
    return { stored, multiplier: e8m0Reciprocal(stored) };
  };
}

function ceilLog2(a: Rational): number {
  const floor = floorLog2(a);
  return compare(a, powerOfTwo(floor)) === 0 ? floor : floor + 1;
}

/** Rounds a number to `bits` mantissa bits, ties away from zero. */
function roundToBits(a: Rational, bits: number): Rational {
  const ulp = powerOfTwo(floorLog2(a) - bits);
  return times(rational(truncate(plus(divide(a, ulp), rational(1n, 2n)))), ulp);
}

/** As e8m0Even, with one mantissa bit, or three for six-bit elements. Beyond f32, the scale is 1 and elements become 0. */
function e8m0EvenShort(amax: number, element: ScalarLayout): BlockScale {
  const bits = element.exponentBits + element.mantissaBits === 5 ? 3 : 1;
  const exponent = (a: Rational) => floorLog2(roundToBits(a, bits));
  const isBeyond = amax === Number.POSITIVE_INFINITY || (amax > 0 && exponent(ofNumber(amax)) === 128);
  return isBeyond ? { stored: 127, multiplier: 0 } : byExponent(exponent)(amax, element);
}

/** The rules whose scales are e8m0, by name (numerics.md §4.1). */
export const E8M0_RULES = {
  e8m0Up,
  e8m0UpQuotient,
  e8m0UpLog2,
  e8m0Floor: byExponent(floorLog2),
  e8m0Ceil: byExponent(ceilLog2),
  e8m0Even: byExponent((amax, { mantissaBits }) => floorLog2(roundToBits(amax, mantissaBits))),
  e8m0EvenShort,
  e8m0FloorLog2,
  e8m0UpNormal,
  e8m0UpLeast: (amax, element) => e8m0UpQuotient(Math.max(amax, Math.fround(1e-4)), element),
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

/** The tensor scale that a rule stores, from the tensor's amax and the input type (numerics.md §5.11). */
type TensorScale = (amax: number, type: WideName) => number;

const multiplierOfTensor: TensorScale = (amax) => div(amax, 2688);

function divisorOfTensor(amax: number, type: WideName): number {
  const reciprocal = roundedIn(div(1, Math.max(amax, 2 ** -126)), type);
  const divisor = roundedIn(mul(reciprocal, 2688), type);
  return Number.isFinite(divisor) ? divisor : 1;
}

/** The e4m3 code of a number raised to at least `minimum`; NaN stays NaN. */
function scaleFrom(raw: number, minimum: number): number {
  return Number.isNaN(raw) ? 0x7f : encodeSaturating(Math.min(Math.max(raw, minimum), 448), e4m3);
}

interface TensorRule {
  readonly ofTensor: TensorScale;
  /** The scale of a block with amax b in a tensor with scale t. */
  readonly ofBlock: (b: number, t: number, type: WideName) => BlockScale;
}

const byReciprocal = (stored: number, t: number): BlockScale => ({
  stored,
  multiplier: div(div(1, t), decode(stored, e4m3)),
});

const byWhole = (stored: number, divisor: number): BlockScale => ({
  stored,
  multiplier: div(1, divisor),
  divisor,
});

/**
 * The e4m3 code of a number up to 448, ties up. Numbers below 2^-6 do not round up to a normal number; numbers that reach 2^8 get
 * the largest code.
 */
function halfUpCode(x: number): number {
  if (x < 2 ** -6) return Math.min(Math.floor(add(mul(x, 512), 0.5)), 7);
  const exponent = Math.floor(Math.log2(x));
  const eighths = Math.floor((x / 2 ** exponent) * 8 + 0.5);
  const code = (exponent + 6) * 8 + eighths;
  return code >= 0x78 ? 0x7e : code;
}

/** The rules whose e4m3 scales are combined with a stored tensor scale, by name (numerics.md §5.11). */
export const TENSOR_RULES = {
  e4m3Quotient: {
    ofTensor: () => 1,
    ofBlock: (b, t) => byReciprocal(scaleFrom(div(b, 6), 2 ** -6), t),
  },
  e4m3HalfUp: {
    ofTensor: () => 1,
    ofBlock: (b) => {
      const stored = halfUpCode(Math.min(div(b, 6), 448));
      return stored === 0
        ? { stored, multiplier: 0, divisor: Number.POSITIVE_INFINITY }
        : byWhole(stored, decode(stored, e4m3));
    },
  },
  twoLevelQuotient: {
    ofTensor: multiplierOfTensor,
    ofBlock: (b, t) => byReciprocal(scaleFrom(div(div(b, 6), t), 2 ** -6), t),
  },
  twoLevelProduct: {
    ofTensor: multiplierOfTensor,
    ofBlock: (b, t) => {
      const quotient = div(b, mul(6, t));
      const stored = scaleFrom(quotient === 0 ? 1 : quotient, 2 ** -9);
      return byWhole(stored, mul(decode(stored, e4m3), t));
    },
  },
  twoLevelDivisor: {
    ofTensor: divisorOfTensor,
    ofBlock: (b, t, type) => {
      const stored = scaleFrom(mul(t, roundedIn(div(b, 6), type)), 0) || 0x20;
      return byWhole(stored, div(decode(stored, e4m3), t));
    },
  },
} as const satisfies Readonly<Record<string, TensorRule>>;

/** The ue5m3 scale of amax / 6. Elements are divided by its value, or by 2^-23 if it is 0 (numerics.md §5.12). */
export function ue5m3Quotient(amax: number, type: WideName): BlockScale {
  const stored = encodeSaturating(roundedIn(div(amax, 6), type), ue5m3);
  return byWhole(stored, decode(stored, ue5m3) || 2 ** -23);
}

export type ErrorMetric = "mae" | "mse";

export interface FourOverSixOptions {
  readonly g: number;
  readonly e4m3Max: 256 | 448;
  readonly metric: ErrorMetric;
}

/**
 * The scale of 4over6 (numerics.md §5.8): maps the block's amax to 6 or to 4, whichever gives the smaller error; a tie goes to 6.
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
  const decodedScale = div(mul(mul(q, decode(scale.stored, e4m3)), g), 6 * e4m3Max);
  const difference = sub(decodedScale, x);
  return metric === "mae" ? Math.abs(difference) : mul(difference, difference);
}
