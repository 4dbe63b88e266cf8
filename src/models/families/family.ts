/** The interface of a family of models, and the readers that families share. */
import type { ActivationName } from "../../backends/ops.js";
import type { AttentionConfig, CausalLMConfig, DecoderLayerConfig, DenseConfig } from "../config/config.js";
import type { ConfigFields } from "../config/fields.js";
import { rotaryConfig } from "../config/rotary.js";
import type { WeightNames } from "../weights/sources.js";

/** A family of models: how its configuration is read. Parameters have the names of Hugging Face's implementation. */
export interface Family {
  /** Its `model_type` in config.json. */
  readonly modelType: string;
  /** Reads layer `index`, counted from 0. */
  readonly layer: (fields: ConfigFields, index: number) => DecoderLayerConfig;
  /** Reads the model-wide fields that the family decides. Default: none. */
  readonly model?: (fields: ConfigFields) => ModelChoices;
  /** How the family's checkpoints name tensors. Default: `hubNames`. */
  readonly names?: (hub: WeightNames, config: CausalLMConfig, fields: ConfigFields) => WeightNames;
}

/** The fields of a model that a family decides. */
type ModelChoices = Partial<
  Pick<
    CausalLMConfig,
    "rmsNormEps" | "tieWordEmbeddings" | "zeroCenteredNorms" | "embeddingScale" | "logitSoftcap"
  >
>;

/** The activations by their names in configurations. */
const ACTIVATIONS: Readonly<Record<string, ActivationName>> = {
  silu: "silu",
  swish: "silu",
  gelu_pytorch_tanh: "gelu",
  gelu_new: "gelu",
  relu: "relu",
};

/** Reads an activation. Throws `FileError` for one that is unknown. */
export function activationName(fields: ConfigFields, name: string, fallback?: string): ActivationName {
  const text = fields.text(name, fallback);
  const activation = Object.hasOwn(ACTIVATIONS, text) ? ACTIVATIONS[text] : undefined;
  if (activation) return activation;
  throw fields.refuse(name, `one of ${Object.keys(ACTIVATIONS).join(", ")}`);
}

/** The fields of an attention that a family decides. All families read the other fields in the same way. */
interface AttentionChoices
  extends Pick<AttentionConfig, "inputBias" | "outputBias">,
    Partial<Pick<AttentionConfig, "headNorms" | "window" | "rotary" | "scale" | "softcap" | "sinks">> {
  /** The width of a head if the configuration has none. Default: the hidden size divided by the number of heads. */
  readonly defaultHeadDim?: number;
}

/** Reads an attention with heads of one width. Throws `FileError` unless the key-value heads divide the query heads. */
export function attentionConfig(
  fields: ConfigFields,
  { defaultHeadDim, ...choices }: AttentionChoices,
): AttentionConfig {
  const heads = fields.integer("num_attention_heads");
  const keyValueHeads = fields.integer("num_key_value_heads", heads);
  if (heads % keyValueHeads !== 0)
    throw fields.refuse("num_key_value_heads", `a divisor of num_attention_heads, ${heads}`);
  const hidden = fields.integer("hidden_size");
  const fallback = defaultHeadDim ?? hidden / heads;
  if (fields.value("head_dim") === undefined && !Number.isInteger(fallback))
    throw fields.refuse("num_attention_heads", `a divisor of hidden_size, ${hidden}, if head_dim is missing`);
  const headDim = fields.integer("head_dim", fallback);
  if (headDim % 2 !== 0) throw fields.refuse("head_dim", "an even number, because pairs are rotated");
  const { rotary = rotaryConfig(fields, headDim) } = choices;
  return { heads, keyValueHeads, headDim, headNorms: false, ...choices, rotary };
}

/** Reads a feed-forward block, whose size has the name `size`. */
export function denseConfig(fields: ConfigFields, bias: boolean, size = "intermediate_size"): DenseConfig {
  return {
    kind: "dense",
    intermediateSize: fields.integer(size),
    activation: activationName(fields, "hidden_act", "silu"),
    bias,
  };
}

/** Whether `layer_types` gives layer `index` a sliding window; undefined without `layer_types`. */
export function isSlidingLayer(fields: ConfigFields, index: number): boolean | undefined {
  const types = fields.value("layer_types");
  if (types === undefined) return undefined;
  const type: unknown = Array.isArray(types) ? types[index] : undefined;
  if (type === "sliding_attention" || type === "full_attention") return type === "sliding_attention";
  throw fields.refuse("layer_types", '"sliding_attention" or "full_attention" for each layer');
}

/** The size of a window of keys. If the configuration has none, it is 4096; if the configuration has null, there is no window. */
export function slidingWindow(fields: ConfigFields): number | undefined {
  return fields.isNull("sliding_window") ? undefined : fields.integer("sliding_window", 4096);
}

/**
 * The window of layer `index` in a family whose configuration has `use_sliding_window`. The layers with a window are the sliding
 * layers in `layer_types` or, without `layer_types`, the layers from `max_window_layers` on.
 */
export function chosenWindow(fields: ConfigFields, index: number): number | undefined {
  if (!fields.flag("use_sliding_window", false)) return undefined;
  const types = fields.value("layer_types");
  if (types !== undefined && !Array.isArray(types)) throw fields.refuse("layer_types", "a list of strings");
  const slides = types
    ? types[index] === "sliding_attention"
    : index >= fields.integer("max_window_layers", 28, 0);
  return slides ? slidingWindow(fields) : undefined;
}
