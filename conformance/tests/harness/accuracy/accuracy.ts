/**
 * Measures the error of functions of one f32 over all 2^32 inputs, and compares their bits with docs/numerics.md.
 *
 * The true value is first computed in f64, by formulas without cancellation whose relative error is below 2^-42, which
 * is 2^-18 of an f32's ulp. The inputs with the largest errors are then measured against `oracle/core/wide.ts`.
 */

import { UNROUNDED } from "../../../oracle/core/math.js";
import * as wide from "../../../oracle/core/wide.js";
import { RULES } from "../../../oracle/elementwise/activation.js";
import type { Stems } from "./stems.js";

/** A function of one f32 in three forms: the reference, numerics.md, and the exact value. */
export interface Measured {
  /** Writes the function of the `count` values at `src` to `dst`. */
  readonly reference: (stems: Stems, memory: Places, count: number) => void;
  /** The value by numerics.md, before it is rounded to f32. */
  readonly page: (x: number) => number;
  readonly truth: (x: number) => number;
  readonly exact: (x: wide.Real) => wide.Real;
  /** Below this magnitude the error is measured absolutely instead of in ulp, because the true value has a zero there. */
  readonly floor?: number;
  /** Where the true value exists. Default: everywhere. */
  readonly defined?: (x: number) => boolean;
}

interface Places {
  readonly src: number;
  readonly dst: number;
  readonly ones: number;
  readonly scratch: number;
}

export interface Accuracy {
  /** The number of computed inputs, NaN and infinities included. */
  readonly inputs: number;
  /** The number of results whose bits differ from numerics.md. */
  readonly different: number;
  /** The largest error in ulp, and its input. */
  readonly ulps: number;
  readonly at: number;
  /** The largest absolute error below the floor. */
  readonly apart: number;
}

/** The number of values computed at a time. */
const CHUNK = 1 << 16;
/** The number of inputs whose error is measured with `oracle/core/wide.ts`. */
const CANDIDATES = 32;

/** 1 / ulp of an f32 with the magnitude of an f64, by the f64's exponent field. */
const INVERSE_ULP = Float64Array.from(
  { length: 2048 },
  (_, field) => 2 ** (23 - Math.min(Math.max(field - 1023, -126), 127)),
);

/** erf by a series of positive terms: 2 / sqrt(pi) e^(-x^2) times the sum of 2^k x^(2k+1) / (1 3 5 ... (2k+1)). */
export function erf(x: number): number {
  const a = Math.abs(x);
  if (a > 6.5) return Math.sign(x);
  const square = a * a;
  let term = x;
  let sum = x;
  for (let k = 3; Math.abs(term) > Math.abs(sum) * 2 ** -54; k += 2) {
    term *= (2 * square) / k;
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-square) * sum;
}

/** e^-v, limited so that it stays finite. */
const decay = (v: number): number => Math.exp(Math.min(-v, 700));

/** x s(v) and its derivative s + x v' (s (1 - s)), where s is the logistic function and `xv` = x v'. */
const part = (x: number, v: number): number => x / (1 + decay(v));
function partDerivative(xv: number, v: number): number {
  const e = decay(v);
  return 1 / (1 + e) + xv * (e / ((1 + e) * (1 + e)));
}

const [C0, C1] = [2 * Math.fround(0.79788456), 2 * Math.fround(0.03567741)];
const ALPHA = Math.fround(1.702);
const gelu = (x: number): number => x * (C0 + C1 * (x * x));
const positive = (x: number, y: number): number => (x > 0 ? y : 0);

/** The true value and derivative of each activation, in the order of the reference's numbers. */
const TRUTHS = {
  gelu: [
    (x: number) => part(x, gelu(x)),
    (x: number) => partDerivative(x * (C0 + 3 * C1 * (x * x)), gelu(x)),
  ],
  relu: [(x: number) => positive(x, x), (x: number) => positive(x, 1)],
  silu: [(x: number) => part(x, x), (x: number) => partDerivative(x, x)],
  qgelu: [(x: number) => part(x, ALPHA * x), (x: number) => partDerivative(ALPHA * x, ALPHA * x)],
  srelu: [(x: number) => positive(x, x * x), (x: number) => positive(x, 2 * x)],
  sigmoid: [
    (x: number) => 1 / (1 + decay(x)),
    (x: number) => {
      const e = Math.exp(-Math.abs(x));
      return e / ((1 + e) * (1 + e));
    },
  ],
} as const;

type Kind = keyof typeof TRUTHS;
const KINDS = Object.keys(TRUTHS) as readonly Kind[];

const scalar =
  (name: "exp" | "log" | "tanh" | "erf"): Measured["reference"] =>
  ({ direct, f32 }, { src, dst }, count) => {
    const call = direct[name] as (x: number) => number;
    const [from, to] = [f32(src, count), f32(dst, count)];
    for (let i = 0; i < count; i++) to[i] = call(from[i] as number);
  };

function activation(kind: Kind, derivative: boolean): Measured {
  const rule = RULES[kind];
  const number = KINDS.indexOf(kind);
  const crosses = derivative && ["gelu", "silu", "qgelu"].includes(kind);
  return {
    reference: ({ run }, { src, dst, ones, scratch }, count) => {
      const source = { src, srcType: 0, dst, dstType: 0, kind: number };
      const part = { scratch, begin: 0, end: count };
      if (derivative) run("activationBackward", { ...source, grad: ones, gradType: 0 }, part);
      else run("activation", source, part);
    },
    page: derivative ? rule.derivative : rule.value,
    truth: TRUTHS[kind][derivative ? 1 : 0],
    exact: derivative ? rule.trueDerivative : rule.trueValue,
    ...(crosses ? { floor: 2 ** -6 } : {}),
  };
}

export const MEASURED: Readonly<Record<string, Measured>> = {
  exp: { reference: scalar("exp"), page: UNROUNDED.exp, truth: Math.exp, exact: wide.exp },
  log: {
    reference: scalar("log"),
    page: UNROUNDED.log,
    truth: Math.log,
    exact: wide.log,
    defined: (x) => x > 0,
  },
  tanh: { reference: scalar("tanh"), page: UNROUNDED.tanh, truth: Math.tanh, exact: wide.tanh },
  erf: { reference: scalar("erf"), page: UNROUNDED.erf, truth: erf, exact: wide.erf },
  ...Object.fromEntries(
    KINDS.flatMap((kind) => [
      [kind, activation(kind, false)],
      [`${kind}'`, activation(kind, true)],
    ]),
  ),
};

/** Measures one function over chunks of 2^16 consecutive bit patterns. */
export function measure(stems: Stems, measured: Measured, chunks: Iterable<number>): Accuracy {
  stems.reset();
  const places = {
    src: stems.room(4 * CHUNK),
    dst: stems.room(4 * CHUNK),
    ones: stems.put(new Float32Array(CHUNK).fill(1)),
    scratch: stems.room(1 << 14),
  };
  const [x, got] = [stems.f32(places.src, CHUNK), stems.f32(places.dst, CHUNK)];
  const [bits, gotBits] = [x, got].map(
    ({ buffer, byteOffset }) => new Uint32Array(buffer, byteOffset, CHUNK),
  ) as [Uint32Array, Uint32Array];
  const worst = new Worst(measured);
  let [inputs, different] = [0, 0];
  for (const chunk of chunks) {
    for (let i = 0; i < CHUNK; i++) bits[i] = chunk * CHUNK + i;
    measured.reference(stems, places, CHUNK);
    for (let i = 0; i < CHUNK; i++) written[i] = unrounded[i] = measured.page(x[i] as number);
    different += differences(got, gotBits);
    worst.add(x, got);
    inputs += CHUNK;
  }
  return { inputs, different, ...worst.settled() };
}

/** The values by numerics.md, before and after the rounding to f32. */
const unrounded = new Float64Array(CHUNK);
const unroundedWords = new Uint32Array(unrounded.buffer);
const written = new Float32Array(CHUNK);
const writtenBits = new Uint32Array(written.buffer);

/** The number of results whose bits differ from numerics.md; all NaNs are equal. */
function differences(got: Float32Array, gotBits: Uint32Array): number {
  let count = 0;
  for (let i = 0; i < CHUNK; i++) {
    if (writtenBits[i] !== gotBits[i] && !(Number.isNaN(written[i]) && Number.isNaN(got[i]))) count++;
  }
  return count;
}

/** The overflow threshold: the largest f32 plus half a step. */
const OVERFLOW = 2 ** 128 - 2 ** 103;
/** A bound in ulp on the error of the polynomials. */
const SLACK = 2 ** -6;
/** The true value of every sixteenth input is always computed. */
const SPOT = 16;

/** 1 / ulp of an f32 with the magnitude of the page's value. */
function inverseUlp(i: number): number {
  return INVERSE_ULP[((unroundedWords[2 * i + 1] as number) >>> 20) & 0x7ff] as number;
}

/** The inputs with the largest errors so far. */
class Worst {
  readonly #candidates: { readonly x: number; readonly got: number; readonly ulps: number }[] = [];
  /** The smallest error in the list. */
  #least = 0;
  #apart = { error: 0, x: 0, got: 0 };

  constructor(readonly measured: Measured) {}

  /**
   * Adds results. The error is at most the rounding error plus `SLACK`; the rounding error is known, so most inputs
   * need no true value.
   */
  add(x: Float32Array, got: Float32Array): void {
    const { floor = 0 } = this.measured;
    for (let i = 0; i < CHUNK; i++) {
      const near = unrounded[i] as number;
      const error = Math.abs((got[i] as number) - near);
      const least = Math.abs(near) < floor ? this.#apart.error * (1 - SLACK) : this.#least - SLACK;
      if (i % SPOT === 0 || !(error * (Math.abs(near) < floor ? 1 : inverseUlp(i)) < least))
        this.#consider(x[i] as number, got[i] as number, i);
    }
  }

  #consider(x: number, got: number, i: number): void {
    const { truth, floor = 0, defined } = this.measured;
    if (!Number.isFinite(x) || (defined && !defined(x))) return;
    const exact = truth(x);
    const error = Math.abs(got - exact);
    if (Math.abs(exact) < floor) {
      if (error > this.#apart.error) this.#apart = { error, x, got };
      return;
    }
    if (Math.abs(exact) >= OVERFLOW && got === Math.sign(exact) / 0) return;
    const ulps = error * inverseUlp(i);
    if (!(ulps <= this.#least)) this.#keep({ x, got, ulps: Number.isNaN(ulps) ? 1 / 0 : ulps });
  }

  #keep(candidate: { readonly x: number; readonly got: number; readonly ulps: number }): void {
    const all = this.#candidates;
    all.push(candidate);
    all.sort((a, b) => b.ulps - a.ulps);
    if (all.length > CANDIDATES) all.pop();
    if (all.length === CANDIDATES) this.#least = (all[CANDIDATES - 1] as { readonly ulps: number }).ulps;
  }

  /** The largest errors, measured with `oracle/core/wide.ts`. */
  settled(): Pick<Accuracy, "ulps" | "at" | "apart"> {
    const { exact } = this.measured;
    const errors = this.#candidates.map(({ x, got }) => ({
      at: x,
      ulps: wide.ulpsApart(got, exact(wide.real(x))),
    }));
    const { ulps, at } = errors.reduce((a, b) => (b.ulps > a.ulps ? b : a), { ulps: 0, at: 0 });
    const { error, x, got } = this.#apart;
    const near = error > 0 ? Number((wide.real(got) - exact(wide.real(x))) >> 128n) / 2 ** 128 : 0;
    return { ulps, at, apart: Math.abs(near) };
  }
}
