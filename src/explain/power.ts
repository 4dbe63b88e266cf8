/** The steps of CUDA's math functions of two f32, as nvcc 13.0 compiles them (docs/special-functions.md). */
import { f32Bits, f32OfBits } from "./binary.js";
import { fma } from "./exact.js";
import { horner, LOG2E, unit } from "./math-functions.js";
import { add, div, mul, type Steps } from "./steps.js";

type FunctionOfTwo = (x: number, y: number, steps: Steps) => number;

const LOG = [0x3a2c32e4, 0x3b52e7db, 0x3c93bb73, 0x3df6384f];
const EXP = [0x391fcb8e, 0x3aaf85ed, 0x3c1d9856, 0x3d6357bb, 0x3e75fdec, 0x3f317218, 0x3f800000];

const isSubnormal = (x: number): boolean => Math.abs(x) < 2 ** -126;
const zeroOf = (x: number): number => (f32Bits(x) >>> 31 ? -0 : 0);

/** Adds x as one step. A subnormal x becomes a zero with its sign. */
const flushed = (name: string, x: number, steps: Steps): number =>
  isSubnormal(x) ? steps.add(name, `a zero: ${name} is zero or subnormal`, zeroOf(x)) : x;

/** log2 a as the sum of h and l, for positive finite a. */
function log2(a: number, steps: Steps): { h: number; l: number } {
  const scaled = isSubnormal(a) ? steps.add("a", "a ⊗ 2^24", mul(a, 2 ** 24)) : a;
  const exponent = (f32Bits(scaled) - 0x3f3504f3) >> 23;
  const n = steps.add(
    "n",
    `(bits of a - 3F3504F3) >> 23${scaled === a ? "" : ", minus 24"}`,
    exponent - (scaled === a ? 0 : 24),
  );
  const m = steps.add("m", "a / 2^n - 1", scaled / 2 ** exponent - 1);
  const v = unit("rcp", "v", "m ⊕ 2", add(m, 2), steps);
  const q = steps.add("q", "(m ⊕ m) ⊗ v", mul(add(m, m), v));
  const s = steps.add("s", "q ⊗ q", mul(q, q));
  const d = steps.add("d", "m ⊖ q", add(m, -q));
  const e = steps.add("e", "v ⊗ fma(-q, m, d ⊕ d)", mul(v, fma(-q, m, add(d, d))));
  const p = steps.add("p", "p ⊗ s", mul(horner(LOG, "s", s, steps), s));
  const g = steps.add("g", "fma(q, 3FB8AA3B, n)", fma(q, LOG2E, n));
  let l = steps.add("l", "fma(q, 3FB8AA3B, n ⊖ g)", fma(q, LOG2E, add(n, -g)));
  l = steps.add("l", "fma(e, 3FB8AA3B, l)", fma(e, LOG2E, l));
  l = steps.add("l", "fma(q, 32A55E34, l)", fma(q, f32OfBits(0x32a55e34), l));
  l = steps.add("l", "fma(p ⊗ 3, e, l)", fma(mul(p, 3), e, l));
  l = steps.add("l", "fma(p, q, l)", fma(p, q, l));
  const h = steps.add("h", "g ⊕ l", add(g, l));
  return { h, l: steps.add("l", "l ⊖ (h ⊖ g)", add(l, -add(h, -g))) };
}

/** a^y for positive finite a. */
function power(a: number, y: number, steps: Steps): number {
  const { h, l } = log2(a, steps);
  const t = steps.add("t", "h ⊗ y", mul(h, y));
  if (Math.abs(t) > 152)
    return steps.add("w", t < 0 ? "+0: t is below -152" : "infinite: t is above 152", t < 0 ? 0 : 1 / 0);
  const floor = Math.floor(t);
  const isUp = t - floor > 0.5 || (t - floor === 0.5 && floor % 2 !== 0);
  const k = steps.add("k", "t, rounded to an integer", (isUp ? floor + 1 : floor) + 0);
  const r = steps.add("r", "fma(l, y, fma(h, y, -t))", fma(l, y, fma(h, y, -t)));
  const f = steps.add("f", "r ⊕ (t ⊖ k)", add(r, add(t, -k)));
  return steps.add("w", "p ⊗ 2^k", mul(horner(EXP, "f", f, steps), 2 ** k));
}

const powf: FunctionOfTwo = (x, y, steps) => {
  const isOdd = Math.abs(y % 2) === 1;
  const isNegative = f32Bits(x) >>> 31 === 1;
  if (x === 1 || y === 0) return steps.add("result", "1: x is 1 or y is 0", 1);
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.NaN;
  if (x === -1 && !Number.isFinite(y)) return steps.add("result", "1: x is -1 and y is infinite", 1);
  if (x === 0 || !Number.isFinite(x)) {
    const magnitude = (x === 0) === y < 0 ? Number.POSITIVE_INFINITY : 0;
    const result = isOdd && isNegative ? -magnitude : magnitude;
    return steps.add("result", "of a zero or infinite x; negative for negative x and odd y", result);
  }
  if (isNegative && Number.isFinite(y) && !Number.isInteger(y))
    return steps.add("result", "of a negative x, and y that is no integer", Number.NaN);
  const w = power(steps.add("a", "|x|", Math.abs(x)), y, steps);
  return isNegative && isOdd
    ? steps.add("result", "-w: x is negative and y odd", -w)
    : steps.add("result", "w", w);
};

const divideFast: FunctionOfTwo = (x, y, steps) => {
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.NaN;
  const r = unit("rcp", "r", "y", y, steps);
  const result = steps.add("result", "x ⊗ r", mul(flushed("x", x, steps), r));
  return result === 0 ? result : flushed("result", result, steps);
};

const powfFast: FunctionOfTwo = (x, y, steps) => {
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.NaN;
  const g = unit("lg2", "g", "x", x, steps);
  const t = steps.add("t", "y ⊗ g", mul(flushed("y", y, steps), g));
  return Number.isNaN(t) ? t : unit("ex2", "result", "t", t, steps);
};

/** The functions by the names of `SPECIAL_FUNCTIONS`. */
export const FUNCTIONS_OF_TWO = {
  divide: (x, y, steps) => steps.add("result", "x ⊘ y", div(x, y)),
  "divide.fast": divideFast,
  powf,
  "powf.fast": powfFast,
} as const satisfies Readonly<Record<string, FunctionOfTwo>>;
