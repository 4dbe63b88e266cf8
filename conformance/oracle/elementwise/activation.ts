/** Activations: the definition in f64 operations with one rounding to f32, and the exact values. */
import { constants, exp2 } from "../core/math.js";
import * as wide from "../core/wide.js";

export type ActivationName = "gelu" | "relu" | "silu" | "qgelu" | "srelu" | "sigmoid";

export interface Rule {
  /** The activation in f64 operations. Callers round the result to f32. */
  readonly value: (x: number) => number;
  readonly derivative: (x: number) => number;
  readonly trueValue: (x: wide.Real) => wide.Real;
  readonly trueDerivative: (x: wide.Real) => wide.Real;
}

const { fround } = Math;
const [LOG2E = Number.NaN] = constants("LOG2E");
const [QGELU = Number.NaN] = constants("QGELU");
const [A = Number.NaN, B = Number.NaN] = constants("GELU");
const [C = Number.NaN, D = Number.NaN] = constants("GELU_DERIVATIVE");
/** The constants of gelu. */
const [C0, C1] = [fround(0.79788456), fround(0.03567741)];

function logistic(t: number): number {
  return 1 / (1 + exp2(t));
}

/** The derivative of x s(v(x)), from x v' and s. */
function product(xv: number, s: number): number {
  return s + xv * (s * (1 - s));
}

/** x / (1 + e^(-alpha x)), the common form of silu, qgelu and the clamped swiglu. */
export function swish(alpha: number): Rule {
  const rate = alpha * -LOG2E;
  const wideAlpha = wide.real(alpha);
  return {
    value: (x) => x / (1 + exp2(x * rate)),
    derivative: (x) => product(alpha * x, logistic(x * rate)),
    trueValue: (x) => wide.multiply(x, wide.sigmoid(wide.multiply(wideAlpha, x))),
    trueDerivative: (x) => {
      const v = wide.multiply(wideAlpha, x);
      return trueProduct(v, wide.sigmoid(v));
    },
  };
}

/** The derivative of x * sigmoid(v). `xv` is x times the derivative of v, and `s` is sigmoid(v). */
function trueProduct(xv: wide.Real, s: wide.Real): wide.Real {
  return s + wide.multiply(xv, wide.multiply(s, wide.real(1) - s));
}

function geluExponent(x: number): number {
  return x * (A + B * (x * x));
}

/** 2u of the tanh form of gelu, and x times the derivative of 2u. */
function trueGelu(x: wide.Real): { readonly argument: wide.Real; readonly xv: wide.Real } {
  const square = wide.multiply(x, x);
  const linear = wide.real(2 * C0);
  const cubic = wide.multiply(wide.real(2 * C1), square);
  return { argument: wide.multiply(x, linear + cubic), xv: wide.multiply(x, linear + 3n * cubic) };
}

const positive = (x: wide.Real, value: wide.Real) => (x > 0n ? value : 0n);

export const RULES: Readonly<Record<ActivationName, Rule>> = {
  gelu: {
    value: (x) => x / (1 + exp2(geluExponent(x))),
    derivative: (x) => product(x * (C + D * (x * x)), logistic(geluExponent(x))),
    trueValue: (x) => wide.multiply(x, wide.sigmoid(trueGelu(x).argument)),
    trueDerivative: (x) => {
      const { argument, xv } = trueGelu(x);
      return trueProduct(xv, wide.sigmoid(argument));
    },
  },
  relu: {
    value: (x) => (Number.isNaN(x) ? 0 : Math.max(x, 0)),
    derivative: (x) => (x > 0 ? 1 : 0),
    trueValue: (x) => positive(x, x),
    trueDerivative: (x) => positive(x, wide.real(1)),
  },
  silu: swish(1),
  qgelu: swish(QGELU),
  srelu: {
    value: (x) => (x > 0 ? x * x : 0),
    derivative: (x) => (x > 0 ? 2 * x : 0),
    trueValue: (x) => positive(x, wide.multiply(x, x)),
    trueDerivative: (x) => positive(x, 2n * x),
  },
  sigmoid: {
    value: (x) => logistic(x * -LOG2E),
    derivative: (x) => {
      const e = exp2(Math.abs(x) * -LOG2E);
      return e / ((1 + e) * (1 + e));
    },
    trueValue: wide.sigmoid,
    trueDerivative: (x) => {
      const s = wide.sigmoid(x);
      return wide.multiply(s, wide.real(1) - s);
    },
  },
};

export interface Clamp {
  readonly alpha: number;
  readonly limit: number;
  readonly offset: number;
}

/** out, dA and dG of one element of a gated activation; each product is rounded to f32. */
export function gatedElement(
  rule: Rule,
  a: number,
  g: number,
  grad: number,
  clamp: Pick<Clamp, "limit" | "offset"> = { limit: Number.POSITIVE_INFINITY, offset: -0 },
): { readonly out: number; readonly dA: number; readonly dG: number } {
  const { limit, offset } = clamp;
  const x = Math.min(a, limit);
  const clamped = Math.max(Math.min(g, limit), -limit);
  const gate = fround(clamped + offset);
  const value = fround(rule.value(x));
  return {
    out: fround(value * gate),
    dA: a > limit ? 0 : fround(fround(fround(rule.derivative(x)) * grad) * gate),
    dG: g > limit || g < -limit ? 0 : fround(grad * value),
  };
}
