/** Reads the rotary embedding of a configuration. */
import type { RotaryScaling } from "../../modules/rotary/inverse-frequencies.js";
import type { RotaryConfig } from "./config.js";
import type { ConfigFields } from "./fields.js";

/** The rules by their names in configurations. */
const RULES: Readonly<
  Record<string, (rule: ConfigFields, maxPositions: number) => RotaryScaling | undefined>
> = {
  default: () => undefined,
  linear: (rule) => ({ kind: "linear", factor: rule.positive("factor") }),
  llama3: (rule) => ({
    kind: "llama3",
    factor: rule.positive("factor"),
    lowFreqFactor: rule.positive("low_freq_factor"),
    highFreqFactor: rule.positive("high_freq_factor"),
    originalMaxPositionEmbeddings: rule.integer("original_max_position_embeddings"),
  }),
  yarn: (rule, maxPositions) => ({
    kind: "yarn",
    factor: rule.positive("factor"),
    originalMaxPositionEmbeddings: rule.integer("original_max_position_embeddings", maxPositions),
    betaFast: rule.positive("beta_fast", 32),
    betaSlow: rule.positive("beta_slow", 1),
    truncate: rule.flag("truncate", true),
    ...(rule.value("attention_factor") === undefined
      ? {}
      : { attentionFactor: rule.positive("attention_factor") }),
  }),
};

/**
 * Reads the rotary embedding of heads of `dim` elements. Newer files have `rope_parameters` with the base in it, older ones
 * `rope_theta` and `rope_scaling`. Throws `FileError` for an unknown rule.
 */
export function rotaryConfig(fields: ConfigFields, dim: number): RotaryConfig {
  const rule = fields.within("rope_parameters") ?? fields.within("rope_scaling");
  const base = rule?.value("rope_theta") === undefined ? fields : rule;
  return {
    dim,
    base: base.positive("rope_theta", 10000),
    scaling: rule && scalingOf(rule, fields.integer("max_position_embeddings")),
  };
}

function scalingOf(rule: ConfigFields, maxPositions: number): RotaryScaling | undefined {
  const key = rule.value("rope_type") === undefined ? "type" : "rope_type";
  const name = rule.text(key, "default");
  const read = Object.hasOwn(RULES, name) ? RULES[name] : undefined;
  if (!read) throw rule.refuse(key, `one of ${Object.keys(RULES).join(", ")}`);
  return read(rule, maxPositions);
}
