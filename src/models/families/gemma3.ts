/** Gemma 3 (text): norms before and after each part, windows and another rotary embedding in most layers, scaled embeddings. */
import type { RotaryConfig } from "../config/config.js";
import type { ConfigFields } from "../config/fields.js";
import { rotaryConfig } from "../config/rotary.js";
import { activationName, attentionConfig, type Family, isSlidingLayer } from "./family.js";

/** The rotary bases if the configuration has none. */
const BASES = { full: 1e6, sliding: 10000 } as const;
/** The width of a head if the configuration has none. */
const HEAD_DIM = 256;

export const GEMMA3: Family = {
  modelType: "gemma3_text",
  model: (fields) => ({
    tieWordEmbeddings: fields.flag("tie_word_embeddings", true),
    zeroCenteredNorms: true,
    embeddingScale: Math.sqrt(fields.integer("hidden_size")),
    logitSoftcap: optional(fields, "final_logit_softcapping"),
  }),
  layer: (fields, index) => {
    if (fields.flag("use_bidirectional_attention", false))
      throw fields.refuse("use_bidirectional_attention", "false, because generation is causal");
    const bias = fields.flag("attention_bias", false);
    const isSliding = isSlidingLayer(fields, index) ?? (index + 1) % pattern(fields) !== 0;
    return {
      attention: attentionConfig(fields, {
        inputBias: bias,
        outputBias: bias,
        headNorms: true,
        defaultHeadDim: HEAD_DIM,
        window: isSliding ? fields.integer("sliding_window", 4096) : undefined,
        scale: 1 / Math.sqrt(fields.positiveNumber("query_pre_attn_scalar", 256)),
        softcap: optional(fields, "attn_logit_softcapping"),
        rotary: rotaryOf(fields, isSliding),
      }),
      feedForward: {
        kind: "dense",
        intermediateSize: fields.integer("intermediate_size"),
        activation: activationName(fields, "hidden_activation", "gelu_pytorch_tanh"),
        bias: false,
      },
      postNorms: true,
    };
  },
};

/** Returns n, where every n-th layer has no window. */
function pattern(fields: ConfigFields): number {
  return fields.integer("sliding_window_pattern", fields.integer("_sliding_window_pattern", 6));
}

/**
 * The rotary embedding of a layer. Newer files have one rule for each layer type; older ones have no rule for layers with a
 * window.
 */
function rotaryOf(fields: ConfigFields, isSliding: boolean): RotaryConfig {
  const dim = fields.integer("head_dim", HEAD_DIM);
  const rules = fields.object("rope_parameters");
  const localBase = fields.positiveNumber("rope_local_base_freq", BASES.sliding);
  if (!rules)
    return isSliding ? { dim, base: localBase } : rotaryConfig(fields, dim, { defaultBase: BASES.full });
  const kind = isSliding ? "sliding_attention" : "full_attention";
  const rule = rules.object(kind);
  if (!rule) throw rules.refuse(kind, "an object");
  const rotary = rotaryConfig(fields, dim, { rule, defaultBase: BASES.full });
  // the field rope_theta is the base of layers without a window
  return isSliding ? { ...rotary, base: rule.positiveNumber("rope_theta", localBase) } : rotary;
}

/** A number above 0; undefined if it is absent. */
function optional(fields: ConfigFields, name: string): number | undefined {
  return fields.value(name) === undefined ? undefined : fields.positiveNumber(name);
}
