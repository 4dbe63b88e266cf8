/** The TABLE of architectures of GGUF files, with the metadata keys of the fields of config.json. */
import { isObject, type JsonObject } from "../../io/json/json-object.js";

/** An architecture that `general.architecture` names. */
export interface GgufArchitecture {
  readonly name: string;
  /** The `model_type` of config.json. */
  readonly modelType: string;
  /** Configuration fields that are constant for the architecture, so that metadata do not contain them. */
  readonly fields?: JsonObject;
  /** Metadata keys of this architecture only, and keys that stand for another field than in other architectures. */
  readonly keys?: Readonly<Record<string, string>>;
  /** Keys that a file must have, although a configuration of the Hugging Face Hub has defaults for their fields. */
  readonly required?: readonly string[];
  /** Computes fields from the translated fields. The results override the translated fields. */
  readonly derive?: (fields: JsonObject) => JsonObject;
}

/** The largest number of layers of a model. */
export const MAX_LAYERS = 4096;

/** Required keys of Gemma 3 and gpt-oss. */
const NEEDED = [
  ...["attention.key_length", "attention.layer_norm_rms_epsilon", "rope.freq_base"],
  "attention.head_count_kv",
] as const;

/**
 * The number of layers of Gemma 3 27B. Unlike the other sizes, this model does not divide attention scores by the root of the
 * head width.
 */
const LAYERS_OF_27B = 62;

/** Gemma 3 (text). The metadata do not contain the attention scale; it follows from the size of the model, as in llama.cpp. */
const GEMMA3: GgufArchitecture = {
  name: "gemma3",
  modelType: "gemma3_text",
  keys: {
    "attention.sliding_window": "sliding_window",
    "attention.sliding_window_pattern": "sliding_window_pattern",
    "rope.freq_base_swa": "rope_local_base_freq",
    final_logit_softcapping: "final_logit_softcapping",
  },
  required: NEEDED,
  derive: ({ num_hidden_layers: layers, hidden_size: hidden, num_attention_heads: heads, ...fields }) => ({
    query_pre_attn_scalar:
      layers === LAYERS_OF_27B ? Math.floor(Number(hidden) / Number(heads)) : fields.head_dim,
    // without a window size in the metadata, no layer has a window
    sliding_window_pattern: fields.sliding_window ? (fields.sliding_window_pattern ?? 6) : 1,
  }),
};

/** gpt-oss. The published models do not truncate the bounds of YaRN; the metadata do not record this setting. */
const GPT_OSS: GgufArchitecture = {
  name: "gpt-oss",
  modelType: "gpt_oss",
  keys: {
    expert_count: "num_local_experts",
    expert_feed_forward_length: "intermediate_size",
    "attention.sliding_window": "sliding_window",
    "attention.sliding_window_pattern": "layer_types",
  },
  required: [...NEEDED, "attention.sliding_window"],
  derive: ({ rope_scaling: rule, layer_types: period, num_hidden_layers: layers }) => ({
    rope_scaling: isObject(rule) ? { ...rule, truncate: false } : null,
    ...(typeof period === "number" ? { layer_types: layerTypes(Number(layers), period) } : {}),
  }),
};

/** The attention type of each layer. Every `period`-th layer has full attention; the other layers have a sliding window. */
function layerTypes(layers: number, period: number): readonly string[] {
  const typeOf = (_: unknown, index: number): string =>
    (index + 1) % period === 0 ? "full_attention" : "sliding_attention";
  return Array.from({ length: Math.min(MAX_LAYERS, layers) }, typeOf);
}

const SCORES: Readonly<Record<number, string>> = { 1: "softmax", 2: "sigmoid" };

/**
 * DeepSeek-V3 and R1. The head counts and head widths in files describe the absorbed form of attention, in which all heads share
 * one key. The actual head widths have keys with the suffix `_mla`. Older files have the actual widths under the keys without
 * this suffix.
 */
const DEEPSEEK2: GgufArchitecture = {
  name: "deepseek2",
  modelType: "deepseek_v3",
  fields: { topk_method: "noaux_tc" },
  keys: {
    expert_count: "n_routed_experts",
    expert_shared_count: "n_shared_experts",
    expert_group_count: "n_group",
    expert_group_used_count: "topk_group",
    expert_weights_scale: "routed_scaling_factor",
    expert_weights_norm: "norm_topk_prob",
    expert_gating_func: "scoring_func",
    leading_dense_block_count: "first_k_dense_replace",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.key_length": "qk_nope_head_dim",
    "attention.key_length_mla": "qk_nope_head_dim",
    "attention.value_length": "v_head_dim",
    "attention.value_length_mla": "v_head_dim",
    "rope.dimension_count": "qk_rope_head_dim",
  },
  required: [
    ...["attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon"],
    ...["rope.freq_base", "rope.dimension_count", "leading_dense_block_count", "expert_shared_count"],
  ],
  derive: ({ rope_scaling: rule, scoring_func: scores, ...fields }) => ({
    num_key_value_heads: fields.num_attention_heads,
    qk_nope_head_dim: Number(fields.qk_nope_head_dim) - Number(fields.qk_rope_head_dim),
    scoring_func: SCORES[Number(scores ?? 1)] ?? scores,
    norm_topk_prob: fields.norm_topk_prob ?? false,
    // llama.cpp neither scales nor groups experts without these keys
    n_group: fields.n_group ?? 1,
    topk_group: fields.topk_group ?? fields.n_group ?? 1,
    routed_scaling_factor: fields.routed_scaling_factor ?? 1,
    ...(isObject(rule) ? { rope_scaling: latentRule(rule) } : {}),
  }),
};

/** The YaRN rule. Its fields `mscale` and `mscale_all_dim` are equal. Files contain a tenth of `mscale_all_dim`. */
function latentRule({ yarn_log_multiplier: tenth, ...rule }: JsonObject): JsonObject {
  if (typeof tenth !== "number") return rule;
  const mscale = Number((10 * tenth).toPrecision(9));
  return { ...rule, mscale, mscale_all_dim: mscale };
}

/** The TABLE of architectures whose configuration is known. Mistral's files have the architecture llama, without a window. */
export const GGUF_ARCHITECTURES: readonly GgufArchitecture[] = [
  { name: "llama", modelType: "llama" },
  { name: "qwen2", modelType: "qwen2" },
  { name: "qwen3", modelType: "qwen3" },
  { name: "qwen3moe", modelType: "qwen3_moe", fields: { norm_topk_prob: true } },
  ...[GEMMA3, GPT_OSS, DEEPSEEK2],
];
