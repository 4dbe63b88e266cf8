/**
 * CUDA's math functions as nvcc 13.0 compiles them (docs/special-functions.md), with exact fused multiply-adds. Arguments and
 * results are f32 values.
 */
import { add, bitsOf, div, fma, fromBits, mul, ofNumber, sub, times, truncate } from "./rational.js";
import { cos, ex2, lg2, rcp, rsqrt, sin, sqrt, tanh } from "./special-functions.js";
import { SPECIAL_INSTRUCTIONS } from "./special-instructions.js";

const values = (patterns: string): readonly number[] =>
  patterns.split(" ").map((pattern) => fromBits(Number.parseInt(pattern, 16)));

/** The polynomial in x whose first coefficient belongs to the highest power. */
const polynomial = (coefficients: readonly number[], x: number): number =>
  coefficients.reduce((sum, coefficient) => fma(sum, x, coefficient));

const [LOG2E = 0, LOG2E_REST = 0, LOG2E_BY_252 = 0, TWICE_LOG2E = 0, LN2 = 0] = values(
  "3FB8AA3B 32A57060 3BBB989D 4038AA3B 3F317218",
);
const LOG = values("BE055027 3E1039F6 BDF8CDCC 3E0F2955 BE2AD8B9 3E4CED0B BE7FFF22 3EAAAA78 BF000000");
const LOG2 = values(
  "3DC6B27F BE2C7F30 3E2FCF2A BE374E43 3E520BF4 BE763C8B 3E93BF99 BEB8AA49 3EF6384A BF38AA3B",
);
const TANH = values("3C80F082 BD563CAE 3E085941 BEAAA9ED 00000000");
const ERF = values("38B1E96A BA574D20 3BAAD5EA BCDC1BE7 3DE718AF BEC093AC 3E0375D3");
const ERFC = values("38EB4C3A BAAE005B 3C09919F BD24D99A 3E235519 3F69B4F9 3F210A14");
const POWER_LOG = values("3A2C32E4 3B52E7DB 3C93BB73 3DF6384F");
const POWER_LOG2E_REST = fromBits(0x32a55e34);
const POWER_EXP = values("391FCB8E 3AAF85ED 3C1D9856 3D6357BB 3E75FDEC 3F317218 3F800000");
const COSINE = values("37CBAC00 BAB607ED 3D2AAABB BEFFFFFF");
const SINE = values("B94D4153 3C0885E4 BE2AAAA8");
const MINUS_HALF_PI = values("BFC90FDA B3A22168 A7C234C5");
const [TANH_POLYNOMIAL_END = 0, TANH_ONE = 0, ERF_POLYNOMIAL_END = 0, TWO_BY_PI = 0] = values(
  "3F19999A 41102CB4 3F8060FE 3F22F983",
);
/** 2 / π · 2^192, truncated. */
const TWO_BY_PI_BITS = 0xa2f9836e_4e441529_fc2757d1_f534ddc0_db629599_3c439041n;
/** π / 2, as the f64 with bits 3FF921FB54442D19. */
const HALF_PI = 0x1921fb54442d19 * 2 ** -52;

const withSignOf = (magnitude: number, x: number): number =>
  x < 0 || Object.is(x, -0) ? -magnitude : magnitude;

function expf(x: number): number {
  const t = fma(x, LOG2E_BY_252, 0.5);
  const clamped = t > 0 ? Math.min(t, 1) : 0;
  const n = Number(truncate(times(ofNumber(clamped), ofNumber(252)))) - 126;
  return mul(ex2(fma(x, LOG2E_REST, fma(x, LOG2E, -n))), 2 ** n);
}

/** x as (1 + m) 2^n with 1 + m from `threshold` to 2 `threshold`, for a positive finite x. */
function split(x: number, threshold: number): readonly [m: number, n: number] {
  let n = 0;
  let significand = x;
  for (; significand < threshold; n--) significand *= 2;
  for (; significand >= 2 * threshold; n++) significand /= 2;
  return [significand - 1, n];
}

/** The logarithm of 0, infinity, NaN and negative numbers; undefined for positive finite numbers. */
const logOfSpecial = (x: number): number | undefined =>
  x === 0 ? Number.NEGATIVE_INFINITY : x > 0 ? (x === 1 / 0 ? x : undefined) : Number.NaN;

function logf(x: number): number {
  const special = logOfSpecial(x);
  if (special !== undefined) return special;
  const [m, n] = split(x, fromBits(0x3f2aaaab));
  return fma(n, LN2, fma(mul(m, polynomial(LOG, m)), m, m));
}

function log2f(x: number): number {
  const special = logOfSpecial(x);
  if (special !== undefined) return special;
  const [m, n] = split(x, fromBits(0x3f3504f3));
  return add(n, fma(m, LOG2E, mul(m, mul(m, polynomial(LOG2, m)))));
}

function tanhf(x: number): number {
  const a = Math.abs(x);
  if (a >= TANH_ONE) return Math.sign(x);
  if (a >= TANH_POLYNOMIAL_END) return withSignOf(fma(rcp(add(ex2(mul(a, TWICE_LOG2E)), 1)), -2, 1), x);
  return fma(polynomial(TANH, mul(x, x)), x, x);
}

function erff(x: number): number {
  const a = Math.abs(x);
  if (a >= ERF_POLYNOMIAL_END) return withSignOf(sub(1, ex2(fma(polynomial(ERFC, a), -a, -a))), x);
  return fma(polynomial(ERF, mul(x, x)), x, x);
}

/** Divides x >= 0 by π / 2. Returns the nearest integer quotient and the remainder in radians. */
function reduceLarge(x: number): readonly [q: number, t: number] {
  const bits = bitsOf(x);
  const significand = BigInt((bits & 0x7fffff) | 0x800000) << 8n;
  const angle = BigInt.asUintN(64, (significand * TWO_BY_PI_BITS) >> BigInt(288 - (bits >>> 23)));
  const q = Number(angle >> 62n);
  const fraction = BigInt.asUintN(64, angle << 2n);
  const radians = (units: bigint): number => Math.fround(Number(units) * (HALF_PI * 2 ** -64));
  if (fraction < 2n ** 63n) return [q, radians(fraction)];
  return [q + 1, -radians(2n ** 64n - 1n - fraction)];
}

function reduce(x: number): readonly [q: number, t: number] {
  if (Math.abs(x) >= 105615) {
    const [q, t] = reduceLarge(Math.abs(x));
    return x < 0 ? [-q, -t] : [q, t];
  }
  const quadrants = mul(x, TWO_BY_PI);
  const q = nearestInteger(quadrants);
  return [q, MINUS_HALF_PI.reduce((remainder, part) => fma(q, part, remainder), x)];
}

/** The sine of x plus `quarter` right angles. */
function sine(x: number, quarter: number): number {
  if (!Number.isFinite(x)) return Number.NaN;
  const [q, t] = reduce(x);
  const quadrant = (q + quarter) & 3;
  const square = mul(t, t);
  const magnitude =
    quadrant & 1
      ? fma(polynomial(COSINE, square), square, 1)
      : fma(polynomial(SINE, square), fma(square, t, 0), t);
  return quadrant & 2 ? fma(magnitude, -1, 0) : magnitude;
}

/** sin x. */
export const sinf = (x: number): number => sine(x, 0);
/** cos x. */
export const cosf = (x: number): number => sine(x, 1);

const flushSubnormal = (x: number): number => (Math.abs(x) < 2 ** -126 ? withSignOf(0, x) : x);

/** The logarithm of positive a to base 2, as a sum of two f32. */
function log2Pair(a: number): readonly [high: number, low: number] {
  const [m, n] = split(a, fromBits(0x3f3504f3));
  const v = rcp(add(m, 2));
  const q = mul(add(m, m), v);
  const square = mul(q, q);
  const d = sub(m, q);
  const remainder = mul(v, fma(-q, m, add(d, d)));
  const p = mul(polynomial(POWER_LOG, square), square);
  const leading = fma(q, LOG2E, n);
  const terms = [
    [q, LOG2E],
    [remainder, LOG2E],
    [q, POWER_LOG2E_REST],
    [mul(p, 3), remainder],
    [p, q],
  ] as const;
  const tail = terms.reduce((sum, [factor, multiplier]) => fma(factor, multiplier, sum), sub(n, leading));
  const high = add(leading, tail);
  return [high, sub(tail, sub(high, leading))];
}

/** The integer nearest to x, ties to even. */
function nearestInteger(x: number): number {
  const floor = Math.floor(x);
  return x - floor === 0.5 ? floor + (floor & 1) : Math.round(x) + 0;
}

function positivePower(a: number, y: number): number {
  const [high, low] = log2Pair(a);
  const t = mul(high, y);
  if (Math.abs(t) > 152) return t < 0 ? 0 : Number.POSITIVE_INFINITY;
  const k = nearestInteger(t);
  const fraction = add(fma(low, y, fma(high, y, -t)), sub(t, k));
  // both factors of 2^k are normal: the first product is exact, the second is rounded
  return mul(polynomial(POWER_EXP, fraction), 2 ** k);
}

function powf(x: number, y: number): number {
  if (x === 1 || y === 0) return 1;
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.NaN;
  if (x === -1 && !Number.isFinite(y)) return 1;
  const isOdd = Math.abs(y % 2) === 1;
  const sign = isOdd && withSignOf(1, x) < 0 ? -1 : 1;
  if (x === 0) return sign * (y < 0 ? Number.POSITIVE_INFINITY : 0);
  if (!Number.isFinite(x)) return sign * (y < 0 ? 0 : Number.POSITIVE_INFINITY);
  if (x < 0 && !Number.isInteger(y) && Number.isFinite(y)) return Number.NaN;
  return sign * positivePower(Math.abs(x), y);
}

/** The functions of two arguments. */
export const FUNCTIONS_OF_TWO = {
  divide: div,
  "divide.fast": (x: number, y: number): number => flushSubnormal(mul(flushSubnormal(x), rcp(y))),
  powf,
  "powf.fast": (x: number, y: number): number => ex2(mul(flushSubnormal(y), lg2(x))),
} as const satisfies Readonly<Record<string, (x: number, y: number) => number>>;

/** The instructions and the functions of one argument by their names. */
export const SPECIAL_FUNCTIONS = {
  ...SPECIAL_INSTRUCTIONS,
  expf,
  "expf.fast": (x: number): number => ex2(mul(x, LOG2E)),
  exp2f: SPECIAL_INSTRUCTIONS["ex2.approx.f32"],
  "exp2f.fast": ex2,
  logf,
  "logf.fast": (x: number): number => mul(lg2(x), LN2),
  log2f,
  "log2f.fast": lg2,
  tanhf,
  "tanhf.fast": tanh,
  erff,
  "erff.fast": (x: number): number => erff(flushSubnormal(x)),
  rsqrtf: SPECIAL_INSTRUCTIONS["rsqrt.approx.f32"],
  "rsqrtf.fast": rsqrt,
  sqrtf: (x: number): number => Math.fround(Math.sqrt(x)),
  "sqrtf.fast": sqrt,
  sinf,
  "sinf.fast": sin,
  cosf,
  "cosf.fast": cos,
} as const satisfies Readonly<Record<string, (x: number) => number>>;
