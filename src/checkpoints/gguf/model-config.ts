/** Translates the metadata of a GGUF file to the fields of config.json. */
import type { JsonObject } from "../../io/header/header.js";
import type { Shape } from "../../tensor/shape.js";
import { type GgufArchitecture, MAX_LAYERS } from "./architectures.js";
import type { MetadataValue } from "./facts.js";

/** The name of the embedding table in GGUF files. No other format uses this name. */
export const GGUF_EMBEDDINGS = "token_embd.weight";

/** The fields of config.json by metadata key. Keys are without their prefix, the name of the architecture. */
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
  "rope.scaling.yarn_attn_factor": "attention_factor",
  "rope.scaling.yarn_beta_fast": "beta_fast",
  "rope.scaling.yarn_beta_slow": "beta_slow",
  "rope.scaling.yarn_log_multiplier": "yarn_log_multiplier",
};

/** The metadata keys of an architecture, by the fields of config.json that they map to. */
export function ggufKeys({ name, keys }: GgufArchitecture): ReadonlyMap<string, string> {
  const fields = Object.entries({ ...FIELDS, ...SCALING_FIELDS, ...keys });
  return new Map(fields.map(([key, field]) => [field, `${name}.${key}`]));
}

/** The shortest decimal number that rounds to an f32 value. Configurations on the Hugging Face Hub have such decimal numbers. */
function decimal(value: MetadataValue): MetadataValue {
  if (typeof value !== "number" || Number.isInteger(value) || Math.fround(value) !== value) return value;
  const digits = [6, 7, 8, 9].map((count) => Number(value.toPrecision(count)));
  return digits.find((each) => Math.fround(each) === value) ?? value;
}

/** The content of config.json for a GGUF file. `shapeOf` returns the shape of a tensor of the file by name. */
export function ggufConfig(
  architecture: GgufArchitecture,
  metadata: Readonly<Record<string, MetadataValue>>,
  shapeOf: (tensor: string) => Shape | undefined,
): JsonObject {
  const translate = (names: Readonly<Record<string, string>>): JsonObject =>
    Object.fromEntries(
      Object.entries(names).flatMap(([key, field]) => {
        const value = metadata[`${architecture.name}.${key}`];
        return value === undefined ? [] : [[field, decimal(value)]];
      }),
    );
  const scaling = translate(SCALING_FIELDS);
  const isScaled = scaling.rope_type !== undefined && scaling.rope_type !== "none";
  const hasTensor = (tensor: string): boolean => shapeOf(tensor) !== undefined;
  const translated = translate({ ...FIELDS, ...architecture.keys });
  const layers = Array.from(
    { length: Math.min(MAX_LAYERS, Number(translated.num_hidden_layers ?? 0)) },
    (_, index) => index,
  );
  const eos = metadata["tokenizer.ggml.eos_token_id"];
  const fields = { ...translated, ...(isScaled ? { rope_scaling: scaling } : {}), ...architecture.fields };
  return {
    ...fields,
    ...architecture.derive?.(fields),
    model_type: architecture.modelType,
    vocab_size: shapeOf(GGUF_EMBEDDINGS)?.[0],
    tie_word_embeddings: !hasTensor("output.weight"),
    // the metadata have no keys for biases and for layers without experts
    attention_bias: hasTensor("blk.0.attn_q.bias"),
    mlp_bias: hasTensor("blk.0.ffn_gate.bias"),
    mlp_only_layers: layers.filter((index) => !hasTensor(`blk.${index}.ffn_gate_inp.weight`)),
    ...(eos === undefined ? {} : { eos_token_id: eos }),
  };
}
