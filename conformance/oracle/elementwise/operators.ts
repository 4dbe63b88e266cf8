/** Elementwise operators: the exact result of one element, rounded once to f32, and inputs aimed at its edges. */
import { constants, exp2, UNROUNDED } from "../core/math.js";
import { add, div, mul } from "../core/rational.js";
import { RULES } from "./activation.js";

interface Rule {
  /** The f32 result for f32 inputs and numbers, in the order of the operator's parameters. */
  readonly value: (...values: readonly number[]) => number;
  /** Magnitudes whose results round to zero, to a subnormal, or to infinity, or that absorb or cancel each other. */
  readonly edges: readonly number[];
}

const [LOG2E = 0] = constants("LOG2E");

const LOG = constants("LOG");

/** The square root of log(1 + e^x), in f64 (numerics.md 7.17). */
function rootOfSoftplus(x: number): number {
  if (x > 20) return Math.sqrt(x);
  const e = exp2(x * LOG2E);
  if (e > 0.25) return Math.sqrt(UNROUNDED.log(1 + e));
  const s = e / (2 + e);
  return Math.sqrt(s * LOG.reduceRight((sum, coefficient) => sum * (s * s) + coefficient, 0));
}

export const OPERATORS = {
  add: {
    value: (x = 0, y = 0) => add(x, y),
    edges: [0, 1, 2 ** -24, 2 ** 24, 2 ** -149, 65520, 2 ** 127, 3.4e38],
  },
  multiply: {
    value: (x = 0, y = 0) => mul(x, y),
    edges: [0, 1, 2 ** -149, 2 ** -126, 2 ** -63, 1 + 2 ** -23, 2 ** 64, 255.9, 65520, 3.4e38],
  },
  scaled: {
    value: (x = 0, factor = 0) => mul(x, Math.fround(factor)),
    edges: [0, 1, 2 ** -149, 2 ** -126, 2 ** -24, 65520, 2 ** 127, 3.4e38],
  },
  sigmoid: {
    value: (x = 0) => Math.fround(RULES.sigmoid.value(x)),
    edges: [0, 2 ** -149, 2 ** -24, 0.75, 5.4, 9.7, 16.6, 17.4, 52, 87.3, 88.723, 103.3, 104, 709, 3.4e38],
  },
  divide: {
    value: (x = 0, y = 0) => div(x, y),
    edges: [0, 1, 3, 2 ** -149, 2 ** -126, 2 ** -63, 1 + 2 ** -23, 2 ** 64, 65520, 2 ** 127, 3.4e38],
  },
  exp: {
    value: (x = 0) => Math.fround(exp2(x * LOG2E)),
    edges: [0, 2 ** -149, 2 ** -25, 0.69, 11.09, 16.6, 87.3, 88.7, 88.723, 92.2, 103.2, 103.97, 104, 3.4e38],
  },
  rsqrt: {
    // a square root of an f32, rounded to f64 and then to f32, is rounded correctly
    value: (x = 0) => div(1, Math.fround(Math.sqrt(x))),
    edges: [0, 1, 2, 2 ** -149, 2 ** -126, 2 ** -32, 1 - 2 ** -24, 1 + 2 ** -23, 4, 65520, 3.4e38],
  },
  sqrtSoftplus: {
    value: (x = 0) => Math.fround(rootOfSoftplus(x)),
    edges: [0, 2 ** -24, 0.88, 1.386, 1.387, 5, 20, 20.000002, 87, 103, 207, 700, 709, 710, 65520, 3.4e38],
  },
  sqrtSoftplusDerivative: {
    value(x = 0) {
      const root = rootOfSoftplus(x);
      return root === 0 ? 0 : Math.fround(UNROUNDED.sigmoid(x) / (2 * root));
    },
    edges: [0, 2 ** -24, 0.88, 1.386, 1.387, 5, 20, 20.000002, 87, 103, 207, 700, 709, 710, 65520, 3.4e38],
  },
  where: {
    value: (condition = 0, x = 0, y = 0) => (condition === 0 ? y : x),
    edges: [0, 1, 2 ** -149, 65520, 3.4e38],
  },
} as const satisfies Readonly<Record<string, Rule>>;
