/** Translates the metadata of a GGUF file to the fields of config.json. */
import type { MetadataValue } from "../../checkpoints/gguf/facts.js";
import type { JsonObject } from "../../io/json/json-object.js";
import type { Shape } from "../../tensor/shape.js";
import { ConfigFields } from "../config/fields.js";
import { MAX_LAYERS } from "../config/read.js";
import { architectureOf, type GgufArchitecture } from "./architectures.js";

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

/** A GGUF file, as far as it says what the model is. */
export interface GgufModel {
  readonly path: string;
  readonly metadata: Readonly<Record<string, MetadataValue>>;
  /** The shapes of the tensors, by their names. */
  readonly shapeOf: (tensor: string) => Shape | undefined;
}

/** The architecture of a GGUF file, and its configuration with the fields of config.json. */
export function ggufFields({ path, metadata, shapeOf }: GgufModel): {
  readonly architecture: GgufArchitecture;
  readonly fields: ConfigFields;
} {
  const architecture = architectureOf(path, metadata["general.architecture"]);
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
  const json = {
    ...own,
    ...(isScaled ? { rope_scaling: scaling } : {}),
    ...architecture.fields,
    model_type: architecture.modelType,
    vocab_size: shapeOf("token_embd.weight")?.[0],
    tie_word_embeddings: !has("output.weight"),
    // biases, and layers without experts, have no key in the metadata
    attention_bias: has("blk.0.attn_q.bias"),
    mlp_bias: has("blk.0.ffn_gate.bias"),
    mlp_only_layers: layers.filter((index) => !has(`blk.${index}.ffn_gate_inp.weight`)),
    eos_token_id: metadata["tokenizer.ggml.eos_token_id"],
  };
  return { architecture, fields: new ConfigFields(path, json) };
}
