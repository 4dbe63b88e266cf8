/** Plans of sums over ranks, as plain data. A plan determines every bit of the result, on every communicator. */
import { EXACT, type Support } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import { anyListOf, describe, integer, needed, type OptionTable, oneOf, optionsOf } from "../options.js";
import { wideDType } from "../tensor/require.js";
import type { WideDType } from "../tensor/shape.js";

/** The algorithms by which inputs are added. */
export const SUM_ALGORITHMS = ["ranked", "ring"] as const;

/**
 * `ranked` adds in f32, starting at rank 0, and rounds once. `ring` adds along a ring of ranks in the type of the
 * tensor, as NCCL does.
 */
export type SumAlgorithm = (typeof SUM_ALGORITHMS)[number];

/** How inputs are added. A plan can be printed, saved as JSON, and passed as an option again. */
export interface SumPlan {
  /** The algorithm. */
  readonly algorithm: SumAlgorithm;
  /**
   * The order of the ranks. `ranked`: the order in which they are added. `ring`: each rank passes its partial sums to
   * the next one, and the last rank to the first.
   */
  readonly order: readonly number[];
  /** The type to which every partial sum is rounded. The final sum is rounded to the type of the tensor. */
  readonly sum: WideDType;
  /**
   * The number of consecutive elements whose sums each rank computes. In a ring, the sum of an element ends at the rank that
   * these counts assign to the element, and starts at the next rank of the ring.
   */
  readonly splits: readonly number[];
}

/** A plan in which only the algorithm is required. */
export type SumPlanOptions = Pick<SumPlan, "algorithm"> & {
  readonly [K in Exclude<keyof SumPlan, "algorithm">]?: SumPlan[K] | undefined;
};

const ranks = anyListOf(integer(0));

/**
 * The algorithm and the order of a plan. Sums of all tensors of a group can share these; the other fields depend on the tensor.
 */
export type SumOrder = Pick<SumPlanOptions, "algorithm" | "order">;

const SUM_ORDER: OptionTable<SumOrder> = { algorithm: needed(oneOf(SUM_ALGORITHMS)), order: ranks };

export const checkSumOrder = optionsOf<SumOrder>(SUM_ORDER);

export const checkSumPlan = optionsOf<SumPlanOptions>({ ...SUM_ORDER, sum: wideDType, splits: ranks });

/** The sum that a plan is for. */
export interface SumCase {
  readonly size: number;
  readonly dtype: WideDType;
  /** The number of result elements of each rank. If `fixed` is false, it is only the default. */
  readonly splits: readonly number[];
  /** Whether a plan must have these splits. */
  readonly fixed: boolean;
}

const DEFAULT: SumPlanOptions = { algorithm: "ranked" };

/** Completes a plan. Throws `ArgumentError` for an invalid plan, and for a plan that does not fit this sum. */
export function completePlan(caller: string, options: SumPlanOptions | undefined, sumCase: SumCase): SumPlan {
  const { algorithm, order: orderOption, sum: sumOption, splits = sumCase.splits } = options ?? DEFAULT;
  const ascending = Array.from({ length: sumCase.size }, (_, rank) => rank);
  const order = orderOption ?? ascending;
  const isRing = algorithm === "ring";
  const sum = isRing ? sumCase.dtype : "f32";
  if (
    !equalNumbers(
      [...order].sort((a, b) => a - b),
      ascending,
    )
  )
    throw new ArgumentError(
      `${caller}: plan.order is ${describe(order)}; it must have each rank from 0 to ${sumCase.size - 1} once`,
    );
  if (!isRing && !equalNumbers(order, ascending))
    throw new ArgumentError(`${caller}: plan.order is [${order}]; ranked adds in the order [${ascending}]`);
  if (sumOption !== undefined && sumOption !== sum)
    throw new ArgumentError(
      `${caller}: plan.sum is ${sumOption}; ${algorithm} adds ${sumCase.dtype} in ${sum}, so leave it out`,
    );
  const total = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);
  const isMatch = sumCase.fixed
    ? equalNumbers(splits, sumCase.splits)
    : splits.length === sumCase.size && total(splits) === total(sumCase.splits);
  if (!isMatch)
    throw new ArgumentError(
      `${caller}: plan.splits is [${splits}]; ${sumCase.fixed ? `the results are [${sumCase.splits}] elements` : `it must have ${sumCase.size} counts of ${total(sumCase.splits)} elements in all`}`,
    );
  return { algorithm, order: [...order], sum, splits: [...splits] };
}

/** The order in which the inputs are added for the elements of rank `owner`. */
export function orderOf({ algorithm, order }: SumPlan, owner: number): readonly number[] {
  if (algorithm === "ranked") return order;
  const next = order.indexOf(owner) + 1;
  return [...order.slice(next), ...order.slice(0, next)];
}

/** Divides elements among `size` ranks: every rank gets the same number as the first rank, until no elements are left. */
export function evenSplits(elements: number, size: number): readonly number[] {
  const share = Math.ceil(elements / size);
  return Array.from({ length: size }, (_, rank) => Math.max(0, Math.min(share, elements - rank * share)));
}

/** The rings for which NCCL's sums were compared with this rule, element by element. */
const MEASURED_RINGS: readonly {
  readonly order: readonly number[];
  readonly sums: readonly WideDType[];
  readonly where: string;
}[] = [
  {
    order: [0, 1, 2, 3],
    sums: ["f32", "bf16", "f16"],
    where: "four H100 of one host, NVSwitch, without NVLS",
  },
];

/**
 * Returns whether a plan is supported. Every plan determines all bits. For a ring, `unverified` says that it is unknown whether
 * NCCL adds in that order.
 */
export function supportsPlan({ algorithm, order, sum }: SumPlan): Support {
  // the sum of two inputs is the same in either order
  if (algorithm === "ranked" || order.length <= 2) return EXACT;
  if (MEASURED_RINGS.some((each) => equalNumbers(each.order, order) && each.sums.includes(sum))) return EXACT;
  const measured = MEASURED_RINGS.map((each) => `[${each.order}] on ${each.where}`).join("; ");
  return {
    ok: true,
    agrees: "bits",
    unverified: `NCCL's sums along the ring [${order}] were not measured; measured: ${measured}`,
  };
}

function equalNumbers(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((each, i) => each === b[i]);
}
