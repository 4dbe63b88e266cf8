/**
 * Plans of products. A plan determines the bits of a product, together with the operands and the epilogue. It is chosen
 * here or taken from an earlier result.
 */
import { type Backend, splitsOn } from "../../backends/backend.js";
import { extentOf, type GemmArgs, type GemmOperand } from "../../backends/ops/gemm.js";
import { ArgumentError } from "../../errors.js";
import { DATAPATHS, type DatapathFamily, type DatapathName, datapathFor } from "../../formats/datapath.js";
import { algorithmFault, type GemmAlgorithm, readAlgorithm } from "../../formats/gemm-algorithm.js";
import { anything, optionsOf } from "../../options.js";
import { execute } from "../execute.js";

/** How a product is computed, as plain data. The same plan gives the same bits on every backend that supports it. */
export interface GemmPlan {
  /** The datapath, a key of `DATAPATHS`. */
  readonly datapath: DatapathName;
  /** Whether FP8 partial sums are added to an f32 total every 128 elements of K. */
  readonly splitAccumulator: boolean;
  /** The number of splits of K, at least 1. */
  readonly splitK: number;
  /** The algorithm of a GPU library. Absent if the backend used one of its kernels instead. */
  readonly algorithm?: GemmAlgorithm;
}

/** Options that determine the plan of a product. All fields are optional. */
export interface GemmPlanOptions {
  /** How sums are accumulated. Default: the backend's datapath. */
  readonly datapath?: DatapathFamily | undefined;
  /**
   * Whether FP8 partial sums are added to an f32 total every 128 elements of K. TransformerEngine's use_split_accumulator.
   * Block scales imply it. Default false.
   */
  readonly useSplitAccumulator?: boolean | undefined;
  /** The number of splits of K. With "auto" the backend chooses. Default 1. */
  readonly splitK?: number | "auto" | undefined;
  /** The plan of an earlier result. It determines datapath, split accumulator, splitK and algorithm. */
  readonly plan?: GemmPlan | undefined;
}

/** @shared A plan before the backend has chosen an automatic splitK and an algorithm. */
export interface PlannedGemm extends Omit<GemmPlan, "splitK"> {
  readonly family: DatapathFamily;
  readonly splitK: number | "auto";
}

/** @shared Returns the first invalid field of `value` and what it must be, or undefined if `value` is a valid plan. */
export function planFault(value: unknown): readonly [field: string, needed: string] | undefined {
  const fields = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
  const { datapath, splitAccumulator, splitK, algorithm } = fields;
  if (typeof datapath !== "string" || !Object.hasOwn(DATAPATHS, datapath))
    return ["datapath", `one of ${Object.keys(DATAPATHS).join(", ")}`];
  if (typeof splitAccumulator !== "boolean") return ["splitAccumulator", "a boolean"];
  if (!Number.isSafeInteger(splitK) || (splitK as number) < 1) return ["splitK", "a whole number from 1"];
  const fault = algorithm === undefined ? undefined : algorithmFault(algorithm);
  return fault && [`algorithm.${fault[0]}`, fault[1]];
}

/** Reads the fields once. `planFault` checks them, because it also checks plans of files. */
const readFields = optionsOf<Partial<GemmPlan>>({
  datapath: anything,
  splitAccumulator: anything,
  splitK: anything,
  algorithm: readAlgorithm,
});

/** @shared Returns a copy of the argument if it is a plan. Throws `ArgumentError` if it is not. */
export function requirePlan(op: string, name: string, plan: unknown): GemmPlan {
  const isObject = typeof plan === "object" && plan !== null;
  const ownPlan = (isObject ? readFields(op, plan as GemmPlan, name) : plan) as GemmPlan;
  const fault = planFault(ownPlan);
  if (fault) throw new ArgumentError(`${op}: the ${name}'s ${fault[0]} is not ${fault[1]}`);
  return ownPlan;
}

/** @shared Returns the datapath family of a product: from the plan, else the option, else the backend. */
export function familyOf(
  backend: Backend,
  { plan, datapath }: Pick<GemmPlanOptions, "plan" | "datapath">,
): DatapathFamily {
  return plan ? (plan.datapath.split("-")[0] as DatapathFamily) : (datapath ?? backend.datapath);
}

/** @shared Returns the given plan, or chooses one. Throws `ArgumentError` if a given plan does not fit the operands. */
export function planOf(
  op: string,
  family: DatapathFamily,
  {
    plan,
    useSplitAccumulator = false,
    splitK: wished = 1,
  }: Pick<GemmPlanOptions, "plan" | "useSplitAccumulator" | "splitK">,
  { x, w }: { readonly x: GemmOperand; readonly w: GemmOperand },
): PlannedGemm {
  const choice = datapathFor(family, x.traits, w.traits, plan?.splitAccumulator ?? useSplitAccumulator);
  if (plan && choice.ok && choice.name !== plan.datapath)
    throw new ArgumentError(`${op}: the plan is for ${plan.datapath}; these operands take ${choice.name}`);
  const splitK = plan?.splitK ?? wished;
  // a backend that chooses splitK may leave some splits empty; an explicit splitK that would do so is an error
  if (splitK !== "auto")
    requireSplits(op, splitK, plan?.algorithm || !choice.ok ? 0 : choice.splitTile, extentOf(x)[1]);
  const splitAccumulator = choice.ok && choice.promotion !== "none";
  const planned = { family, datapath: choice.ok ? choice.name : "exact", splitAccumulator, splitK } as const;
  return plan?.algorithm ? { ...planned, algorithm: requireAlgorithm(op, plan, plan.algorithm) } : planned;
}

function requireSplits(op: string, splitK: number, splitTile: number, depth: number): void {
  if (splitK > Math.max(1, depth))
    throw new ArgumentError(`${op}: splitK is ${splitK} and K ${depth}; it can be at most K`);
  if (splitTile === 0) return;
  const tiles = Math.ceil(depth / splitTile);
  if (splitK <= Math.max(1, tiles)) return;
  throw new ArgumentError(
    `${op}: splitK is ${splitK} and K ${depth} has ${tiles} tiles of ${splitTile}; use at most one split a tile`,
  );
}

function requireAlgorithm(op: string, plan: GemmPlan, algorithm: GemmAlgorithm): GemmAlgorithm {
  if (algorithm.splitK === plan.splitK) return algorithm;
  throw new ArgumentError(
    `${op}: the plan has splitK ${plan.splitK} and its algorithm ${algorithm.splitK}; they must be equal`,
  );
}

/** @shared The complete plan of a computed product, and whether its bits are verified. */
export interface Multiplied {
  readonly plan: GemmPlan;
  /**
   * Set if the bits rely on a model of the hardware that was not measured on this chip with this library. The text is the
   * reason.
   */
  readonly unverified?: string;
}

/** @shared Runs the product and returns its complete plan. Throws `UnsupportedError` with the backend's reason. */
export function multiply(backend: Backend, args: GemmArgs, planned: PlannedGemm): Multiplied {
  const { unverified } = execute(backend, "gemm", args);
  const algorithm = backend.algorithmFor?.(args);
  const { datapath, splitAccumulator } = planned;
  const splitK = algorithm?.splitK ?? splitsOn(backend, args);
  const plan = { datapath, splitAccumulator, splitK, ...(algorithm ? { algorithm } : {}) };
  return unverified === undefined ? { plan } : { plan, unverified };
}
