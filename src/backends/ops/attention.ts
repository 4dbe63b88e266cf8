/** The arguments of attention and its gradient, and their tensors. */
import type { DatapathFamily } from "../../formats/datapath.js";
import type { RandomSource } from "../../random.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { GRAD, type Tensors } from "../tensors.js";

/** The orders of the dimensions of q, k, v and out: batch b, position s, head h, element d; t is a token of any sequence. */
export const ATTENTION_LAYOUTS = ["bshd", "sbhd", "thd"] as const;
/** The order of the dimensions of q, k, v and out. */
export type AttentionLayout = (typeof ATTENTION_LAYOUTS)[number];

/** How keys are divided. Both numbers change bits (numerics.md §10). */
export interface AttentionPlan {
  /** The number of keys of a block, a multiple of 16 from 16 to 1024. */
  readonly blockKeys: number;
  /** The number of keys of a split, a multiple of `blockKeys`, or 0 for no splits. */
  readonly splitKeys: number;
}

/** The dropout of probabilities. */
export interface AttentionDropout extends RandomSource {
  /** The probability that a key is dropped for a query, from 0 to below 1. */
  readonly probability: number;
  /** The total number of heads. q has some of them. */
  readonly allHeads: number;
  /** The index of q's first head among all heads. */
  readonly firstHead: number;
}

/** The arguments that attention and its gradient share. */
export interface AttentionRule {
  /** The queries, [B, Sq, H, D], in the order of `layout`. */
  readonly q: Tensor<WideDType>;
  /** The keys, [B, Sk, G, D] in the order of `layout`, or [pages, length, G, D]. */
  readonly k: Tensor<WideDType>;
  /** The values, [B, Sk, G, V] in the order of `layout`, or [pages, length, G, V]. */
  readonly v: Tensor<WideDType>;
  /** The order of dimensions. */
  readonly layout: AttentionLayout;
  /** The number of sequences. */
  readonly batch: number;
  /** How products are summed. */
  readonly datapath: DatapathFamily;
  /** How keys are divided. */
  readonly plan: AttentionPlan;
  /** The factor of scores, an f32 value above 0. */
  readonly scale: number;
  /** Whether the last query is aligned to the last key. Otherwise the first query is aligned to the first key. */
  readonly alignsEnd: boolean;
  /** The number of visible keys before a query's position; -1 for all. */
  readonly left: number;
  /** The number of visible keys after a query's position; -1 for all. */
  readonly right: number;
  /** The lengths of the sequences of queries, [B]; for `thd` the rows where they begin, [B + 1]. Absent: all rows. */
  readonly queryLengths?: Tensor<"i32"> | undefined;
  /** As `queryLengths`, for keys. */
  readonly keyLengths?: Tensor<"i32"> | undefined;
  /** For `thd` with gaps between sequences: the first row of each sequence of queries, [B + 1]. */
  readonly queryStarts?: Tensor<"i32"> | undefined;
  /** As `queryStarts`, for keys. */
  readonly keyStarts?: Tensor<"i32"> | undefined;
  /** The page of each group of rows of keys and values, [B, pages of a sequence]. */
  readonly pages?: Tensor<"i32"> | undefined;
  /** A byte for each pair, [1 or B, 1 or H, Sq, Sk]: nonzero if the key is hidden from the query. */
  readonly mask?: Tensor<"u8"> | undefined;
  /** A bias that is added to scores, [1 or B, 1 or H, Sq, Sk]. */
  readonly bias?: Tensor<WideDType> | undefined;
  /** Whether the bias is added before the scores are multiplied by the scale. */
  readonly biasBeforeScale: boolean;
  /** The slopes of ALiBi, [H] or [B, H]. */
  readonly slopes?: Tensor<"f32"> | undefined;
  /** A bound of scores, an f32 value; 0 for no bound. */
  readonly softcap: number;
  /** The logit of each head's sink, [H]. */
  readonly sinks?: Tensor<"f32"> | undefined;
  /** The dropout of probabilities. */
  readonly dropout?: AttentionDropout | undefined;
}

/** Arguments of `attention`: softmax(q·kᵀ * scale)·v of each head. */
export interface AttentionArgs extends AttentionRule {
  /** Output: the weighted sums of values, in the shape of q with V elements in place of D. */
  readonly out: Tensor<WideDType>;
  /** Output: the logarithm of the sum of exponentials of each row, [B, H, Sq], or [H, T] for `thd`. */
  readonly lse: Tensor<"f32">;
  /** Output: the largest logit of each head, [H]. */
  readonly maxLogits?: Tensor<"f32"> | undefined;
}

const READS = {
  q: "checked",
  k: "checked",
  v: "checked",
  "queryLengths?": "checked",
  "keyLengths?": "checked",
  "queryStarts?": "checked",
  "keyStarts?": "checked",
  "pages?": "checked",
  "mask?": "checked",
  "bias?": "checked",
  "slopes?": "checked",
  "sinks?": "checked",
} as const;

/** Computes softmax attention. */
export const attention: Tensors<AttentionArgs> = {
  writes: { out: "wide", lse: "f32", "maxLogits?": "f32" },
  reads: READS,
};

/** Arguments of `attentionBackward`: the gradients of the arguments of `attention`. */
export interface AttentionBackwardArgs extends AttentionRule {
  /** The gradient of out, in its shape. */
  readonly grad: Tensor<WideDType>;
  /** The result of the forward pass. */
  readonly result: Tensor<WideDType>;
  /** The `lse` of the forward pass. */
  readonly lse: Tensor<"f32">;
  /** Output: the gradient of q, in its shape. */
  readonly dq: Tensor<WideDType>;
  /** Output: the gradient of k, in its shape. */
  readonly dk: Tensor<WideDType>;
  /** Output: the gradient of v, in its shape. */
  readonly dv: Tensor<WideDType>;
  /** Output: the gradient of the bias, in its shape. */
  readonly dbias?: Tensor<WideDType> | undefined;
  /** Output: the gradient of the sinks, [H]. */
  readonly dsinks?: Tensor<"f32"> | undefined;
}

/** Computes the gradients of softmax attention. */
export const attentionBackward: Tensors<AttentionBackwardArgs> = {
  writes: { dq: "wide", dk: "wide", dv: "wide", "dbias?": "wide", "dsinks?": "f32" },
  reads: { ...READS, ...GRAD, result: "checked", lse: "f32" },
};
