/** Plans of sums over ranks: plain data that decide every bit, for any communicator. */
import { EXACT, type Support } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import { anyListOf, describe, integer, needed, oneOf, optionsOf } from "../options.js";
import { wideDType } from "../tensor/require.js";
import type { WideDType } from "../tensor/shape.js";

/** The rules by which parts are added. */
export const SUM_ALGORITHMS = ["ranked", "ring"] as const;

/** `ranked` adds in f32 from rank 0 on and rounds once; `ring` adds along a ring in the type of the tensor, as NCCL does. */
export type SumAlgorithm = (typeof SUM_ALGORITHMS)[number];

/** How parts are added. It can be printed, saved as JSON, and given again as an option. */
export interface SumPlan {
  /** The rule. */
  readonly algorithm: SumAlgorithm;
  /** Ranks: as they are added (`ranked`), or as each passes its sums on to the next, and the last to the first (`ring`). */
  readonly order: readonly number[];
  /** The type to which each sum but the last is rounded; the last is rounded to the type of the tensor. */
  readonly sum: WideDType;
  /** How many consecutive elements each rank adds up. Of a ring they decide where each sum begins: behind the rank that adds. */
  readonly splits: readonly number[];
}

/** A plan of which all but the algorithm may be left out. */
export type SumPlanOptions = Pick<SumPlan, "algorithm"> & {
  readonly [K in Exclude<keyof SumPlan, "algorithm">]?: SumPlan[K] | undefined;
};

const ranks = anyListOf(integer(0));

export const checkSumPlan = optionsOf<SumPlanOptions>({
  algorithm: needed(oneOf(SUM_ALGORITHMS)),
  order: ranks,
  sum: wideDType,
  splits: ranks,
});

/** What a plan is for. */
export interface SumCase {
  readonly size: number;
  readonly dtype: WideDType;
  /** Elements of each rank: those of the results, or where that is open, what is taken unless told otherwise. */
  readonly splits: readonly number[];
  /** Whether there can be no other splits. */
  readonly fixed: boolean;
}

const DEFAULT: SumPlanOptions = { algorithm: "ranked" };

/** The whole plan. Throws `ArgumentError` for one that is none, or that is not of this case. */
export function completePlan(user: string, given: SumPlanOptions | undefined, of: SumCase): SumPlan {
  const { algorithm, order: wanted, sum: asked, splits = of.splits } = given ?? DEFAULT;
  const ascending = Array.from({ length: of.size }, (_, rank) => rank);
  const order = wanted ?? ascending;
  const isRing = algorithm === "ring";
  const sum = isRing ? of.dtype : "f32";
  if (
    !same(
      [...order].sort((a, b) => a - b),
      ascending,
    )
  )
    throw new ArgumentError(
      `${user}: plan.order is ${describe(order)}; it must have each rank from 0 to ${of.size - 1} once`,
    );
  if (!isRing && !same(order, ascending))
    throw new ArgumentError(`${user}: plan.order is [${order}]; ranked adds in the order [${ascending}]`);
  if (asked !== undefined && asked !== sum)
    throw new ArgumentError(
      `${user}: plan.sum is ${asked}; ${algorithm} adds ${of.dtype} in ${sum}, so leave it out`,
    );
  const total = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);
  const fits = of.fixed
    ? same(splits, of.splits)
    : splits.length === of.size && total(splits) === total(of.splits);
  if (!fits)
    throw new ArgumentError(
      `${user}: plan.splits is [${splits}]; ${of.fixed ? `the results are [${of.splits}] elements` : `it must have ${of.size} counts of ${total(of.splits)} elements in all`}`,
    );
  return { algorithm, order: [...order], sum, splits: [...splits] };
}

/** The ranks in the order in which their parts are added for the elements of rank `owner`. */
export function orderOf({ algorithm, order }: SumPlan, owner: number): readonly number[] {
  if (algorithm === "ranked") return order;
  const next = order.indexOf(owner) + 1;
  return [...order.slice(next), ...order.slice(0, next)];
}

/** Elements for each of `size` ranks: as many for each as for the first, as far as they go. */
export function evenSplits(elements: number, size: number): readonly number[] {
  const most = Math.ceil(elements / size);
  return Array.from({ length: size }, (_, rank) => Math.max(0, Math.min(most, elements - rank * most)));
}

/** Rings of NCCL whose sums were compared with this rule, element by element. */
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

/** Every plan gives the bits it says; of a ring it is another question whether NCCL would take that one. */
export function supportsPlan({ algorithm, order, sum }: SumPlan): Support {
  // two parts have one sum in either order
  if (algorithm === "ranked" || order.length <= 2) return EXACT;
  if (MEASURED_RINGS.some((each) => same(each.order, order) && each.sums.includes(sum))) return EXACT;
  const known = MEASURED_RINGS.map((each) => `[${each.order}] on ${each.where}`).join("; ");
  return {
    ok: true,
    agrees: "bits",
    unverified: `NCCL's sums along the ring [${order}] were not measured; those of ${known} were`,
  };
}

function same(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((each, i) => each === b[i]);
}
