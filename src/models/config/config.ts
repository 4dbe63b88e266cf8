/** The configuration of a language model, with the meaning of every field spelled out for each layer. */
import type { ActivationName } from "../../backends/ops.js";
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
}

/** The attention of a layer: projections of queries, keys and values, softmax attention, and a projection of its result. */
export interface AttentionConfig {
  /** The number of heads of queries. */
  readonly heads: number;
  /** The number of heads of keys and values. */
  readonly keyValueHeads: number;
  /** The number of elements of a head. */
  readonly headDim: number;
  /** Whether the projections of queries, keys and values have biases. */
  readonly inputBias: boolean;
  /** Whether the projection of the result has a bias. */
  readonly outputBias: boolean;
  /** Whether each head of queries and keys is normalized by RMSNorm before it is rotated. */
  readonly headNorms: boolean;
  /** The number of keys that a query attends to, its own among them; absent if it attends to all earlier ones. */
  readonly window?: number | undefined;
  /** The rotary embedding of queries and keys. */
  readonly rotary: RotaryConfig;
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

/** A mixture of experts: each token goes to some of them, and their results are added, each times its probability. */
export interface ExpertsConfig {
  /** The kind of block. */
  readonly kind: "experts";
  /** The number of experts. */
  readonly count: number;
  /** The number of experts of each token. */
  readonly perToken: number;
  /** The feed-forward block of an expert. */
  readonly expert: DenseConfig;
  /** Whether the probabilities of a token's experts are divided by their sum. */
  readonly normalized: boolean;
}

/** The feed-forward block of a layer. */
export type FeedForwardConfig = DenseConfig | ExpertsConfig;

/** One layer of a model. */
export interface DecoderLayerConfig {
  /** The attention. */
  readonly attention: AttentionConfig;
  /** The feed-forward block. */
  readonly feedForward: FeedForwardConfig;
}

/** The configuration of a model. */
export interface CausalLMConfig {
  /** The family, as `model_type` of config.json names it. */
  readonly modelType: string;
  /** The number of tokens of the vocabulary. */
  readonly vocabSize: number;
  /** The number of elements of a position between layers. */
  readonly hiddenSize: number;
  /** The number of positions that the model was made for. */
  readonly maxPositionEmbeddings: number;
  /** The constant that norms add to the mean square. */
  readonly rmsNormEps: number;
  /** Whether the table of embeddings is also the weight of the output layer. */
  readonly tieWordEmbeddings: boolean;
  /** The dtype that the configuration names; absent if it names none. */
  readonly dtype?: WideDType | undefined;
  /** The tokens that end a text. */
  readonly eosTokenIds: readonly number[];
  /** The layers, the first one first. */
  readonly layers: readonly DecoderLayerConfig[];
}
