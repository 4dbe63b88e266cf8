/** The configuration of a language model. It states every setting of every layer. */
import type { ActivationName, SwigluClamp } from "../../backends/ops.js";
import type { RouterScoreFunction } from "../../functional/router.js";
import type { RotaryScaling } from "../../modules/rotary/inverse-frequencies.js";
import type { WideDType } from "../../tensor/shape.js";

/** The rotary embedding of a layer. */
export interface RotaryConfig {
  /** The number of elements of a head that are rotated. */
  readonly dim: number;
  /** The base of the geometric series of frequencies. */
  readonly base: number;
  /** A rule that scales the frequencies; absent if there is none. */
  readonly scaling?: RotaryScaling | undefined;
  /** Whether the two elements of a rotated pair are neighbours. Default false: they are half of the rotated elements apart. */
  readonly interleaved?: boolean | undefined;
}

/** Multi-head latent attention (MLA): queries, and keys and values, are computed from low-rank projections of the input. */
export interface LatentConfig {
  /** The rank of the projection of queries; absent if queries are projected directly from the input. */
  readonly queryRank?: number | undefined;
  /** The rank of the common projection of keys and values. */
  readonly keyValueRank: number;
}

/** The attention of a layer: projections of queries, keys and values, softmax attention, and a projection of its result. */
export interface AttentionConfig {
  /** The number of query heads. */
  readonly heads: number;
  /** The number of key-value heads. */
  readonly keyValueHeads: number;
  /** The number of elements of a head. */
  readonly headDim: number;
  /** Whether the projections of queries, keys and values have biases. */
  readonly inputBias: boolean;
  /** Whether the projection of the result has a bias. */
  readonly outputBias: boolean;
  /** Whether each head of queries and keys is normalized by RMSNorm before it is rotated. */
  readonly headNorms: boolean;
  /**
   * The number of keys that a query attends to, including the key of its own position; absent if it attends to all earlier keys.
   */
  readonly window?: number | undefined;
  /** The rotary embedding of queries and keys. In latent attention it applies to the last `rotary.dim` elements of each head. */
  readonly rotary: RotaryConfig;
  /** The number of elements of a value head; absent if it is `headDim`. */
  readonly valueDim?: number | undefined;
  /** The factor of attention scores; absent if it is 1 / sqrt(headDim). */
  readonly scale?: number | undefined;
  /** The bound of attention scores: softcap * tanh(score / softcap); absent if there is none. */
  readonly softcap?: number | undefined;
  /** Whether each head has an attention sink: a learned logit in the softmax of each row that belongs to no key. */
  readonly sinks?: boolean | undefined;
  /** The ranks of the projections; absent if queries, keys and values are projections of the input. */
  readonly latent?: LatentConfig | undefined;
}

/** A feed-forward block: down(activation(gate(x)) * up(x)). */
export interface DenseConfig {
  /** The kind of block. */
  readonly kind: "dense";
  /** The number of elements between the two projections. */
  readonly intermediateSize: number;
  /** The activation of the gate. */
  readonly activation: ActivationName;
  /** Whether the projections have biases. */
  readonly bias: boolean;
}

/** How a token's experts are chosen and weighted. */
export interface RouterConfig {
  /** The name of the module. */
  readonly name: "gate" | "router";
  /** The number of experts of each token. */
  readonly topk: number;
  /** The function that converts logits to scores. */
  readonly scoreFunction: RouterScoreFunction;
  /** Whether the softmax is over all experts instead of the chosen ones. */
  readonly usePreSoftmax?: boolean | undefined;
  /** The factor of the expert weights; absent if it is 1. */
  readonly scalingFactor?: number | undefined;
  /** The number of expert groups, and the number of groups from which a token's experts are chosen. Absent: no groups. */
  readonly groups?: { readonly count: number; readonly chosen: number } | undefined;
  /** Whether the logits have a bias. */
  readonly bias: boolean;
  /** Whether an f32 bias of each expert is added to the scores that select the experts. */
  readonly correction: boolean;
  /** The dtype of the logits; absent if it is the dtype of the model. */
  readonly dtype?: WideDType | undefined;
}

/** A mixture of experts: each token passes through some of the experts, and all tokens pass through the shared block. */
export interface ExpertsConfig {
  /** The kind of block. */
  readonly kind: "experts";
  /** The number of experts. */
  readonly count: number;
  /** The block of an expert. */
  readonly expert: DenseConfig | JoinedConfig;
  /** The router. */
  readonly router: RouterConfig;
  /** The shared block of all tokens; absent if there is none. */
  readonly shared?: DenseConfig | undefined;
}

/** A feed-forward block with one projection for gate and up, and the clamped swiglu. Both projections have biases. */
export interface JoinedConfig {
  /** The kind of block. */
  readonly kind: "joined";
  /** The number of elements between the two projections. */
  readonly intermediateSize: number;
  /** The constants of the clamped swiglu. */
  readonly clamp: SwigluClamp;
}

/** The feed-forward block of a layer. */
export type FeedForwardConfig = DenseConfig | ExpertsConfig;

/** One layer of a model. */
export interface DecoderLayerConfig {
  /** The attention. */
  readonly attention: AttentionConfig;
  /** The feed-forward block. */
  readonly feedForward: FeedForwardConfig;
  /** Whether the results of the attention and of the feed-forward block are normalized before they are added. */
  readonly postNorms?: boolean | undefined;
}

/** The configuration of a model. */
export interface CausalLMConfig {
  /** The family, as `model_type` of config.json names it. */
  readonly modelType: string;
  /** The number of tokens of the vocabulary. */
  readonly vocabSize: number;
  /** The number of elements of the hidden state of a position. */
  readonly hiddenSize: number;
  /** The number of positions for which the model was trained. */
  readonly maxPositionEmbeddings: number;
  /** The constant that norms add to the mean square. */
  readonly rmsNormEps: number;
  /** Whether the embedding table is also the weight of the output layer. */
  readonly tieWordEmbeddings: boolean;
  /** The dtype that the configuration names; absent if it names none. */
  readonly dtype?: WideDType | undefined;
  /** The tokens that end a text. */
  readonly eosTokenIds: readonly number[];
  /** Whether the weights of norms hold gamma - 1. */
  readonly zeroCenteredNorms?: boolean | undefined;
  /** The factor of embeddings, rounded to the dtype of the model; absent if it is 1. */
  readonly embeddingScale?: number | undefined;
  /** The bound of logits: softcap * tanh(logit / softcap); absent if there is none. */
  readonly logitSoftcap?: number | undefined;
  /** The layers in order. */
  readonly layers: readonly DecoderLayerConfig[];
}
