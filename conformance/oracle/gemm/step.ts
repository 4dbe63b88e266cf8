/** The fused dot-add of datapath.md §1, in exact integers. */
import type { DotAdd } from "../../../src/formats/datapath.js";

/** The number significand * 2^exponent. */
interface Dyadic {
  readonly significand: bigint;
  readonly exponent: number;
}

/** A factor of a product: its value, and the exponent that it contributes to the product. */
export interface Factor {
  readonly value: number;
  readonly exponent: number;
  /** The value as a dyadic number; 0 for infinity and NaN, where it is never used. */
  readonly exact: Dyadic;
}

export function toFactor(value: number, exponent: number): Factor {
  return { value, exponent, exact: dyadic(Number.isFinite(value) ? value : 0) };
}

export function dyadic(x: number): Dyadic {
  if (x === 0) return { significand: 0n, exponent: 0 };
  let exponent = Math.floor(Math.log2(Math.abs(x))) - 60;
  exponent = Math.max(exponent, -1074);
  const scaled = exponent < -1000 ? x * 2 ** 1000 * 2 ** (-exponent - 1000) : x * 2 ** -exponent;
  return { significand: BigInt(scaled), exponent };
}

export function product(a: Dyadic, b: Dyadic): Dyadic {
  return { significand: a.significand * b.significand, exponent: a.exponent + b.exponent };
}

export function sum(terms: readonly Dyadic[]): Dyadic {
  const exponent = Math.min(0, ...terms.map((t) => t.exponent));
  return {
    significand: terms.reduce((s, t) => s + (t.significand << BigInt(t.exponent - exponent)), 0n),
    exponent,
  };
}

/** `t` truncated toward zero to a multiple of 2^grid, in units of 2^grid. */
function truncate(t: Dyadic, grid: number): bigint {
  const shift = BigInt(Math.abs(t.exponent - grid));
  if (t.exponent >= grid) return t.significand << shift;
  const magnitude = (t.significand < 0n ? -t.significand : t.significand) >> shift;
  return t.significand < 0n ? -magnitude : magnitude;
}

function bitLength(n: bigint): number {
  return n === 0n ? 0 : (n < 0n ? -n : n).toString(2).length;
}

/** floor(log2 |x|), but at least `minimum`; `ofZero` for zero. The result for infinity and NaN is never used. */
export function exponentOf(x: number, minimum: number, ofZero: number): number {
  if (!Number.isFinite(x)) return 0;
  if (x === 0) return ofZero;
  const { significand, exponent } = dyadic(x);
  return Math.max(bitLength(significand) - 1 + exponent, minimum);
}

/**
 * The result if a term is infinite or NaN: NaN, or the infinity if all infinities have the same sign. Undefined if all
 * terms are finite.
 */
export function special(terms: readonly number[]): number | undefined {
  const nonFiniteTerms = terms.filter((t) => !Number.isFinite(t));
  return nonFiniteTerms.length === 0 ? undefined : nonFiniteTerms.reduce((a, b) => a + b);
}

/** A sum in units of 2^grid as f32: truncated to P fraction bits, with exponents from -126; overflow gives infinity. */
function truncateToF32(units: bigint, grid: number, fractionBits: number): number {
  const top = bitLength(units) - 1 + grid;
  const lowestExponent = Math.max(top, -126) - fractionBits;
  const significand = truncate({ significand: units, exponent: grid }, lowestExponent);
  if (significand === 0n) return 0;
  if (top > 127) return significand < 0n ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  return Number(significand) * 2 ** lowestExponent;
}

/** The terms of one step and their exponents. A term is a product, or the exact sum of a group of products. */
function stepTerms(
  rule: DotAdd,
  x: readonly Factor[],
  w: readonly Factor[],
): { exact: Dyadic; exponent: number }[] {
  const terms: { exact: Dyadic; exponent: number }[] = [];
  for (let k = 0; k < x.length; k += rule.group) {
    const pairs = x.slice(k, k + rule.group).map((a, i) => [a, w[k + i] as Factor] as const);
    const exact = sum(pairs.map(([a, b]) => product(a.exact, b.exact)));
    const isSkipped = rule.zeroOperand === "none" && pairs.every(([a, b]) => a.value === 0 || b.value === 0);
    const [[a, b]] = pairs as [readonly [Factor, Factor]];
    terms.push({ exact, exponent: isSkipped ? rule.zeroAccumulator : a.exponent + b.exponent });
  }
  return terms;
}

export function step(rule: DotAdd, c: number, x: readonly Factor[], w: readonly Factor[]): number {
  const nonFinite = special([c, ...x.map((a, k) => a.value * (w[k] as Factor).value)]);
  if (nonFinite !== undefined) return nonFinite;
  const terms = stepTerms(rule, x, w);
  const ofC = exponentOf(c, -126, rule.zeroAccumulator);
  const grid = Math.max(ofC, ...terms.map((t) => t.exponent)) - rule.alignBits;
  const units = [...terms.map((t) => t.exact), dyadic(c)].reduce((s, t) => s + truncate(t, grid), 0n);
  return truncateToF32(units, grid, rule.fractionBits);
}

/** The exponent of a zero operand. If the rule detects zero products by their value, it is below every product's exponent. */
export function zeroExponent(rule: "exact" | "fp32" | DotAdd): number {
  return typeof rule === "object" && rule.zeroOperand !== "none" ? rule.zeroOperand : -9999;
}

/** One step on elements of a format, which are multiplied unchanged. */
export interface StepTask {
  readonly rule: DotAdd;
  readonly accumulator: number;
  /** At most `rule.step` factors each; zeros fill the step. */
  readonly x: readonly number[];
  readonly w: readonly number[];
  /** The exponent of the smallest normal number of the format. */
  readonly minExponent: number;
}

/** The accumulator after a step. */
export function dotAddStep({ rule, accumulator, x, w, minExponent }: StepTask): number {
  const factor = (value: number): Factor =>
    toFactor(value, exponentOf(value, minExponent, zeroExponent(rule)));
  return step(rule, accumulator, x.map(factor), w.map(factor));
}
