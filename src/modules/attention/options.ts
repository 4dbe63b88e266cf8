/** The options of attention modules, with TransformerEngine's names. */
import { ATTENTION_LAYOUTS, type AttentionLayout } from "../../backends/ops/attention.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { ArgumentError, DTypeError } from "../../errors.js";
import { type ContextExchange, contextExchange } from "../../functional/context-parallel.js";
import {
  type groupOf,
  processGroup,
  SEQUENCE_PARALLEL_OPTIONS,
  type SequenceParallelOptions,
} from "../../functional/ranks.js";
import { attentionWindow, probability } from "../../ops/attention/options.js";
import {
  anything,
  atLeastZero,
  boolean,
  type Domain,
  describe,
  finite,
  integer,
  type OptionTable,
  oneOf,
  optionsOf,
} from "../../options.js";

import type { VariableLike } from "../../tape/differentiable.js";
import { requireF32, requireI32, requireTensor } from "../../tensor/require.js";
import type { Tensor } from "../../tensor/tensor.js";
import { MODULE_OPTIONS, type ModuleOptions } from "../module.js";
import { InferenceParams } from "./inference-params.js";
import { type AttentionMaskType, type AttentionWindow, maskType } from "./masks.js";

/** The logit that takes a part of each row's probability in addition to the keys: none, 0, or a learnable one for each head. */
export type SoftmaxType = "vanilla" | "off-by-one" | "learnable";
/** The bias of scores: none, added before or after the scale, or ALiBi. */
export type AttentionBiasType = "no_bias" | "pre_scale_bias" | "post_scale_bias" | "alibi";

/** Options of the masks of attention, which a call may replace. All fields are optional. */
export interface AttentionMaskOptions {
  /** The kind of mask. Default "causal". */
  readonly attnMaskType?: AttentionMaskType | undefined;
  /** The numbers of visible keys before and after a query; -1 for all. Default: all that the mask shows. */
  readonly windowSize?: AttentionWindow | undefined;
  /** Whether windows and ALiBi align the last query to the last key. It applies to masks that are not causal. Default true. */
  readonly bottomRightDiagonal?: boolean | undefined;
  /** A bound of scores: softcap * tanh(score / softcap). 0 means no bound. Default 0. */
  readonly softcap?: number | undefined;
}

/** Options of `DotProductAttention`. All fields are optional. */
export interface DotProductAttentionOptions
  extends ModuleOptions,
    SequenceParallelOptions,
    AttentionMaskOptions {
  /** The number of heads of keys and values. Default: the number of heads of queries. */
  readonly numGqaGroups?: number | undefined;
  /** The probability that a key is dropped for a query. Default 0. */
  readonly attentionDropout?: number | undefined;
  /** The order of the dimensions. Default "sbhd". */
  readonly qkvFormat?: AttentionLayout | undefined;
  /** The factor of scores. Default: 1 / sqrt(the width of a head). */
  readonly softmaxScale?: number | undefined;
  /** Whether a logit of 0, or a learnable one, takes a part of each row's probability. Default "vanilla", which has none. */
  readonly softmaxType?: SoftmaxType | undefined;
  /** The number of this layer in an `InferenceParams`, from 1. Default 1. */
  readonly layerNumber?: number | undefined;
  /**
   * The ranks among which the positions of every sequence are divided evenly, in order of ranks (context parallelism). Default:
   * this rank has all positions.
   */
  readonly cpGroup?: ProcessGroup | undefined;
  /** How these ranks exchange positions, as in `functional.attention`. Default "p2p". */
  readonly cpCommType?: ContextExchange | undefined;
}

/** Options of one call of attention. All fields are optional. */
export interface AttentionCall extends AttentionMaskOptions {
  /** The mask "arbitrary": u8 [1 or B, 1 or H, Sq, Sk], not 0 for a hidden key. */
  readonly attentionMask?: Tensor | undefined;
  /** The order of the dimensions. Default: the option of the module. */
  readonly qkvFormat?: AttentionLayout | undefined;
  /** For "thd": the row at which each sequence of queries begins, and the end of the last one, i32 [B + 1]. */
  readonly cuSeqlensQ?: Tensor | undefined;
  /** As `cuSeqlensQ`, for keys. Default: `cuSeqlensQ`. */
  readonly cuSeqlensKv?: Tensor | undefined;
  /** For "thd" with gaps: the row at which each sequence of queries begins; `cuSeqlensQ` says its length. i32 [B + 1]. */
  readonly cuSeqlensQPadded?: Tensor | undefined;
  /** As `cuSeqlensQPadded`, for keys. Default: `cuSeqlensQPadded` if `cuSeqlensKv` is absent. */
  readonly cuSeqlensKvPadded?: Tensor | undefined;
  /** For padding masks of "bshd" and "sbhd": the length of each sequence of queries, i32 [B]. */
  readonly seqlensQ?: Tensor | undefined;
  /** As `seqlensQ`, for keys. Default: `seqlensQ`. */
  readonly seqlensKv?: Tensor | undefined;
  /** Where the bias is added, or "alibi". Default "no_bias". */
  readonly coreAttentionBiasType?: AttentionBiasType | undefined;
  /** The bias, [1 or B, 1 or H, Sq, Sk]. */
  readonly coreAttentionBias?: VariableLike | undefined;
  /** The slopes of ALiBi, f32 [H] or [B, H]. Default: the slopes of the ALiBi paper. */
  readonly alibiSlopes?: Tensor | undefined;
  /** Whether attention is computed again in the backward pass instead of keeping its result. Default false. */
  readonly checkpointCoreAttention?: boolean | undefined;
  /** The cache of keys and values. */
  readonly inferenceParams?: InferenceParams | undefined;
  /** Whether dropout is applied. Default true. */
  readonly training?: boolean | undefined;
}

const aboveZero: Domain = (caller, name, value) => {
  const number = finite(caller, name, value) as number;
  if (Math.fround(number) > 0 && Number.isFinite(Math.fround(number))) return number;
  throw new ArgumentError(`${caller}: ${name} is ${describe(value)}; it must be above 0 and finite as f32`);
};

const mask: Domain = (caller, name, value) => {
  const tensor = requireTensor(caller, name, value);
  if (tensor.dtype === "u8") return tensor;
  throw new DTypeError(`${caller}: ${name} is ${tensor.dtype}; it must be u8, 0 for a visible key`);
};

const inferenceParams: Domain = (caller, name, value) => {
  if (value instanceof InferenceParams) return value;
  throw new ArgumentError(`${caller}: ${name} is ${describe(value)}; it must be an InferenceParams`);
};

export const layout = oneOf(ATTENTION_LAYOUTS);
const softmaxType = oneOf(["vanilla", "off-by-one", "learnable"]);

/** The checks of `AttentionMaskOptions`. */
export const MASK_OPTIONS = {
  attnMaskType: maskType,
  windowSize: attentionWindow,
  bottomRightDiagonal: boolean,
  softcap: atLeastZero,
} as const;

/** The checks of `DotProductAttentionOptions`. */
export const ATTENTION_OPTIONS: OptionTable<DotProductAttentionOptions> = {
  ...MODULE_OPTIONS,
  ...SEQUENCE_PARALLEL_OPTIONS,
  ...MASK_OPTIONS,
  numGqaGroups: integer(1),
  attentionDropout: probability,
  qkvFormat: layout,
  softmaxScale: aboveZero,
  softmaxType,
  layerNumber: integer(1),
  cpGroup: processGroup,
  cpCommType: contextExchange,
};

/** The checks of `AttentionCall`. */
export const ATTENTION_CALL: OptionTable<AttentionCall> = {
  ...MASK_OPTIONS,
  attentionMask: mask,
  qkvFormat: layout,
  cuSeqlensQ: requireI32,
  cuSeqlensKv: requireI32,
  cuSeqlensQPadded: requireI32,
  cuSeqlensKvPadded: requireI32,
  seqlensQ: requireI32,
  seqlensKv: requireI32,
  coreAttentionBiasType: oneOf(["no_bias", "pre_scale_bias", "post_scale_bias", "alibi"]),
  coreAttentionBias: anything,
  alibiSlopes: requireF32,
  checkpointCoreAttention: boolean,
  inferenceParams,
  training: boolean,
};

export const checkAttentionCall = optionsOf<AttentionCall>(ATTENTION_CALL, "call");

/** The numbers of heads of a module, on this rank and on all. */
export interface HeadCounts {
  readonly heads: number;
  readonly groups: number;
  readonly allHeads: number;
  readonly firstHead: number;
}

/** Divides heads among the ranks of a group. Throws `ArgumentError` for numbers that do not divide each other. */
export function headCounts(
  caller: string,
  all: { readonly heads: number; readonly groups: number },
  group: ReturnType<typeof groupOf>,
): HeadCounts {
  const { size = 1, rank = 0 } = group ?? {};
  if (all.heads % all.groups !== 0)
    throw new ArgumentError(
      `${caller}: numAttentionHeads ${all.heads} is not a multiple of numGqaGroups ${all.groups}; give one that is`,
    );
  if (all.groups % size !== 0)
    throw new ArgumentError(
      `${caller}: ${all.groups} heads of keys and values are not divisible among ${size} ranks; give a multiple of ${size}`,
    );
  const heads = all.heads / size;
  return { heads, groups: all.groups / size, allHeads: all.heads, firstHead: rank * heads };
}
