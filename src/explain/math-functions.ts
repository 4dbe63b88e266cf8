/** The steps of CUDA's math functions of one f32, as nvcc 13.0 compiles them (docs/special-functions.md). */
import { f32Bits, f32OfBits } from "./binary.js";
import { fma } from "./exact.js";
import { UNIT } from "./special-unit.js";
import { add, mul, Steps } from "./steps.js";

/** A function of one f32: it records its steps and returns the result. x is not NaN. */
type MathFunction = (x: number, steps: Steps) => number;

const LOG = [
  0xbe055027, 0x3e1039f6, 0xbdf8cdcc, 0x3e0f2955, 0xbe2ad8b9, 0x3e4ced0b, 0xbe7fff22, 0x3eaaaa78, 0xbf000000,
];
const LOG2 = [
  0x3dc6b27f, 0xbe2c7f30, 0x3e2fcf2a, 0xbe374e43, 0x3e520bf4, 0xbe763c8b, 0x3e93bf99, 0xbeb8aa49, 0x3ef6384a,
  0xbf38aa3b,
];
const TANH = [0x3c80f082, 0xbd563cae, 0x3e085941, 0xbeaaa9ed, 0];
const ERF = [0x38b1e96a, 0xba574d20, 0x3baad5ea, 0xbcdc1be7, 0x3de718af, 0xbec093ac, 0x3e0375d3];
const ERFC = [0x38eb4c3a, 0xbaae005b, 0x3c09919f, 0xbd24d99a, 0x3e235519, 0x3f69b4f9, 0x3f210a14];
const COSINE = [0x37cbac00, 0xbab607ed, 0x3d2aaabb, 0xbeffffff];
const SINE = [0xb94d4153, 0x3c0885e4, 0xbe2aaaa8];
const HALF_PI_PARTS = [0xbfc90fda, 0xb3a22168, 0xa7c234c5];
/** The first 192 bits of 2 / π. */
const TWO_BY_PI = 0xa2f9836e4e441529fc2757d1f534ddc0db6295993c439041n;
const LN2 = f32OfBits(0x3f317218);
/** log2 e. */
export const LOG2E = f32OfBits(0x3fb8aa3b);

const hex = (bits: number): string => bits.toString(16).toUpperCase().padStart(8, "0");

/** The sign of `sign` for a number that is not negative. */
const withSign = (sign: number, magnitude: number): number => (f32Bits(sign) >>> 31 ? -magnitude : magnitude);

/** p = c0, then p = fma(p, variable, c) for each further coefficient, given by its bits. */
export function horner(
  coefficients: readonly number[],
  variable: string,
  value: number,
  steps: Steps,
): number {
  const [first = 0, ...others] = coefficients;
  return others.reduce(
    (p, bits) => steps.add("p", `fma(p, ${variable}, ${hex(bits)})`, fma(p, value, f32OfBits(bits))),
    steps.add("p", hex(first), f32OfBits(first)),
  );
}

/** Adds one of the unit's functions at a value as one step. */
export function unit(
  name: "ex2" | "rcp" | "lg2",
  step: string,
  argument: string,
  x: number,
  steps: Steps,
): number {
  // the steps within the unit are not recorded; they are the steps of `${name}.approx.ftz.f32`
  return steps.add(step, `${name}(${argument})`, UNIT[name](x, new Steps()));
}

const expf: MathFunction = (x, steps) => {
  const u = steps.add("u", "fma(x, 3BBB989D, ½)", fma(x, f32OfBits(0x3bbb989d), 0.5));
  const clamped = steps.add("u", "u, clamped to 0 and 1", Math.min(Math.max(u, 0), 1));
  const n = steps.add("n", "252 u, rounded down, minus 126", Math.floor(clamped * 252) - 126);
  const high = steps.add("g", "fma(x, 3FB8AA3B, -n)", fma(x, LOG2E, -n));
  const g = steps.add("g", "fma(x, 32A57060, g)", fma(x, f32OfBits(0x32a57060), high));
  const y = unit("ex2", "y", "g", g, steps);
  return steps.add("result", "y ⊗ 2^n", mul(y, 2 ** n));
};

/** m and n with x = (1 + m) 2^n, where the bits of 1 + m are at least `low`. Undefined for x without a logarithm. */
function splitOf(x: number, low: number, steps: Steps): { m: number; n: number } | undefined {
  if (x === 0) steps.add("result", "of a zero", Number.NEGATIVE_INFINITY);
  else if (x < 0) steps.add("result", "of a negative x", Number.NaN);
  else if (x === Number.POSITIVE_INFINITY) steps.add("result", "of infinity", x);
  else {
    const isSmall = x < 2 ** -126;
    const scaled = isSmall ? steps.add("x", "x ⊗ 2^23", mul(x, 2 ** 23)) : x;
    const exponent = (f32Bits(scaled) - low) >> 23;
    const n = steps.add("n", `(bits of x - ${hex(low)}) >> 23${isSmall ? ", minus 23" : ""}`, exponent);
    const m = steps.add("m", "x / 2^n - 1", scaled / 2 ** exponent - 1);
    return { m, n: isSmall ? n - 23 : n };
  }
  return undefined;
}

const logf: MathFunction = (x, steps) => {
  const split = splitOf(x, 0x3f2aaaab, steps);
  if (!split) return lastOf(steps);
  const { m, n } = split;
  const p = horner(LOG, "m", m, steps);
  const q = steps.add("q", "m ⊗ p", mul(m, p));
  const r = steps.add("r", "fma(q, m, m)", fma(q, m, m));
  return steps.add("result", "fma(n, 3F317218, r)", fma(n, LN2, r));
};

const log2f: MathFunction = (x, steps) => {
  const split = splitOf(x, 0x3f3504f3, steps);
  if (!split) return lastOf(steps);
  const { m, n } = split;
  const p = horner(LOG2, "m", m, steps);
  const q = steps.add("q", "m ⊗ (m ⊗ p)", mul(m, mul(m, p)));
  const r = steps.add("r", "fma(m, 3FB8AA3B, q)", fma(m, LOG2E, q));
  return steps.add("result", "n ⊕ r", add(n, r));
};

const lastOf = ({ list }: Steps): number => list.at(-1)?.value ?? Number.NaN;

const tanhf: MathFunction = (x, steps) => {
  const a = steps.add("a", "|x|", Math.abs(x));
  if (a >= f32OfBits(0x41102cb4)) return steps.add("result", "±1: a is at least 41102CB4", withSign(x, 1));
  if (a >= f32OfBits(0x3f19999a)) {
    const e = unit("ex2", "e", "a ⊗ 4038AA3B", mul(a, f32OfBits(0x4038aa3b)), steps);
    const r = unit("rcp", "r", "e ⊕ 1", add(e, 1), steps);
    return steps.add("result", "fma(r, -2, 1), with the sign of x", withSign(x, fma(r, -2, 1)));
  }
  const square = steps.add("s", "x ⊗ x", mul(x, x));
  return steps.add("result", "fma(p, x, x)", fma(horner(TANH, "s", square, steps), x, x));
};

const erff: MathFunction = (x, steps) => {
  const a = steps.add("a", "|x|", Math.abs(x));
  if (a < f32OfBits(0x3f8060fe)) {
    const square = steps.add("s", "x ⊗ x", mul(x, x));
    return steps.add("result", "fma(p, x, x)", fma(horner(ERF, "s", square, steps), x, x));
  }
  const p = horner(ERFC, "a", a, steps);
  const e = unit("ex2", "e", "fma(p, -a, -a)", fma(p, -a, -a), steps);
  return steps.add("result", "1 ⊖ e, with the sign of x", withSign(x, add(1, -e)));
};

/** Reduces x of magnitude at least 105615: q is the nearest number of right angles, t is the remainder. */
function reduceLarge(x: number, steps: Steps): { q: number; t: number } {
  const bits = f32Bits(x);
  const significand = (BigInt(bits & 0x7fffff) + 0x800000n) << 8n;
  const product = (significand * TWO_BY_PI) >> BigInt(288 - ((bits >>> 23) & 255));
  const quarter = BigInt.asUintN(64, product) >> 62n;
  const fraction = BigInt.asIntN(64, product << 2n);
  const upper = fraction < 0n;
  steps.add("q", "|x| · 2 / π modulo 4, rounded down", Number(quarter));
  const units = Number(upper ? ~fraction : fraction);
  steps.add("d", upper ? "1 - 2^-64 - the rest" : "the rest", units * 2 ** -64);
  const radians = Math.fround(units * 0x1921fb54442d19 * 2 ** -116);
  const t = steps.add("t", "fl(d · π / 2), with its sign", upper !== x < 0 ? -radians : radians);
  const q = Number(quarter) + (upper ? 1 : 0);
  return { q: steps.add("q", "the nearest integer, with the sign of x", x < 0 ? -q : q), t };
}

function reduceSmall(x: number, steps: Steps): { q: number; t: number } {
  const turns = mul(x, f32OfBits(0x3f22f983));
  const floor = Math.floor(turns);
  const isUp = turns - floor > 0.5 || (turns - floor === 0.5 && floor % 2 !== 0);
  const q = steps.add("q", "x ⊗ 3F22F983, rounded to an integer", (isUp ? floor + 1 : floor) + 0);
  const t = HALF_PI_PARTS.reduce(
    (rest, part) =>
      steps.add("t", `fma(q, ${hex(part)}, ${rest === x ? "x" : "t"})`, fma(q, f32OfBits(part), rest)),
    x,
  );
  return { q, t };
}

/** sin x or, with a quarter of 1, cos x. */
const sine =
  (quarter: 0 | 1): MathFunction =>
  (x, steps) => {
    if (!Number.isFinite(x)) return steps.add("result", "of an infinity", Number.NaN);
    const reduced = Math.abs(x) < 105615 ? reduceSmall(x, steps) : reduceLarge(x, steps);
    const q = quarter ? steps.add("q", "q + 1", reduced.q + 1) : reduced.q;
    const { t } = reduced;
    const square = steps.add("s", "t ⊗ t", mul(t, t));
    const isOdd = (q & 1) === 1;
    const p = horner(isOdd ? COSINE : SINE, "s", square, steps);
    const r = isOdd
      ? steps.add("r", "fma(p, s, 1)", fma(p, square, 1))
      : steps.add("r", "fma(p, fma(s, t, 0), t)", fma(p, fma(square, t, 0), t));
    return q & 2 ? steps.add("result", "fma(r, -1, 0)", fma(r, -1, 0)) : steps.add("result", "r", r);
  };

/** The functions by the names of `SPECIAL_FUNCTIONS`, without those that are one instruction. */
export const MATH_FUNCTIONS = {
  expf,
  "expf.fast": (x, steps) => unit("ex2", "result", "x ⊗ 3FB8AA3B", mul(x, LOG2E), steps),
  logf,
  "logf.fast": (x, steps) => steps.add("result", "y ⊗ 3F317218", mul(unit("lg2", "y", "x", x, steps), LN2)),
  log2f,
  tanhf,
  erff,
  "erff.fast": (x, steps) =>
    Math.abs(x) < 2 ** -126
      ? steps.add("result", "of a zero or subnormal x", withSign(x, 0))
      : erff(x, steps),
  sqrtf: (x, steps) =>
    steps.add("result", "the square root of x, rounded to nearest", Math.fround(Math.sqrt(x))),
  sinf: sine(0),
  cosf: sine(1),
} as const satisfies Readonly<Record<string, MathFunction>>;
