/** Reads the rotary embedding of a configuration. */
import { fixed, log, toNumber } from "../../modules/rotary/fixed-point.js";
import type { RotaryScaling } from "../../modules/rotary/inverse-frequencies.js";
import type { RotaryConfig } from "./config.js";
import type { ConfigFields } from "./fields.js";

/** The rules by their names in configurations. */
const RULES: Readonly<
  Record<string, (rule: ConfigFields, maxPositions: number) => RotaryScaling | undefined>
> = {
  default: () => undefined,
  linear: (rule) => ({ kind: "linear", factor: rule.positiveNumber("factor") }),
  llama3: (rule) => ({
    kind: "llama3",
    factor: rule.positiveNumber("factor"),
    lowFreqFactor: rule.positiveNumber("low_freq_factor"),
    highFreqFactor: rule.positiveNumber("high_freq_factor"),
    originalMaxPositionEmbeddings: rule.integer("original_max_position_embeddings"),
  }),
  yarn: (rule, maxPositions) => ({
    kind: "yarn",
    factor: rule.positiveNumber("factor"),
    originalMaxPositionEmbeddings: rule.integer("original_max_position_embeddings", maxPositions),
    betaFast: rule.positiveNumber("beta_fast", 32),
    betaSlow: rule.positiveNumber("beta_slow", 1),
    truncate: rule.flag("truncate", true),
    ...attentionFactor(rule),
  }),
};

/** The factor of YaRN's cosines and sines, if a rule has one. DeepSeek's rules express it by `mscale` and `mscale_all_dim`. */
function attentionFactor(rule: ConfigFields): { readonly attentionFactor?: number } {
  if (rule.value("attention_factor") !== undefined)
    return { attentionFactor: rule.positiveNumber("attention_factor") };
  if (!rule.value("mscale") || !rule.value("mscale_all_dim")) return {};
  const scale = (name: string): number => yarnScale(rule.positiveNumber("factor"), rule.positiveNumber(name));
  return { attentionFactor: scale("mscale") / scale("mscale_all_dim") };
}

/** Returns 0.1 mscale ln(factor) + 1, by which YaRN scales attention; 1 for a factor up to 1. */
export function yarnScale(factor: number, mscale: number): number {
  return factor <= 1 ? 1 : 0.1 * mscale * toNumber(log(fixed(factor))) + 1;
}

/** The scaling rule of a configuration: `rope_parameters` in newer files, `rope_scaling` in older ones. */
export function rotaryRule(fields: ConfigFields): ConfigFields | undefined {
  return fields.object("rope_parameters") ?? fields.object("rope_scaling");
}

/** The settings of a rotary embedding that a family decides. */
interface RotaryChoices {
  /** The fields of the rule. Default: `rotaryRule`. */
  readonly rule?: ConfigFields | undefined;
  /** The base if the configuration has none. Default 10000. */
  readonly defaultBase?: number;
  /** The scaling if the configuration has no rule. Null is a rule: no scaling. Default: no scaling. */
  readonly defaultScaling?: RotaryScaling;
}

/**
 * Reads the rotary embedding of heads of `dim` elements. Newer files have the base and the rule in `rope_parameters`, older ones
 * in `rope_theta` and `rope_scaling`. Throws `FileError` for an unknown rule.
 */
export function rotaryConfig(
  fields: ConfigFields,
  dim: number,
  { rule = rotaryRule(fields), defaultBase = 10000, defaultScaling }: RotaryChoices = {},
): RotaryConfig {
  const hasNoScaling = ["rope_parameters", "rope_scaling"].some((name) => fields.isNull(name));
  const base = rule?.value("rope_theta") === undefined ? fields : rule;
  return {
    dim,
    base: base.positiveNumber("rope_theta", defaultBase),
    scaling: rule
      ? scalingOf(rule, fields.integer("max_position_embeddings"))
      : hasNoScaling
        ? undefined
        : defaultScaling,
  };
}

function scalingOf(rule: ConfigFields, maxPositions: number): RotaryScaling | undefined {
  const key = rule.value("rope_type") === undefined ? "type" : "rope_type";
  const name = rule.text(key, "default");
  const read = Object.hasOwn(RULES, name) ? RULES[name] : undefined;
  if (!read) throw rule.refuse(key, `one of ${Object.keys(RULES).join(", ")}`);
  return read(rule, maxPositions);
}
