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
export interface FunctionForms {
  /** Writes the function of the `count` values at `src` to `dst`. */
  readonly computeReference: (stems: Stems, addresses: Addresses, count: number) => void;
  /** The value by numerics.md, before it is rounded to f32. */
  readonly documented: (x: number) => number;
  readonly truth: (x: number) => number;
  readonly exact: (x: wide.Real) => wide.Real;
  /** Below this magnitude the error is measured absolutely instead of in ulp, because the true value has a zero there. */
  readonly floor?: number;
  /** Whether the function has a true value at an input. Default: at every input. */
  readonly hasValue?: (x: number) => boolean;
}

interface Addresses {
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

/** The number of values that are computed at a time. */
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
  const xSquared = a * a;
  let term = x;
  let sum = x;
  for (let k = 3; Math.abs(term) > Math.abs(sum) * 2 ** -54; k += 2) {
    term *= (2 * xSquared) / k;
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-xSquared) * sum;
}

/** e^-v, limited so that it stays finite. */
const decay = (v: number): number => Math.exp(Math.min(-v, 700));

/** x s(v) and its derivative s + x v' (s (1 - s)), where s is the logistic function and `xv` = x v'. */
const scaledLogistic = (x: number, v: number): number => x / (1 + decay(v));
function scaledLogisticDerivative(xv: number, v: number): number {
  const exponential = decay(v);
  return 1 / (1 + exponential) + xv * (exponential / ((1 + exponential) * (1 + exponential)));
}

const [C0, C1] = [2 * Math.fround(0.79788456), 2 * Math.fround(0.03567741)];
const ALPHA = Math.fround(1.702);
const gelu = (x: number): number => x * (C0 + C1 * (x * x));
const positive = (x: number, y: number): number => (x > 0 ? y : 0);

/** The true value and derivative of each activation, in the order of the reference's numbers. */
const TRUTHS = {
  gelu: [
    (x: number) => scaledLogistic(x, gelu(x)),
    (x: number) => scaledLogisticDerivative(x * (C0 + 3 * C1 * (x * x)), gelu(x)),
  ],
  relu: [(x: number) => positive(x, x), (x: number) => positive(x, 1)],
  silu: [(x: number) => scaledLogistic(x, x), (x: number) => scaledLogisticDerivative(x, x)],
  qgelu: [
    (x: number) => scaledLogistic(x, ALPHA * x),
    (x: number) => scaledLogisticDerivative(ALPHA * x, ALPHA * x),
  ],
  srelu: [(x: number) => positive(x, x * x), (x: number) => positive(x, 2 * x)],
  sigmoid: [
    (x: number) => 1 / (1 + decay(x)),
    (x: number) => {
      const exponential = Math.exp(-Math.abs(x));
      return exponential / ((1 + exponential) * (1 + exponential));
    },
  ],
} as const;

type Kind = keyof typeof TRUTHS;
const KINDS = Object.keys(TRUTHS) as readonly Kind[];

const scalarForms =
  (name: "exp" | "log" | "tanh" | "erf"): FunctionForms["computeReference"] =>
  ({ direct, f32 }, { src, dst }, count) => {
    const call = direct[name] as (x: number) => number;
    const [source, destination] = [f32(src, count), f32(dst, count)];
    for (let i = 0; i < count; i++) destination[i] = call(source[i] as number);
  };

function activationForms(kind: Kind, derivative: boolean): FunctionForms {
  const rule = RULES[kind];
  const activationNumber = KINDS.indexOf(kind);
  const hasZero = derivative && ["gelu", "silu", "qgelu"].includes(kind);
  return {
    computeReference: ({ run }, { src, dst, ones, scratch }, count) => {
      const source = { src, srcType: 0, dst, dstType: 0, kind: activationNumber };
      const part = { scratch, begin: 0, end: count };
      if (derivative) run("activationBackward", { ...source, grad: ones, gradType: 0 }, part);
      else run("activation", source, part);
    },
    documented: derivative ? rule.derivative : rule.value,
    truth: TRUTHS[kind][derivative ? 1 : 0],
    exact: derivative ? rule.trueDerivative : rule.trueValue,
    ...(hasZero ? { floor: 2 ** -6 } : {}),
  };
}

export const FUNCTION_FORMS: Readonly<Record<string, FunctionForms>> = {
  exp: { computeReference: scalarForms("exp"), documented: UNROUNDED.exp, truth: Math.exp, exact: wide.exp },
  log: {
    computeReference: scalarForms("log"),
    documented: UNROUNDED.log,
    truth: Math.log,
    exact: wide.log,
    hasValue: (x) => x > 0,
  },
  tanh: {
    computeReference: scalarForms("tanh"),
    documented: UNROUNDED.tanh,
    truth: Math.tanh,
    exact: wide.tanh,
  },
  erf: { computeReference: scalarForms("erf"), documented: UNROUNDED.erf, truth: erf, exact: wide.erf },
  ...Object.fromEntries(
    KINDS.flatMap((kind) => [
      [kind, activationForms(kind, false)],
      [`${kind}'`, activationForms(kind, true)],
    ]),
  ),
};

/** Measures one function over chunks of 2^16 consecutive bit patterns. */
export function measure(stems: Stems, forms: FunctionForms, chunks: Iterable<number>): Accuracy {
  stems.reset();
  const addresses = {
    src: stems.allocate(4 * CHUNK),
    dst: stems.allocate(4 * CHUNK),
    ones: stems.put(new Float32Array(CHUNK).fill(1)),
    scratch: stems.allocate(1 << 14),
  };
  const [x, results] = [stems.f32(addresses.src, CHUNK), stems.f32(addresses.dst, CHUNK)];
  const [bits, resultBits] = [x, results].map(
    ({ buffer, byteOffset }) => new Uint32Array(buffer, byteOffset, CHUNK),
  ) as [Uint32Array, Uint32Array];
  const worstInputs = new WorstInputs(forms);
  let [inputs, different] = [0, 0];
  for (const chunk of chunks) {
    for (let i = 0; i < CHUNK; i++) bits[i] = chunk * CHUNK + i;
    forms.computeReference(stems, addresses, CHUNK);
    for (let i = 0; i < CHUNK; i++) documentedF32[i] = documentedF64[i] = forms.documented(x[i] as number);
    different += countDifferences(results, resultBits);
    worstInputs.add(x, results);
    inputs += CHUNK;
  }
  return { inputs, different, ...worstInputs.measure() };
}

/** The values by numerics.md, before and after the rounding to f32. */
const documentedF64 = new Float64Array(CHUNK);
const documentedF64Words = new Uint32Array(documentedF64.buffer);
const documentedF32 = new Float32Array(CHUNK);
const documentedF32Bits = new Uint32Array(documentedF32.buffer);

/** The number of results whose bits differ from numerics.md; all NaNs are equal. */
function countDifferences(results: Float32Array, resultBits: Uint32Array): number {
  let count = 0;
  for (let i = 0; i < CHUNK; i++) {
    if (
      documentedF32Bits[i] !== resultBits[i] &&
      !(Number.isNaN(documentedF32[i]) && Number.isNaN(results[i]))
    )
      count++;
  }
  return count;
}

/** The overflow threshold: the largest f32 plus half a step. */
const OVERFLOW = 2 ** 128 - 2 ** 103;
/** A bound in ulp on the error of the polynomials. */
const SLACK = 2 ** -6;
/** The true value of every sixteenth input is always computed. */
const SPOT_STRIDE = 16;

/** 1 / ulp of an f32 with the magnitude of the page's value. */
function inverseUlp(i: number): number {
  return INVERSE_ULP[((documentedF64Words[2 * i + 1] as number) >>> 20) & 0x7ff] as number;
}

/** The inputs with the largest errors so far. */
class WorstInputs {
  readonly #candidates: { readonly x: number; readonly got: number; readonly ulps: number }[] = [];
  /** The smallest error in the list. */
  #least = 0;
  #apart = { error: 0, x: 0, got: 0 };

  constructor(readonly forms: FunctionForms) {}

  /**
   * Adds results. The error is at most the rounding error plus `SLACK`; the rounding error is known, so most inputs
   * need no true value.
   */
  add(x: Float32Array, results: Float32Array): void {
    const { floor = 0 } = this.forms;
    for (let i = 0; i < CHUNK; i++) {
      const estimate = documentedF64[i] as number;
      const error = Math.abs((results[i] as number) - estimate);
      const threshold = Math.abs(estimate) < floor ? this.#apart.error * (1 - SLACK) : this.#least - SLACK;
      if (i % SPOT_STRIDE === 0 || !(error * (Math.abs(estimate) < floor ? 1 : inverseUlp(i)) < threshold))
        this.#consider(x[i] as number, results[i] as number, i);
    }
  }

  #consider(x: number, result: number, i: number): void {
    const { truth, floor = 0, hasValue } = this.forms;
    if (!Number.isFinite(x) || (hasValue && !hasValue(x))) return;
    const exact = truth(x);
    const error = Math.abs(result - exact);
    if (Math.abs(exact) < floor) {
      if (error > this.#apart.error) this.#apart = { error, x, got: result };
      return;
    }
    if (Math.abs(exact) >= OVERFLOW && result === Math.sign(exact) / 0) return;
    const ulps = error * inverseUlp(i);
    if (!(ulps <= this.#least)) this.#keep({ x, got: result, ulps: Number.isNaN(ulps) ? 1 / 0 : ulps });
  }

  #keep(candidate: { readonly x: number; readonly got: number; readonly ulps: number }): void {
    const candidates = this.#candidates;
    candidates.push(candidate);
    candidates.sort((a, b) => b.ulps - a.ulps);
    if (candidates.length > CANDIDATES) candidates.pop();
    if (candidates.length === CANDIDATES)
      this.#least = (candidates[CANDIDATES - 1] as { readonly ulps: number }).ulps;
  }

  /** The largest errors, measured with `oracle/core/wide.ts`. */
  measure(): Pick<Accuracy, "ulps" | "at" | "apart"> {
    const { exact } = this.forms;
    const errors = this.#candidates.map(({ x, got }) => ({
      at: x,
      ulps: wide.ulpsApart(got, exact(wide.real(x))),
    }));
    const { ulps, at } = errors.reduce((a, b) => (b.ulps > a.ulps ? b : a), { ulps: 0, at: 0 });
    const { error, x, got: result } = this.#apart;
    const signedError = error > 0 ? Number((wide.real(result) - exact(wide.real(x))) >> 128n) / 2 ** 128 : 0;
    return { ulps, at, apart: Math.abs(signedError) };
  }
}
