/** A summation order as data: how the terms of one element are divided, added and joined. */
import type { DotAdd } from "../formats/datapath.js";
import type { AccumulatorName } from "./accumulators.js";

/** How partial sums are joined. The third one halves the list: sum i gets the sum i + n / 2. */
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
  /** c = c + x · w, rounded to a narrow type after each addition: a mistake, known by name. */
  | { readonly kind: "narrow"; readonly format: "bf16" | "f16" };

/** How block scales along K are applied. */
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
  /** The number of consecutive terms that one accumulator takes before the next one does. */
  readonly run: number;
  readonly join: JoinName;
}

/** A recursive sum: halves are summed and added, down to a base that is summed in ascending k. */
export interface Pairwise {
  /** The largest number of terms that is not divided. */
  readonly base: number;
  /** Where a range is divided: in the middle, or at the largest power of two below its length, or as numpy does. */
  readonly split: "middle" | "power" | "numpy";
}

/** A division of K into contiguous ranges that are summed separately. */
export interface Splits {
  /** The number of ranges. 1: no division. */
  readonly count: number;
  /** The length of which every range but the last is a multiple. */
  readonly tile: number;
  readonly join: JoinName;
}

/** One summation order. From outside to inside: splits of K, blocks of a split, lanes of a block, additions of a lane. */
export interface SummationOrder {
  readonly arithmetic: Arithmetic;
  readonly lanes: Lanes;
  /** A recursive sum instead of lanes. */
  readonly pairwise?: Pairwise;
  /** The length of a chain that starts at zero and is added to the total in f32. 0: one chain over the whole split. */
  readonly block: number;
  readonly splits: Splits;
  /** How block scales are applied. Absent if there are none. */
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
