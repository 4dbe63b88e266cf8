/** Families read configurations of published models in all published forms, and refuse unsupported ones. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { FileError } from "../../../../src/errors.js";
import type { JsonObject } from "../../../../src/io/json/json-object.js";
import type { CausalLMConfig } from "../../../../src/models/config/config.js";
import { ConfigFields } from "../../../../src/models/config/fields.js";
import { readConfig } from "../../../../src/models/config/read.js";
import { familyOf } from "../../../../src/models/families/table.js";
import { hubNames } from "../../../../src/models/weights/sources.js";
import { witnessPath } from "../witnesses.js";

/** The configuration of a recorded model with other fields; undefined fields are removed. */
const configOf = (name: string, fields: JsonObject = {}): CausalLMConfig =>
  readConfig(fieldsOf(name, fields));

function fieldsOf(name: string, fields: JsonObject): ConfigFields {
  const json: JsonObject = JSON.parse(readFileSync(join(witnessPath(name), "config.json"), "utf8"));
  const definedFields = Object.entries({ ...json, ...fields }).filter(([, value]) => value !== undefined);
  return new ConfigFields("config.json", Object.fromEntries(definedFields));
}

describe("the forms of a configuration have one meaning", () => {
  const rope = (name: string): JsonObject => {
    const json: JsonObject = JSON.parse(readFileSync(join(witnessPath(name), "config.json"), "utf8"));
    return { ...(json.rope_scaling as JsonObject), rope_theta: json.rope_theta };
  };

  it.each(["llama", "gpt-oss"])("angles of %s in rope_parameters", (name) => {
    const newer = { rope_parameters: rope(name), rope_scaling: undefined, rope_theta: undefined };
    expect(configOf(name, newer)).toEqual(configOf(name));
  });

  it("angles of DeepSeek with the rule as `type` or `rope_type`", () => {
    const { type, ...rule } = rope("deepseek-v3");
    const newer = { rope_parameters: { ...rule, rope_type: type }, rope_scaling: undefined };
    expect(configOf("deepseek-v3", newer)).toEqual(configOf("deepseek-v3"));
  });

  it("angles and windows of Gemma 3 by kinds of layers", () => {
    const newer = {
      ...{ rope_theta: undefined, rope_scaling: undefined, rope_local_base_freq: undefined },
      rope_parameters: {
        sliding_attention: { rope_type: "default", rope_theta: 1000 },
        full_attention: rope("gemma3"),
      },
      sliding_window_pattern: undefined,
      layer_types: ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    };
    expect(configOf("gemma3", newer)).toEqual(configOf("gemma3"));
    const defaultFields = { sliding_window_pattern: undefined, _sliding_window_pattern: 2 };
    expect(configOf("gemma3", defaultFields)).toEqual(configOf("gemma3"));
  });

  it("layers of gpt-oss without layer_types", () => {
    expect(configOf("gpt-oss", { layer_types: undefined })).toEqual(configOf("gpt-oss"));
  });

  it("the number of experts of Qwen3 by either name", () => {
    const published = { num_experts: 6, num_local_experts: undefined };
    expect(configOf("qwen3-moe", published)).toEqual(configOf("qwen3-moe"));
  });

  it("YaRN's factors of DeepSeek-V3: attention is scaled by the square of 0.1 ln(40) + 1", () => {
    const published = { ...rope("deepseek-v3"), factor: 40 };
    const { attention } = configOf("deepseek-v3", { rope_scaling: published })
      .layers[0] as CausalLMConfig["layers"][number];
    const { qk_rope_head_dim: rotated, qk_nope_head_dim: unrotatedWidth } = {
      qk_rope_head_dim: 32,
      qk_nope_head_dim: 16,
    };
    expect(attention.scale).toBeCloseTo(
      (0.1 * Math.log(40) + 1) ** 2 / Math.sqrt(rotated + unrotatedWidth),
      12,
    );
    expect(attention.rotary.scaling).toMatchObject({ kind: "yarn", attentionFactor: 1 });
    const unequal = { ...published, mscale: 0.75, mscale_all_dim: 0.5 };
    const scaling = configOf("deepseek-v3", { rope_scaling: unequal }).layers[0]?.attention.rotary
      .scaling as {
      readonly attentionFactor: number;
    };
    expect(scaling.attentionFactor).toBeCloseTo((0.075 * Math.log(40) + 1) / (0.05 * Math.log(40) + 1), 12);
  });

  it("layers are dense where the configuration says so", () => {
    const kinds = (name: string, fields: JsonObject = {}) =>
      configOf(name, fields).layers.map(({ feedForward }) => feedForward.kind);
    expect(kinds("qwen3-moe")).toEqual(["experts", "dense", "experts"]);
    expect(kinds("qwen3-moe", { mlp_only_layers: [], decoder_sparse_step: 2 })).toEqual([
      "dense",
      "experts",
      "dense",
    ]);
    expect(kinds("deepseek-v3")).toEqual(["dense", "experts", "experts"]);
    expect(kinds("deepseek-v3", { first_k_dense_replace: 0, moe_layer_freq: 2 })).toEqual([
      "experts",
      "dense",
      "experts",
    ]);
  });
});

/** A configuration, a field of it, another value of the field, and the value that transformers uses if the field is absent. */
type AbsentField = readonly [witness: string, field: string, other: unknown, expected: unknown, JsonObject?];

const GEMMA_PATTERN = { sliding_window_pattern: undefined, _sliding_window_pattern: undefined };
const QWEN_WINDOW = { use_sliding_window: true, sliding_window: 7, layer_types: undefined };
const GPT_OSS_RULE = {
  ...{ rope_type: "yarn", factor: 32, beta_fast: 32, beta_slow: 1, truncate: false },
  original_max_position_embeddings: 4096,
};
const FEW_DENSE = { first_k_dense_replace: 0 };
const MANY_EXPERTS = { n_routed_experts: 16, num_experts_per_tok: 8, n_group: 8, topk_group: 4 };

/** The defaults of the configuration classes of transformers 5, except sizes that the shapes of weights contradict. */
const ABSENT_FIELDS: readonly AbsentField[] = [
  ...["llama", "qwen3", "qwen3-moe", "gemma3", "deepseek-v3"].map(
    (name) => [name, "attention_bias", true, false] as const,
  ),
  ...["llama", "mistral", "qwen2", "qwen3", "qwen3-moe", "gemma3", "deepseek-v3"].map(
    (name) => [name, "rms_norm_eps", 1e-5, 1e-6] as const,
  ),
  ...["mistral", "qwen2", "qwen3", "qwen3-moe"].map(
    (name) => [name, "rope_theta", 5e5, 10000, { rope_parameters: undefined }] as const,
  ),
  ...["llama", "mistral", "qwen2", "qwen3", "qwen3-moe", "gpt-oss", "deepseek-v3"].map(
    (name) => [name, "tie_word_embeddings", true, false] as const,
  ),
  ["llama", "mlp_bias", true, false],
  ["llama", "hidden_act", "relu", "silu"],
  ["llama", "num_key_value_heads", 2, 4],
  ["llama", "head_dim", 4, 8],
  ["mistral", "sliding_window", 7, 4096],
  ...["qwen2", "qwen3"].flatMap((name): AbsentField[] => [
    [name, "use_sliding_window", true, false, { ...QWEN_WINDOW, max_window_layers: 0 }],
    [name, "sliding_window", 7, 4096, { ...QWEN_WINDOW, max_window_layers: 0 }],
    [name, "max_window_layers", 0, 28, QWEN_WINDOW],
  ]),
  ["qwen3", "head_dim", 16, 128],
  ["qwen3-moe", "head_dim", 4, 8],
  ["qwen3-moe", "sliding_window", 7, 4096, QWEN_WINDOW],
  ["qwen3-moe", "norm_topk_prob", true, false],
  ["qwen3-moe", "decoder_sparse_step", 2, 1],
  ["qwen3-moe", "mlp_only_layers", [0], []],
  ["gemma3", "rope_theta", 10000, 1e6],
  ["gemma3", "rope_local_base_freq", 1e6, 10000],
  ["gemma3", "tie_word_embeddings", false, true],
  ["gemma3", "hidden_activation", "silu", "gelu_pytorch_tanh"],
  ["gemma3", "head_dim", 16, 256],
  ["gemma3", "query_pre_attn_scalar", 16, 256],
  ["gemma3", "sliding_window", 6, 4096],
  ["gemma3", "_sliding_window_pattern", 2, 6, { ...GEMMA_PATTERN, num_hidden_layers: 12 }],
  ["gemma3", "final_logit_softcapping", 30, null],
  ["gemma3", "attn_logit_softcapping", 30, null],
  ["gpt-oss", "rms_norm_eps", 1e-6, 1e-5],
  ["gpt-oss", "rope_theta", 10000, 150000],
  ["gpt-oss", "head_dim", 16, 64],
  ...["rope_scaling", "rope_parameters"].map(
    (field) => ["gpt-oss", field, null, GPT_OSS_RULE, { rope_scaling: undefined }] as const,
  ),
  ["gpt-oss", "sliding_window", 6, 128],
  ["gpt-oss", "attention_bias", false, true],
  ["gpt-oss", "swiglu_alpha", 1, 1.702],
  ["gpt-oss", "swiglu_limit", 6, 7],
  ["gpt-oss", "layer_types", Array(2).fill("full_attention"), ["sliding_attention", "full_attention"]],
  ["deepseek-v3", "first_k_dense_replace", 1, 3, { num_hidden_layers: 4 }],
  ["deepseek-v3", "moe_layer_freq", 2, 1, FEW_DENSE],
  ["deepseek-v3", "routed_scaling_factor", 1, 2.5, FEW_DENSE],
  ["deepseek-v3", "n_group", 4, 8, MANY_EXPERTS],
  ["deepseek-v3", "topk_group", 8, 4, MANY_EXPERTS],
  ["deepseek-v3", "n_shared_experts", 2, 1, FEW_DENSE],
  ["deepseek-v3", "rope_interleave", false, true],
];

describe("an absent field has the default of transformers", () => {
  for (const [name, field, otherValue, expected, fields = {}] of ABSENT_FIELDS)
    it(`${name}, ${field}`, () => {
      const withValue = (value: unknown): CausalLMConfig => configOf(name, { ...fields, [field]: value });
      const absent = withValue(undefined);
      expect(absent).toEqual(withValue(expected));
      expect(absent).not.toEqual(withValue(otherValue));
    });

  it.each(["mistral", "qwen2", "qwen3", "qwen3-moe"])("but null means no window in %s", (name) => {
    const fields = { ...QWEN_WINDOW, max_window_layers: 0, sliding_window: null };
    expect(configOf(name, fields).layers.map(({ attention }) => attention.window)).not.toContain(4096);
  });

  const NO_BASES = { rope_theta: undefined, rope_local_base_freq: undefined, rope_scaling: undefined };
  it.each([
    ["sliding_attention", 10000, NO_BASES],
    ["full_attention", 1e6, NO_BASES],
    ["sliding_attention", 300, { ...NO_BASES, rope_theta: 200, rope_local_base_freq: 300 }],
    ["full_attention", 200, { ...NO_BASES, rope_theta: 200, rope_local_base_freq: 300 }],
  ])("gemma3, rope_theta of %s: %i", (kind, expected, fields) => {
    const withBase = (base: number | undefined): CausalLMConfig => {
      const rule = { rope_type: "default", rope_theta: 1000 };
      const rules = { sliding_attention: rule, full_attention: rule };
      const rope_parameters = { ...rules, [kind]: { ...rule, rope_theta: base } };
      return configOf("gemma3", { ...fields, rope_parameters });
    };
    expect(withBase(undefined)).toEqual(withBase(expected));
    expect(withBase(undefined)).not.toEqual(withBase(1000));
  });
});

it("layers of DeepSeek-V3 that predict further tokens are not read, as many as there are", () => {
  const names = (count: number | undefined) => {
    const fields = fieldsOf("deepseek-v3", { num_nextn_predict_layers: count });
    const config = readConfig(fields);
    return familyOf("config.json", config.modelType).names?.(hubNames(false), config, fields);
  };
  const [mtpWeight, inner] = ["model.layers.3.eh_proj.weight", "model.layers.2.mlp.gate.weight"];
  expect(names(1)?.isIgnored(mtpWeight)).toBe(true);
  expect(names(1)?.isIgnored("model.layers.4.eh_proj.weight")).toBe(false);
  expect(names(1)?.isIgnored(inner)).toBe(false);
  expect(names(undefined)?.isIgnored(mtpWeight)).toBe(false);
  expect(names(1)?.sourcesOf(inner)).toEqual([{ tensor: inner }]);
});

describe("a configuration that a family cannot compute is refused", () => {
  const cases: readonly (readonly [string, JsonObject, RegExp])[] = [
    [
      "gemma3",
      { use_bidirectional_attention: true },
      /use_bidirectional_attention is true; it must be false/,
    ],
    ["gemma3", { layer_types: ["sliding_attention"] }, /layer_types .* for each layer/],
    [
      "gemma3",
      { rope_parameters: { full_attention: {} } },
      /sliding_attention is missing; it must be an object/,
    ],
    ["gemma3", { hidden_activation: "tanh" }, /hidden_activation is "tanh"; it must be one of/],
    ["deepseek-v3", { scoring_func: "softmax" }, /scoring_func is "softmax"; it must be "sigmoid"/],
    ["deepseek-v3", { topk_method: "greedy" }, /topk_method is "greedy"; it must be "noaux_tc"/],
    ["deepseek-v3", { norm_topk_prob: false }, /norm_topk_prob is false; it must be true/],
    ["deepseek-v3", { topk_group: 3 }, /topk_group is 3; it must be num_experts_per_tok \/ 2, 2/],
    [
      "deepseek-v3",
      { num_key_value_heads: 2 },
      /num_key_value_heads is 2; it must be num_attention_heads, 4/,
    ],
    ["deepseek-v3", { qk_rope_head_dim: 31 }, /qk_rope_head_dim is 31; it must be an even number/],
    [
      "deepseek-v3",
      { num_experts_per_tok: 13 },
      /num_experts_per_tok is 13; .* at most n_routed_experts, 12/,
    ],
    ["deepseek-v3", { n_group: 5 }, /n_group is 5; it must be a divisor of n_routed_experts, 12/],
    ["deepseek-v3", { topk_group: 5 }, /topk_group is 5; it must be at most n_group, 4/],
    ["gpt-oss", { num_experts_per_tok: 6 }, /num_experts_per_tok is 6; .* at most num_local_experts, 5/],
    ["qwen3-moe", { num_local_experts: undefined }, /num_local_experts is missing|num_experts is missing/],
  ];
  it.each(cases)("%s: %j", (name, fields, message) => {
    expect(() => configOf(name, fields)).toThrow(FileError);
    expect(() => configOf(name, fields)).toThrow(message);
  });
});
