/**
 * The states of optimizers (moments and masters) in low precision: codes, and for some dtypes one scale (numerics.md §9.6). A
 * step reads them as f32 and stores its results. All work consists of operations that every backend has.
 */
import type { Backend } from "../backends/backend.js";
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError } from "../errors.js";
import { persistent } from "../modules/parameter.js";
import { decode, encode } from "../ops/cast/cast.js";
import { tensor, zeros } from "../ops/create.js";
import { add, divide, multiply, where } from "../ops/elementwise/operators.gen.js";
import { concatenate, expand } from "../ops/layout/copy-slice.js";
import { boolean, type Complete, type OptionTable, oneOf } from "../options.js";
import { amaxOf } from "../quantizers/shard.js";
import { type Owned, Scope } from "../tensor/scope.js";
import type { Shape } from "../tensor/shape.js";
import { hasType, type Tensor } from "../tensor/tensor.js";
import { joinMaster, splitMaster } from "./remainders.js";

/** The dtypes of moments. */
const MOMENT_DTYPES = ["f32", "bf16", "f16", "e4m3"] as const;
/** The dtypes of masters. */
const MASTER_DTYPES = ["f32", "f16"] as const;

/** The dtype of a moment, such as a momentum buffer. States of f16 and e4m3 have one scale each. */
export type MomentDType = (typeof MOMENT_DTYPES)[number];
/** The dtype of a master. A master of f16 has one scale. */
export type MasterDType = (typeof MASTER_DTYPES)[number];

/** @shared Checks the dtype of a moment. */
export const momentDType = oneOf(MOMENT_DTYPES);
/** Options of the masters of an optimizer. They cannot be changed later, and are the same for all groups. */
export interface MasterOptions {
  /**
   * The dtype of the masters of parameters that are not f32: f32, or f16 with a scale for each tensor. The step is computed in
   * f32, and the parameter is written from its result before the master is rounded (numerics.md §9.6). Default f32.
   */
  readonly masterWeightDtype?: MasterDType | undefined;
  /**
   * Whether a bf16 parameter holds the upper 16 bits of its f32 master, and only the lower 16 bits are stored. The parameter is
   * then the nearest value to the master, ties away from zero (numerics.md §9.7). Other parameters are not affected. It needs
   * `masterWeightDtype` f32. Default false.
   */
  readonly storeParamRemainders?: boolean | undefined;
}

/** @shared The checks of the options of masters. */
export const MASTER_OPTIONS: OptionTable<MasterOptions> = {
  masterWeightDtype: oneOf(MASTER_DTYPES),
  storeParamRemainders: boolean,
};

/** @shared Returns the options of masters, or their defaults. Throws `ArgumentError` for remainders of f16 masters. */
export function masterOptionsOf(user: string, options: MasterOptions): Complete<MasterOptions> {
  const { masterWeightDtype = "f32", storeParamRemainders = false } = options;
  if (storeParamRemainders && masterWeightDtype !== "f32")
    throw new ArgumentError(
      `${user}: storeParamRemainders needs masters of f32; masterWeightDtype is ${masterWeightDtype}; leave one of them out`,
    );
  return { masterWeightDtype, storeParamRemainders };
}

/** The magnitude to which the largest element is scaled: half of the maximum of f16, and the maximum of e4m3. */
const SCALED_MAX: { readonly [D in MomentDType | "u16"]?: number } = { f16: 65504 / 2, e4m3: 448 };

/** The smallest scale. Its reciprocal is finite. */
const MIN_SCALE = 2 ** -126;

/** A state of a parameter. */
export interface State {
  /** The values, divided by the scale if there is one; for u16, the lower 16 bits of the values. */
  readonly codes: Tensor<MomentDType | "u16">;
  /** The factor of the values, f32 [1]. Undefined for f32 and bf16. */
  readonly scale: Tensor<"f32"> | undefined;
  /** The parameter that holds the upper 16 bits. Undefined unless the codes are u16. */
  readonly upper?: Tensor<"bf16"> | undefined;
}

/** Returns a state of zeros, which no scope owns. Its tensors are added to `created`. */
export function zeroState(
  backend: Backend,
  dtype: MomentDType | "u16",
  shape: Shape,
  created: Owned[],
): State {
  const takeOwnership = <T extends Tensor>(x: T): T => {
    created.push(persistent(x));
    return x;
  };
  const codes = takeOwnership(zeros(backend, dtype, shape));
  return { codes, scale: SCALED_MAX[dtype] === undefined ? undefined : takeOwnership(tensor(backend, [1])) };
}

/** Returns the values of a state: the tensor itself for f32, else a new one. */
export function readState({ codes, scale, upper }: State): Tensor<"f32"> {
  if (hasType(codes, "f32")) return codes;
  if (upper) return joinMaster(upper, codes as Tensor<"u16">);
  const values = decode(codes);
  if (scale) multiplyInPlace(values, scale);
  return values;
}

/** What `storeState` needs in addition to the values. */
export interface StoreOptions {
  /** The groups of ranks that have parts of the tensor. The scale is computed from the amax of the whole tensor. */
  readonly groups: readonly ProcessGroup[];
  /** An f32 [1] flag. If it is exactly 1, the state keeps its bits. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/**
 * Stores `values`, which `readState` returned and a step has updated, also their upper bits. It overwrites `values`, unless the
 * state is f32.
 */
export function storeState(state: State, values: Tensor<"f32">, options: StoreOptions): void {
  const { codes, scale, upper } = state;
  if (hasType(codes, "f32")) return;
  if (upper) {
    // a skipped step leaves the values, whose bits are divided in the same way again
    splitMaster(values, upper, codes as Tensor<"u16">);
    return;
  }
  using _ = new Scope();
  const { backend, dtype } = codes;
  const next = scale && stateScale(values, SCALED_MAX[dtype] as number, options.groups);
  if (next) multiplyInPlace(values, divide(tensor(backend, [1]), next) as Tensor<"f32">);
  if (options.noop) {
    // 0 exactly if the flag is 1
    const isStored = add(options.noop, tensor(backend, [-1]));
    selectWhere(isStored, values, decode(codes));
    if (next) selectWhere(isStored, next, scale);
  }
  if (next) scale.paste(next, 0);
  codes.paste(encode(values, { format: dtype, overflow: "nonfinite" }) as typeof codes, 0);
}

/** Returns the scale by which the largest element becomes `max`, at least `MIN_SCALE`, f32 [1]. */
function stateScale(x: Tensor<"f32">, max: number, groups: readonly ProcessGroup[]): Tensor<"f32"> {
  const { backend } = x;
  const amax = amaxOf(x);
  for (const group of groups) group.reduceMax([amax]);
  const boundedAmax = amaxOf(concatenate([amax, tensor(backend, [max * MIN_SCALE])]));
  return divide(boundedAmax, tensor(backend, [max])) as Tensor<"f32">;
}

/** Replaces x by `alternative` if the condition, f32 [1], is 0. */
function selectWhere(condition: Tensor, x: Tensor<"f32">, alternative: Tensor<"f32">): void {
  if (x.size === 0) return;
  const flat = x.reshape([x.size]);
  where(expand(condition, flat.shape), flat, alternative.reshape(flat.shape), { out: flat });
}

/** Multiplies x by a factor, f32 [1], in place. */
function multiplyInPlace(x: Tensor<"f32">, factor: Tensor<"f32">): void {
  if (x.size === 0) return;
  using _ = new Scope();
  const flat = x.reshape([x.size]);
  multiply(flat, expand(factor, flat.shape), { out: flat });
}
