/** One fused dot-add of a tensor core (datapath.md §1), computed exactly in f64. */
import type { DotAdd } from "../formats/datapath.js";
import { floorLog2, truncateTo, truncationTo } from "./binary.js";

/** The exponent used for a subnormal accumulator: the exponent of the smallest normal f32. */
const F32_MIN_EXPONENT = -126;

/**
 * A term of a step: the exact product, or the exact sum of a group of products. No exponent if it is zero and takes no part in
 * the alignment.
 */
export interface Term {
  readonly value: number;
  readonly exponent?: number;
}

/** The parameters of a step that decide its sum. */
export type Alignment = Pick<DotAdd, "alignBits" | "fractionBits" | "zeroAccumulator">;

/** The result of a step. Terms and accumulator are truncated to multiples of 2^grid. */
export interface DotAddSum {
  /** The largest exponent of terms and accumulator. */
  readonly exponent: number;
  readonly grid: number;
  /** The exact sum of the truncated terms and accumulator. */
  readonly sum: number;
  /** The sum, truncated to the fraction bits of the datapath. */
  readonly result: number;
}

/** The exponent with which an accumulator takes part in the alignment. */
export function accumulatorExponent(c: number, zeroAccumulator: number): number {
  return c === 0 ? zeroAccumulator : Math.max(floorLog2(c), F32_MIN_EXPONENT);
}

/** Adds finite terms to a finite accumulator. */
export function dotAdd(rule: Alignment, c: number, terms: readonly Term[]): DotAddSum {
  let exponent = accumulatorExponent(c, rule.zeroAccumulator);
  for (const term of terms)
    if (term.exponent !== undefined && term.exponent > exponent) exponent = term.exponent;
  const grid = exponent - rule.alignBits;
  const truncated = truncationTo(grid);
  let sum = truncated(c);
  for (const { value } of terms) sum += truncated(value);
  return { exponent, grid, sum: sum + 0, result: truncateSum(sum, rule.fractionBits) };
}

/**
 * Truncates a sum toward zero to `fractionBits` fraction bits in f32's exponent range. Overflow gives an infinity; zero gives +0.
 */
function truncateSum(sum: number, fractionBits: number): number {
  if (sum === 0) return 0;
  if (Math.abs(sum) >= 2 ** 128) return sum < 0 ? -Infinity : Infinity;
  return truncateTo(sum, Math.max(floorLog2(sum), F32_MIN_EXPONENT) - fractionBits);
}
