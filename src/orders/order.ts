/** A summation order as data: how the terms of one element are divided, added and joined. */
import type { DotAdd } from "../formats/datapath.js";
import type { AccumulatorName } from "./accumulators.js";

/**
 * The order in which partial sums are joined. "halves" adds sum i + n / 2 to sum i, and repeats this with the first half of the
 * list.
 */
export type JoinName = "ascending" | "descending" | "halves" | "neighbours";

/** How the terms of one chain are added. */
export type Arithmetic =
  /** c = fma(x, w, c) */
  | { readonly kind: "fused" }
  /** c = c ⊕ (x ⊗ w) */
  | { readonly kind: "rounded" }
  /** c = c + x · w in f64 */
  | { readonly kind: "double" }
  /** A step of a tensor core (datapath.md §1). */
  | { readonly kind: "dotAdd"; readonly rule: DotAdd }
  /** c = c + x · w, rounded to a narrow type after each addition. A known mistake. */
  | { readonly kind: "narrow"; readonly format: "bf16" | "f16" };

/** The use of block scales along K. */
export type ScalingName =
  /** Elements are multiplied by their scales and rounded to f32 before the product. */
  | "elements"
  /** total = fma(chain, sX ⊗ sW, total) */
  | "fmaOfProduct"
  /** total = total ⊕ chain ⊗ (sX ⊗ sW) */
  | "addOfProduct"
  /** total = fma(chain ⊗ sX, sW, total) */
  | "fmaInTurn"
  /** total = total ⊕ (chain ⊗ sX) ⊗ sW */
  | "addInTurn"
  /** total = total ⊕ (chain ⊗ sW) ⊗ sX */
  | "addInTurnFromW";

/** Several accumulators that share the terms of a chain. */
export interface Lanes {
  /** The number of accumulators. 1: no division. */
  readonly count: number;
  /** The number of consecutive terms that one accumulator takes before the next accumulator takes terms. */
  readonly run: number;
  readonly join: JoinName;
}

/**
 * A recursive sum: a range is halved, and the sums of the halves are added. A range of at most `base` terms is summed in
 * ascending k.
 */
export interface Pairwise {
  /** The maximum number of terms of a range that is not divided. */
  readonly base: number;
  /**
   * The position at which a range is divided: the middle, the largest power of two below its length, or the position that numpy
   * uses.
   */
  readonly split: "middle" | "power" | "numpy";
}

/** A division of K into contiguous ranges that are summed separately. */
export interface Splits {
  /** The number of ranges. 1: no division. */
  readonly count: number;
  /** The length of a range is a multiple of this number, except for the last range. */
  readonly tile: number;
  readonly join: JoinName;
}

/**
 * One summation order. The levels from outside to inside are splits of K, blocks of a split, lanes of a block, and additions of a
 * lane.
 */
export interface SummationOrder {
  readonly arithmetic: Arithmetic;
  readonly lanes: Lanes;
  /** A recursive sum instead of lanes. */
  readonly pairwise?: Pairwise;
  /** The length of a chain that starts at zero and is added to the total in f32. 0: one chain over the whole split. */
  readonly block: number;
  readonly splits: Splits;
  /** The use of block scales. Absent without block scales. */
  readonly scaling?: ScalingName;
  /** The accumulator that this order needs. Absent for a known mistake, which no kernel may declare. */
  readonly accumulator?: AccumulatorName;
}

/** The terms of one element: for each k two factors, f32 values. */
export interface Terms {
  readonly x: ArrayLike<number>;
  readonly w: ArrayLike<number>;
  /** The smallest normal exponents of the formats of x and w, by which tensor cores align. */
  readonly minExponents: readonly [x: number, w: number];
  /** Block scales: the number of terms that share them, and the scales of each block. */
  readonly scales?: {
    readonly length: number;
    readonly x: ArrayLike<number>;
    readonly w: ArrayLike<number>;
  };
}
