/** The options of a group's operations. */
import { integer, listOf, nested, oneOf, optionsOf } from "../options.js";
import { requireTensor, requireWide } from "../tensor/require.js";
import type { Tensor } from "../tensor/tensor.js";
import { checkSumPlan, type SumPlanOptions } from "./plan.js";

/** The reductions. */
export const REDUCTIONS = ["sum", "mean", "max"] as const;

/**
 * How inputs are reduced: added by a plan (`sum`), added by a plan, rounded to their dtype and multiplied by f32(1 / ranks)
 * (`mean`), or by an elementwise maximum.
 */
export type ReductionName = (typeof REDUCTIONS)[number];

/** The destination of a result. */
export interface GroupResultOptions {
  /** The tensor that receives the result, with the right type and shape. Default: a new tensor. */
  readonly out?: Tensor | undefined;
}

/** The options of `allGather`. */
export interface AllGatherOptions extends GroupResultOptions {
  /** The number of rows (first dimension) of each rank. Default: as many as on this rank. */
  readonly rows?: readonly number[] | undefined;
}

/** The reduction of `allReduce`. */
export interface AllReduceOptions extends GroupResultOptions {
  /** The reduction. Default `sum`. */
  readonly reduction?: ReductionName | undefined;
  /** The plan of a sum or mean. Default `{ algorithm: "ranked" }`. */
  readonly plan?: SumPlanOptions | undefined;
}

/** The reduction of `reduceScatter`, and the rows of each rank. */
export interface ReduceScatterOptions extends AllReduceOptions {
  /** The number of rows (first dimension) that each rank receives. Default: the same number for all. */
  readonly rows?: readonly number[] | undefined;
}

/** The options that determine the plan of a sum. */
export type PlannedSum = Pick<ReduceScatterOptions, "plan" | "rows">;

/** The options of `broadcast`. */
export interface BroadcastOptions extends GroupResultOptions {
  /** The rank that sends its elements. Default 0. */
  readonly root?: number | undefined;
}

/** The options of `allToAll`. */
export interface AllToAllOptions extends GroupResultOptions {
  /** The number of rows for each rank. Default: the same number for all. */
  readonly sent?: readonly number[] | undefined;
  /** The number of rows from each rank. Default: the numbers in `sent`. */
  readonly received?: readonly number[] | undefined;
}

const rows = listOf(integer(0));
const result = { out: requireTensor } as const;
const reduced = { reduction: oneOf(REDUCTIONS), plan: nested(checkSumPlan), out: requireWide } as const;

export const checkAllGather = optionsOf<AllGatherOptions>({ rows, ...result });
export const checkAllReduce = optionsOf<AllReduceOptions>(reduced);
export const checkReduceScatter = optionsOf<ReduceScatterOptions>({ rows, ...reduced });
export const checkPlannedSum = optionsOf<PlannedSum>({ rows, plan: reduced.plan });
export const checkBroadcast = optionsOf<BroadcastOptions>({ root: integer(0), ...result });
export const checkAllToAll = optionsOf<AllToAllOptions>({ sent: rows, received: rows, ...result });
