/** The options of attention, and their checks. */
import { datapathName } from "../../backends/backend.js";
import type { AttentionLayout, AttentionPlan } from "../../backends/ops/attention.js";
import { ATTENTION_LAYOUTS } from "../../backends/ops/attention.js";
import { ArgumentError, DTypeError } from "../../errors.js";
import type { DatapathFamily } from "../../formats/datapath.js";
import {
  boolean,
  type Domain,
  describe,
  finite,
  integer,
  needed,
  nested,
  oneOf,
  optionsOf,
  ownList,
  u64,
} from "../../options.js";
import { requireF32, requireI32, requireTensor, requireWide } from "../../tensor/require.js";
import type { Tensor } from "../../tensor/tensor.js";

/** The dropout of attention. A call with some of the heads can drop the same keys as a call with all: see `allHeads`. */
export interface AttentionDropoutOptions {
  /** The probability that a key is dropped for a query, from 0 to below 1. It is rounded to a multiple of 2^-16. */
  readonly probability: number;
  /** The key of the random generator, an unsigned 64-bit integer. */
  readonly seed: bigint;
  /** The number of the call, an unsigned 64-bit integer. Only its lower 32 bits are used. Default 0. */
  readonly offset?: bigint | undefined;
  /** The number of heads of the whole model, if q has only some of them. Default: the heads of q. */
  readonly allHeads?: number | undefined;
  /** The index of q's first head among all heads. Default 0. */
  readonly firstHead?: number | undefined;
}

/** Options of `attention` and `attentionBackward`. All fields are optional. */
export interface AttentionRuleOptions {
  /**
   * The order of the dimensions of q, k, v and out: "bshd" [B, S, H, D], "sbhd" [S, B, H, D], or "thd" [T, H, D], where the
   * tokens of all sequences follow each other. Default "bshd".
   */
  readonly layout?: AttentionLayout | undefined;
  /** The factor of scores, a number above 0, rounded to f32. Default 1 / sqrt(D). */
  readonly scale?: number | undefined;
  /** Whether a query sees only keys up to its own position. Default false. */
  readonly causal?: boolean | undefined;
  /** "start": query i is at key i. "end": the last query is at the last key. Default "start". */
  readonly align?: "start" | "end" | undefined;
  /** The numbers of visible keys before and behind a query's position; -1 for all. Default [-1, -1]. */
  readonly window?: readonly [left: number, right: number] | undefined;
  /** A u8 tensor [1 or B, 1 or H, Sq, Sk]: a key is hidden from a query where it is not 0. Not for "thd". */
  readonly mask?: Tensor | undefined;
  /** The lengths of the sequences of queries, i32 [B]. Rows beyond have out 0. Default: all rows. Not for "thd". */
  readonly queryLengths?: Tensor | undefined;
  /** The lengths of the sequences of keys, i32 [B]. Keys beyond are not read. Default: all rows. Not for "thd". */
  readonly keyLengths?: Tensor | undefined;
  /** For "thd" only, where it is required: the total length of the sequences of queries before each one, i32 [B + 1], from 0. */
  readonly cuQueries?: Tensor | undefined;
  /** As `cuQueries`, for keys. */
  readonly cuKeys?: Tensor | undefined;
  /** For "thd" with gaps between sequences: the first token of each sequence of queries, i32 [B + 1]. Default: `cuQueries`. */
  readonly cuPaddedQueries?: Tensor | undefined;
  /** As `cuPaddedQueries`, for keys. Default: `cuKeys`. */
  readonly cuPaddedKeys?: Tensor | undefined;
  /** A wide tensor [1 or B, 1 or H, Sq, Sk] that is added to the scores. Not for "thd". */
  readonly bias?: Tensor | undefined;
  /** Whether the bias is added before or after the scores are multiplied by the scale. Default "afterScale". */
  readonly biasPlace?: "beforeScale" | "afterScale" | undefined;
  /** The slopes of ALiBi, f32 [H] or [B, H]: slope * -|t - j| is added to the score of key j for a query at t. */
  readonly alibiSlopes?: Tensor | undefined;
  /** A number above 0 that bounds scores: softcap * tanh(score / softcap). Default: none. */
  readonly softcap?: number | undefined;
  /** A logit for each head, f32 [H], that takes a part of each row's probability. 0 gives "off by one". Default: none. */
  readonly sinks?: Tensor | undefined;
  /** The dropout of probabilities. Default: none. */
  readonly dropout?: AttentionDropoutOptions | undefined;
  /** How keys are divided. Default: `attentionPlan` of the widths. */
  readonly plan?: AttentionPlan | undefined;
  /** How products are summed. Default: the backend's datapath. */
  readonly datapath?: DatapathFamily | undefined;
}

/** Options of `attention`. All fields are optional. */
export interface AttentionOptions extends AttentionRuleOptions {
  /**
   * The page of each group of rows of keys and values, i32 [B, pages of a sequence]; k and v are [pages, rows of a page, G, D].
   */
  readonly pages?: Tensor | undefined;
  /** Whether to return the largest logit of each head. Default false. */
  readonly maxLogits?: boolean | undefined;
}

/** Options of `attentionBackward`. All fields are optional; the options of the forward pass must be repeated. */
export interface AttentionBackwardOptions extends AttentionRuleOptions {
  /** Whether to compute the gradient of the bias. Default false. */
  readonly biasGrad?: boolean | undefined;
}

/** The maximum number of keys of a block. */
const MAX_KEYS = 1024;

const checkPlan = optionsOf<AttentionPlan>(
  { blockKeys: needed(integer(16, MAX_KEYS)), splitKeys: needed(integer(0, 2 ** 30)) },
  "plan",
);

const plan: Domain = (op, name, value) => {
  const ownPlan = checkPlan(op, value as AttentionPlan, name);
  if (ownPlan.blockKeys % 16 !== 0)
    throw new ArgumentError(`${op}: ${name}.blockKeys is ${ownPlan.blockKeys}; it must be a multiple of 16`);
  if (ownPlan.splitKeys % ownPlan.blockKeys !== 0)
    throw new ArgumentError(
      `${op}: ${name}.splitKeys is ${ownPlan.splitKeys}; it must be a multiple of blockKeys, ${ownPlan.blockKeys}`,
    );
  return ownPlan;
};

/** A finite number that is above 0 as f32. */
const positive: Domain = (op, name, value) => {
  const rounded = Math.fround(finite(op, name, value) as number);
  if (rounded > 0 && Number.isFinite(rounded)) return rounded;
  throw new ArgumentError(`${op}: ${name} is ${describe(value)}; it must be above 0 and finite as f32`);
};

/** @shared Accepts a probability from 0 to below 1. */
export const probability: Domain = (op, name, value) => {
  const number = finite(op, name, value) as number;
  if (number >= 0 && number < 1) return number;
  throw new ArgumentError(`${op}: ${name} is ${describe(value)}; it must be at least 0 and below 1`);
};

const bound = integer(-1, 2 ** 31 - 1);

/** @shared Checks a window: the numbers of visible keys before and behind a query's position. */
export const attentionWindow: Domain = (op, name, value) => {
  const window = ownList(op, name, value, (each, i) => bound(op, `${name}[${i}]`, each), "[left, right]");
  if (window.length === 2) return window;
  throw new ArgumentError(`${op}: ${name} is ${describe(value)}; it must be [left, right]`);
};

const mask: Domain = (op, name, value) => {
  const tensor = requireTensor(op, name, value);
  if (tensor.dtype === "u8") return tensor;
  throw new DTypeError(`${op}: ${name} is ${tensor.dtype}; it must be u8, 0 for a visible key`);
};

const heads = integer(1, 2 ** 31 - 1);

const checkDropout = optionsOf<AttentionDropoutOptions>(
  {
    probability: needed(probability),
    seed: needed(u64),
    offset: u64,
    allHeads: heads,
    firstHead: integer(0, 2 ** 31 - 1),
  },
  "dropout",
);

/** @shared The checks of the options that `attention` and `attentionBackward` share. */
export const ATTENTION_RULE = {
  layout: oneOf(ATTENTION_LAYOUTS),
  scale: positive,
  causal: boolean,
  align: oneOf(["start", "end"]),
  window: attentionWindow,
  mask,
  queryLengths: requireI32,
  keyLengths: requireI32,
  cuQueries: requireI32,
  cuKeys: requireI32,
  cuPaddedQueries: requireI32,
  cuPaddedKeys: requireI32,
  bias: requireWide,
  biasPlace: oneOf(["beforeScale", "afterScale"]),
  alibiSlopes: requireF32,
  softcap: positive,
  sinks: requireF32,
  dropout: nested(checkDropout),
  plan,
  datapath: datapathName,
} as const;

/** @shared Checks the options of `attention`. */
export const checkForward = optionsOf<AttentionOptions>({
  ...ATTENTION_RULE,
  pages: requireI32,
  maxLogits: boolean,
});
/** @shared Checks the options of `attentionBackward`. */
export const checkBackward = optionsOf<AttentionBackwardOptions>({ ...ATTENTION_RULE, biasGrad: boolean });
