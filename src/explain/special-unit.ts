/** The steps of the special-function unit (numerics.md §7.11), for instructions with ftz and tanh. */
import {
  EX2,
  LG2,
  type Quadratic,
  RCP,
  RSQRT,
  SINE,
  SQRT_EVEN,
  SQRT_ODD,
  TANH,
} from "../formats/special-function-tables.gen.js";
import { f32Bits, f32OfBits } from "./binary.js";
import type { Steps } from "./steps.js";

/** A function of the unit: it records its steps and returns the f32 result. x is an f32 that is not NaN. */
export type UnitFunction = (x: number, steps: Steps) => number;

const MIN_NORMAL = 2 ** -126;
const INFINITY_EXPONENT = 255;

/** The sign, the biased exponent and the fraction of x. */
function fieldsOf(x: number): { readonly sign: 1 | -1; readonly E: number; readonly f: number } {
  const bits = f32Bits(x);
  return { sign: bits >>> 31 ? -1 : 1, E: (bits >>> 23) & 255, f: bits & 0x7fffff };
}

/** Bits of y select shifted copies of y, whose lowest bits are cut off. */
function truncatedSquare(y: number): number {
  const copies = Array.from({ length: 17 }, (_, i) => ((y >> i) & 1 ? y >> (18 - i) : 0));
  return copies.reduce((sum, copy) => sum + copy, 0) >> 1;
}

/** T(a), with its row and terms as steps. */
function quadratic(table: Quadratic, a: number, steps: Steps): number {
  const { xBits, sqShift, c0Shift, c1Shift, c2Shift, bias, rows } = table;
  const row = steps.add("row", `a >> ${xBits}`, a >> xBits);
  const y = steps.add("y", `a modulo 2^${xBits}`, a & (2 ** xBits - 1));
  const c0 = steps.add("c0", `row ${row} of the table`, rows.c0[row] ?? 0);
  const c1 = steps.add("c1", `row ${row} of the table`, rows.c1[row] ?? 0);
  const c2 = steps.add("c2", `row ${row} of the table`, rows.c2[row] ?? 0);
  const square = steps.add(
    "square",
    sqShift ? `sq(y << ${sqShift})` : "sq(y)",
    truncatedSquare(y << sqShift),
  );
  const constant = steps.add("t0", `c0 << ${c0Shift}`, c0 * 2 ** c0Shift);
  const linear = steps.add("t1", `(c1 · y) << ${c1Shift}`, c1 * y * 2 ** c1Shift);
  const squared = steps.add("t2", `(c2 · square) << ${c2Shift}`, c2 * square * 2 ** c2Shift);
  return steps.add("T", `t0 + t1 + t2 + ${bias}`, constant + linear + squared + bias);
}

/** z · 2^(k - 23) with a sign, and the unit's rule for subnormal and infinite results. */
function packed(sign: number, z: number, k: number, steps: Steps): number {
  const exact = z * 2 ** (k - 23);
  if (exact < MIN_NORMAL) return steps.add("result", "a zero: z · 2^(k - 23) is below 2^-126", sign * 0);
  if (exact >= 2 ** 128) return steps.add("result", "infinite: z · 2^(k - 23) is 2^128 or more", sign / 0);
  return steps.add("result", `${sign < 0 ? "-" : ""}z · 2^(k - 23)`, sign * exact);
}

/** A number that is not negative, truncated to 24 significant bits. */
function truncate(x: number): number {
  const rounded = Math.fround(x);
  return rounded <= x ? rounded : f32OfBits(f32Bits(rounded) - 1);
}

/** Records the result of an argument that has no row in the table, if x is such an argument of a function of positive numbers. */
function special(x: number, steps: Steps, ofZero: number, ofInfinity: number): number | undefined {
  const { sign, E } = fieldsOf(x);
  if (E === 0) return steps.add("result", "of a zero or subnormal x", ofZero);
  if (sign < 0) return steps.add("result", "of a negative x", Number.NaN);
  return E === INFINITY_EXPONENT ? steps.add("result", "of infinity", ofInfinity) : undefined;
}

const exponentOf = (E: number, steps: Steps): number => steps.add("e", "E - 127", E - 127);

const ex2: UnitFunction = (x, steps) => {
  const { sign, E, f } = fieldsOf(x);
  if (E >= 134) return steps.add("result", "|x| is 128 or more", sign < 0 ? 0 : Number.POSITIVE_INFINITY);
  const m = steps.add("m", E === 0 ? "0: x is zero or subnormal" : "2^23 + f", E === 0 ? 0 : 2 ** 23 + f);
  const v = steps.add("v", "m · 2^(E - 127), truncated", Math.floor(m * 2 ** (E - 127)));
  const fraction = v % 2 ** 23;
  const isFlipped = sign < 0 && fraction !== 0;
  const integer = Math.floor(v / 2 ** 23);
  const n = sign < 0 ? `-(v >> 23)${isFlipped ? " - 1" : ""}` : "v >> 23";
  const k = steps.add("k", n, isFlipped ? -integer - 1 : sign * integer + 0);
  const a = isFlipped
    ? steps.add("a", "2^23 - 1 - (v modulo 2^23)", 2 ** 23 - 1 - fraction)
    : steps.add("a", "v modulo 2^23", fraction);
  return packed(1, steps.add("z", "T >> 15", Math.floor(quadratic(EX2, a, steps) / 2 ** 15)), k, steps);
};

const rcp: UnitFunction = (x, steps) => {
  const { sign, E, f } = fieldsOf(x);
  if (E === 0) return steps.add("result", "of a zero or subnormal x", sign / 0);
  if (E === INFINITY_EXPONENT) return steps.add("result", "of an infinity", sign * 0);
  const e = exponentOf(E, steps);
  const z = Math.floor(quadratic(RCP, steps.add("a", "f", f), steps) / 2 ** 15);
  return packed(sign, steps.add("z", "T >> 15", z), steps.add("k", "-1 - e", -1 - e), steps);
};

const rsqrt: UnitFunction = (x, steps) => {
  const specialResult = special(x, steps, Object.is(x, -0) || x < 0 ? -1 / 0 : 1 / 0, 0);
  if (specialResult !== undefined) return specialResult;
  const { E, f } = fieldsOf(x);
  const e = exponentOf(E, steps);
  const h = steps.add("h", "e >> 1", e >> 1);
  const a = steps.add("a", "f + 2^23 · (e - 2h)", f + 2 ** 23 * (e - 2 * h));
  const z =
    a === 0
      ? steps.add("z", "2^24: a is 0", 2 ** 24)
      : steps.add("z", "T >> 16", Math.floor(quadratic(RSQRT, a, steps) / 2 ** 16));
  return packed(1, z, steps.add("k", "-1 - h", -1 - h), steps);
};

const sqrt: UnitFunction = (x, steps) => {
  const specialResult = special(x, steps, fieldsOf(x).sign * 0, Number.POSITIVE_INFINITY);
  if (specialResult !== undefined) return specialResult;
  const { E, f } = fieldsOf(x);
  const e = exponentOf(E, steps);
  const h = steps.add("h", "e >> 1", e >> 1);
  const [table, shift] = e === 2 * h ? ([SQRT_EVEN, 17] as const) : ([SQRT_ODD, 16] as const);
  const total = quadratic(
    table,
    steps.add("a", `f, by the table of ${e === 2 * h ? "even" : "odd"} e`, f),
    steps,
  );
  return packed(
    1,
    steps.add("z", `T >> ${shift}`, Math.floor(total / 2 ** shift)),
    steps.add("k", "h", h),
    steps,
  );
};

const lg2: UnitFunction = (x, steps) => {
  const specialResult = special(x, steps, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY);
  if (specialResult !== undefined) return specialResult;
  const { E, f } = fieldsOf(x);
  const e = exponentOf(E, steps);
  const t =
    x === 1
      ? steps.add("t", "0: x is 1", 0)
      : steps.add("t", "T >> 2", Math.floor(quadratic(LG2, steps.add("a", "f", f), steps) / 4));
  const R = steps.add("R", "t + e · 2^36", t + e * 2 ** 36);
  return R < 0
    ? steps.add("result", "-(-1 - R) / 2^36, truncated to 24 bits", -truncate((-1 - R) / 2 ** 36))
    : steps.add("result", "R / 2^36, truncated to 24 bits", truncate(R / 2 ** 36));
};

/** sin or, with a quarter of 1, cos. */
const sine =
  (quarter: 0 | 1): UnitFunction =>
  (x, steps) => {
    const { sign, E } = fieldsOf(x);
    if (E === INFINITY_EXPONENT) return steps.add("result", "of an infinity", Number.NaN);
    const product = E === 0 ? 0 : truncate(Math.abs(x) * f32OfBits(0x3e22f983));
    const p = steps.add("p", "|x| · fl(1 / 2π), truncated to 24 bits", product);
    const v = steps.add("v", "p · 2^25, truncated, modulo 2^25", Math.floor(p * 2 ** 25) % 2 ** 25);
    const q = steps.add("q", quarter ? "(v >> 23) + 1" : "v >> 23", (v >> 23) + quarter);
    const a =
      q % 2 === 1
        ? steps.add("a", "2^23 - 1 - (v modulo 2^23)", 2 ** 23 - 1 - (v % 2 ** 23))
        : steps.add("a", "v modulo 2^23", v % 2 ** 23);
    const magnitude = truncate(quadratic(SINE, a, steps) / 2 ** 37);
    const direction = ((q & 2) !== 0 ? -1 : 1) * (quarter ? 1 : sign);
    const formula = `${direction < 0 ? "-" : ""}T / 2^37, truncated to 24 bits`;
    return steps.add("result", formula, direction * magnitude);
  };

const tanh: UnitFunction = (x, steps) => {
  const { sign, E, f } = fieldsOf(x);
  if (E <= 118) return steps.add("result", "x: |x| is below 2^-8", x);
  const binade = TANH.find(({ exponent }) => exponent === E);
  if (!binade) return steps.add("result", "|x| is 8 or more", sign);
  const { dropped, fractionBits } = binade;
  const a = steps.add("a", `f >> ${dropped}, by the table of E = ${E}`, f >> dropped);
  const magnitude = truncate(quadratic(binade, a, steps) / 2 ** fractionBits);
  const formula = `${sign < 0 ? "-" : ""}T / 2^${fractionBits}, truncated to 24 bits`;
  return steps.add("result", formula, sign * magnitude);
};

/** The functions of the unit by the first part of an instruction's name. */
export const UNIT = { ex2, lg2, rcp, rsqrt, sqrt, sin: sine(0), cos: sine(1), tanh } as const;
