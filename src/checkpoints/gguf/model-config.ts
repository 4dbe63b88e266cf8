/** Translates the metadata of a GGUF file to the fields of config.json. */
import type { JsonObject } from "../../io/header/header.js";
import type { Shape } from "../../tensor/shape.js";
import type { MetadataValue } from "./facts.js";

/** An architecture, as `general.architecture` names it. */
export interface GgufArchitecture {
  readonly name: string;
  /** The `model_type` of config.json. */
  readonly modelType: string;
  /** Fields of the configuration that the metadata do not have, because they hold for the architecture. */
  readonly fields?: JsonObject;
}

/** The TABLE of architectures whose configuration is known. Mistral's files have the architecture llama, without a window. */
export const GGUF_ARCHITECTURES: readonly GgufArchitecture[] = [
  { name: "llama", modelType: "llama" },
  { name: "qwen2", modelType: "qwen2" },
  { name: "qwen3", modelType: "qwen3" },
  { name: "qwen3moe", modelType: "qwen3_moe", fields: { norm_topk_prob: true } },
];

/** The name of the table of embeddings, which only GGUF files have. */
export const GGUF_EMBEDDINGS = "token_embd.weight";

/** The largest number of layers of a model. */
export const MAX_LAYERS = 4096;

/** The fields of config.json by the keys of the metadata, without the name of the architecture in front. */
const FIELDS: Readonly<Record<string, string>> = {
  block_count: "num_hidden_layers",
  context_length: "max_position_embeddings",
  embedding_length: "hidden_size",
  feed_forward_length: "intermediate_size",
  expert_count: "num_experts",
  expert_used_count: "num_experts_per_tok",
  expert_feed_forward_length: "moe_intermediate_size",
  "attention.head_count": "num_attention_heads",
  "attention.head_count_kv": "num_key_value_heads",
  "attention.key_length": "head_dim",
  "attention.layer_norm_rms_epsilon": "rms_norm_eps",
  "rope.freq_base": "rope_theta",
};

/** The fields of `rope_scaling`. */
const SCALING_FIELDS: Readonly<Record<string, string>> = {
  "rope.scaling.type": "rope_type",
  "rope.scaling.factor": "factor",
  "rope.scaling.original_context_length": "original_max_position_embeddings",
  "rope.scaling.attn_factor": "attention_factor",
  "rope.scaling.yarn_beta_fast": "beta_fast",
  "rope.scaling.yarn_beta_slow": "beta_slow",
};

/** The content of config.json for a GGUF file. `shapeOf` has the shapes of its tensors by name. */
export function ggufConfig(
  architecture: GgufArchitecture,
  metadata: Readonly<Record<string, MetadataValue>>,
  shapeOf: (tensor: string) => Shape | undefined,
): JsonObject {
  const translate = (names: Readonly<Record<string, string>>): JsonObject =>
    Object.fromEntries(
      Object.entries(names).flatMap(([key, field]) => {
        const value = metadata[`${architecture.name}.${key}`];
        return value === undefined ? [] : [[field, value]];
      }),
    );
  const scaling = translate(SCALING_FIELDS);
  const isScaled = scaling.rope_type !== undefined && scaling.rope_type !== "none";
  const has = (tensor: string): boolean => shapeOf(tensor) !== undefined;
  const own = translate(FIELDS);
  const layers = Array.from(
    { length: Math.min(MAX_LAYERS, Number(own.num_hidden_layers ?? 0)) },
    (_, index) => index,
  );
  const eos = metadata["tokenizer.ggml.eos_token_id"];
  return {
    ...own,
    ...(isScaled ? { rope_scaling: scaling } : {}),
    ...architecture.fields,
    model_type: architecture.modelType,
    vocab_size: shapeOf(GGUF_EMBEDDINGS)?.[0],
    tie_word_embeddings: !has("output.weight"),
    // biases, and layers without experts, have no key in the metadata
    attention_bias: has("blk.0.attn_q.bias"),
    mlp_bias: has("blk.0.ffn_gate.bias"),
    mlp_only_layers: layers.filter((index) => !has(`blk.${index}.ffn_gate_inp.weight`)),
    ...(eos === undefined ? {} : { eos_token_id: eos }),
  };
}
