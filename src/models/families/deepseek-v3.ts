/** DeepSeek-V3 and R1: latent attention, and experts that are chosen from groups by sigmoid scores. */
import type { AttentionConfig, ExpertsConfig, RouterConfig } from "../config/config.js";
import type { ConfigFields } from "../config/fields.js";
import { rotaryConfig, rotaryRule, yarnScale } from "../config/rotary.js";
import { activationName, denseConfig, type Family } from "./family.js";

/** A group's score is the sum of this number of its largest scores. */
const SCORES_OF_GROUP = 2;

export const DEEPSEEK_V3: Family = {
  modelType: "deepseek_v3",
  layer: (fields, index) => {
    const isDense = index < fields.integer("first_k_dense_replace", 3, 0);
    return {
      attention: latentAttention(fields),
      feedForward:
        isDense || index % fields.integer("moe_layer_freq", 1) !== 0
          ? denseConfig(fields, false)
          : expertsConfig(fields),
    };
  },
  // the layers after the model's own ones predict additional tokens
  names: (hub, { layers }, fields) => ({
    ...hub,
    isIgnored: (tensor) => hub.isIgnored(tensor) || isFurther(tensor, layers.length, fields),
  }),
};

/** Whether a tensor belongs to a layer that predicts additional tokens, after the `count` layers of the model. */
function isFurther(tensor: string, count: number, fields: ConfigFields): boolean {
  const layer = Number(/^model\.layers\.(\d+)\./.exec(tensor)?.[1] ?? -1);
  return layer >= count && layer < count + fields.integer("num_nextn_predict_layers", 0, 0);
}

function latentAttention(fields: ConfigFields): AttentionConfig {
  const heads = fields.integer("num_attention_heads");
  if (fields.integer("num_key_value_heads", heads) !== heads)
    throw fields.refuse("num_key_value_heads", `num_attention_heads, ${heads}`);
  const rotated = fields.integer("qk_rope_head_dim");
  if (rotated % 2 !== 0) throw fields.refuse("qk_rope_head_dim", "an even number, because pairs are rotated");
  const headDim = fields.integer("qk_nope_head_dim") + rotated;
  const bias = fields.flag("attention_bias", false);
  return {
    ...{ heads, keyValueHeads: heads, headDim, headNorms: false, inputBias: bias, outputBias: bias },
    valueDim: fields.integer("v_head_dim"),
    rotary: {
      ...rotaryConfig(fields, rotated),
      interleaved: fields.flag("rope_interleave", true),
    },
    scale: attentionScale(fields) ** 2 / Math.sqrt(headDim),
    latent: {
      queryRank: fields.value("q_lora_rank") === undefined ? undefined : fields.integer("q_lora_rank"),
      keyValueRank: fields.integer("kv_lora_rank"),
    },
  };
}

/** The factor by which YaRN multiplies queries and keys. */
function attentionScale(fields: ConfigFields): number {
  const rule = rotaryRule(fields);
  if (!rule?.value("mscale_all_dim") || !rule.value("factor")) return 1;
  return yarnScale(rule.positiveNumber("factor"), rule.positiveNumber("mscale_all_dim"));
}

function expertsConfig(fields: ConfigFields): ExpertsConfig {
  const width = fields.integer("moe_intermediate_size");
  const block = (intermediateSize: number) => ({
    kind: "dense" as const,
    intermediateSize,
    activation: activationName(fields, "hidden_act", "silu"),
    bias: false,
  });
  const shared = fields.isNull("n_shared_experts") ? 0 : fields.integer("n_shared_experts", 1, 0);
  return {
    kind: "experts",
    count: fields.integer("n_routed_experts"),
    expert: block(width),
    router: routerConfig(fields),
    shared: shared === 0 ? undefined : block(shared * width),
  };
}

/** Reads the router. Throws `FileError` for rules of selection that are not supported. */
function routerConfig(fields: ConfigFields): RouterConfig {
  if (fields.text("scoring_func", "sigmoid") !== "sigmoid") throw fields.refuse("scoring_func", '"sigmoid"');
  if (fields.text("topk_method", "noaux_tc") !== "noaux_tc") throw fields.refuse("topk_method", '"noaux_tc"');
  const topk = fields.integer("num_experts_per_tok", undefined, 2);
  if (!fields.flag("norm_topk_prob", true)) throw fields.refuse("norm_topk_prob", "true");
  const experts = fields.integer("n_routed_experts");
  if (topk > experts) throw fields.refuse("num_experts_per_tok", `at most n_routed_experts, ${experts}`);
  const count = fields.integer("n_group", 8);
  if (experts % count !== 0) throw fields.refuse("n_group", `a divisor of n_routed_experts, ${experts}`);
  const chosen = fields.integer("topk_group", 4);
  if (chosen > count) throw fields.refuse("topk_group", `at most n_group, ${count}`);
  if (chosen < count && topk !== SCORES_OF_GROUP * chosen)
    throw fields.refuse("topk_group", `num_experts_per_tok / ${SCORES_OF_GROUP}, ${topk / SCORES_OF_GROUP}`);
  return {
    ...{ name: "gate", topk, scoreFunction: "sigmoid", bias: false, correction: true, dtype: "f32" },
    scalingFactor: fields.positiveNumber("routed_scaling_factor", 2.5),
    groups: chosen < count ? { count, chosen } : undefined,
  };
}
