/** Options of a group's operations. */
import { integer, listOf, nested, oneOf, optionsOf } from "../options.js";
import { requireTensor, requireWide } from "../tensor/require.js";
import type { Tensor } from "../tensor/tensor.js";
import { checkSumPlan, type SumPlanOptions } from "./plan.js";

/** Ways to combine parts. */
export const REDUCTIONS = ["sum", "max"] as const;

/** How parts of ranks are combined: added by a plan, or the larger of each two. */
export type ReductionName = (typeof REDUCTIONS)[number];

/** Where a result goes. */
export interface GroupResultOptions {
  /** Takes the result; a tensor of its type and shape. Default: a new one. */
  readonly out?: Tensor | undefined;
}

/** What `allGather` takes. */
export interface AllGatherOptions extends GroupResultOptions {
  /** How many rows, along the first dimension, each rank gives. Default: all as many as this one. */
  readonly rows?: readonly number[] | undefined;
}

/** How `allReduce` combines. */
export interface AllReduceOptions extends GroupResultOptions {
  /** Default `sum`. */
  readonly reduction?: ReductionName | undefined;
  /** Of a sum. Default `{ algorithm: "ranked" }`. */
  readonly plan?: SumPlanOptions | undefined;
}

/** How `reduceScatter` combines, and what each rank gets. */
export interface ReduceScatterOptions extends AllReduceOptions {
  /** How many rows, along the first dimension, each rank gets. Default: all as many. */
  readonly rows?: readonly number[] | undefined;
}

/** The options of a sum that its plan follows from. */
export type PlannedSum = Pick<ReduceScatterOptions, "plan" | "rows">;

/** What `broadcast` takes. */
export interface BroadcastOptions extends GroupResultOptions {
  /** The rank whose elements all get. Default 0. */
  readonly root?: number | undefined;
}

/** What `allToAll` takes. */
export interface AllToAllOptions extends GroupResultOptions {
  /** How many rows go to each rank. Default: to all as many. */
  readonly sent?: readonly number[] | undefined;
  /** How many rows come from each rank; as many as are sent, unless told otherwise. */
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
