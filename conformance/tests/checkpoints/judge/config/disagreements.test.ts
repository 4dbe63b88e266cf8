/** Two declarations of one fact give a finding exactly if their meanings differ, however each declaration is written. */
import { describe, expect, it } from "vitest";
import { judgeDisagreements } from "../../../../../src/checkpoints/judge/config/disagreements.js";
import type { JsonObject } from "../../../../../src/io/json/json-object.js";

const PATHS = ["config.json", "hf_quant_config.json"] as const;

/** The whole config.json, and the `quantization` of ModelOpt's file; either may be absent. */
interface Files {
  readonly model?: JsonObject | undefined;
  readonly modelopt?: JsonObject | undefined;
}

const subjects = ({ model, modelopt }: Files): readonly (readonly [name: string, subject: string])[] =>
  judgeDisagreements(PATHS, model, modelopt && { quantization: modelopt }).map(({ name, subject }) => [
    name,
    subject,
  ]);

const configOf = (quantization_config: JsonObject): Files["model"] => ({ quantization_config });
const groups = (...sizes: readonly unknown[]): JsonObject => ({
  config_groups: Object.fromEntries(
    sizes.map((group_size, i) => [`group_${i}`, { weights: { num_bits: 4, group_size } }]),
  ),
});

/**
 * Facts that are declared in two places: their values in the first and in the second place, by meaning. "anything" agrees with
 * all others.
 */
interface Fact {
  readonly what: string;
  readonly firstPlace: Readonly<Record<string, readonly JsonObject[]>>;
  readonly secondPlace: Readonly<Record<string, readonly JsonObject[]>>;
  readonly files: (firstPlace: JsonObject, secondPlace: JsonObject) => Files;
}

const inBoth = (firstPlace: JsonObject, secondPlace: JsonObject): Files => ({
  model: configOf({ quant_method: "modelopt", ...firstPlace }),
  modelopt: secondPlace,
});
const CACHES = {
  FP8: [
    { kv_cache_scheme: { dynamic: false, num_bits: 8, type: "float" } },
    { kv_cache_scheme: "fp8" },
    { kv_cache_quant_algo: "FP8" },
  ],
  "4 bits": [{ kv_cache_scheme: { num_bits: 4, type: "float" } }],
  NVFP4: [{ kv_cache_quant_algo: "NVFP4" }, { kv_cache_scheme: null, kv_cache_quant_algo: "nvfp4" }],
  none: [{}, { kv_cache_quant_algo: null }, { kv_cache_scheme: null }],
};
const LAYERS = {
  one: [{ quantized_layers: { a: { quant_algo: "FP8" } } }],
  two: [
    { quantized_layers: { a: { quant_algo: "FP8" }, b: { quant_algo: "NVFP4" } } },
    { quantized_layers: { b: { quant_algo: "NVFP4", group_size: 16 }, a: { quant_algo: "FP8" } } },
  ],
  exchanged: [{ quantized_layers: { a: { quant_algo: "NVFP4" }, b: { quant_algo: "FP8" } } }],
  anything: [{}],
};
const oneFact = (key: string, ...values: readonly unknown[]) => ({
  ...Object.fromEntries(values.map((value) => [JSON.stringify(value), [{ [key]: value }]])),
  anything: [{}],
});
const asInner = (key: string): Fact => ({
  what: `${key} of the language model`,
  firstPlace: oneFact(key, "a", "b"),
  secondPlace: oneFact(key, "a", "b"),
  files: (firstPlace, secondPlace) => ({
    model: { quantization_config: firstPlace, text_config: { quantization_config: secondPlace } },
  }),
});
const asMlx = (key: string): Fact => ({
  what: `${key} of MLX`,
  firstPlace: oneFact(key, 4, 8),
  secondPlace: oneFact(key, 4, 8),
  files: (quantization_config, quantization) => ({ model: { quantization_config, quantization } }),
});

const FACTS: readonly Fact[] = [
  {
    what: "quant_algo",
    firstPlace: oneFact("quant_algo", "FP8", "NVFP4"),
    secondPlace: oneFact("quant_algo", "FP8", "NVFP4"),
    files: inBoth,
  },
  {
    what: "group_size",
    firstPlace: {
      16: [groups(16), groups(16, 16)],
      32: [groups(32)],
      anything: [{}, groups(16, 32), groups(null)],
    },
    secondPlace: { 16: [{ group_size: 16 }], 32: [{ group_size: 32 }], anything: [{}, { group_size: null }] },
    files: inBoth,
  },
  {
    what: "the unquantized modules",
    firstPlace: {
      head: [{ ignore: ["lm_head"] }, { ignore: ["lm_head", "lm_head"] }],
      two: [{ ignore: ["a", "lm_head"] }],
      none: [{}, { ignore: [] }],
    },
    secondPlace: {
      head: [{ exclude_modules: ["lm_head"] }],
      two: [{ exclude_modules: ["lm_head", "a"] }, { exclude_modules: ["a", "lm_head", "a"] }],
      none: [{}, { exclude_modules: [] }],
    },
    files: inBoth,
  },
  { what: "the cache", firstPlace: CACHES, secondPlace: CACHES, files: inBoth },
  { what: "quantized_layers", firstPlace: LAYERS, secondPlace: LAYERS, files: inBoth },
  {
    what: "the library",
    firstPlace: {
      modelopt: [{}, { quant_method: "modelopt" }, { quant_method: "modelopt_fp4" }],
      other: [{ quant_method: "compressed-tensors" }],
    },
    secondPlace: { modelopt: [{}] },
    files: (firstPlace, secondPlace) => ({ model: configOf(firstPlace), modelopt: secondPlace }),
  },
  {
    what: "the format of a group",
    firstPlace: {
      ...oneFact("format", "pack-quantized", "float-quantized"),
      anything: [{}, { format: "mixed-precision" }],
    },
    secondPlace: oneFact("format", "pack-quantized", "float-quantized"),
    files: (firstPlace, secondPlace) => ({
      model: configOf({ ...firstPlace, config_groups: { group_0: secondPlace } }),
    }),
  },
  ...["quant_method", "format", "quant_algo", "weight_block_size"].map(asInner),
  ...["bits", "group_size", "mode"].map(asMlx),
];

describe("declarations of one fact in two places", () => {
  it.each(FACTS)("$what", ({ firstPlace, secondPlace, files }) => {
    for (const [meaning, spellings] of Object.entries(firstPlace))
      for (const [otherSays, otherSpellings] of Object.entries(secondPlace))
        for (const spelling of spellings)
          for (const otherSpelling of otherSpellings) {
            const isSame = meaning === otherSays || [meaning, otherSays].includes("anything");
            const foundSubjects = subjects(files(spelling, otherSpelling));
            const pair = JSON.stringify([spelling, otherSpelling]);
            expect(
              foundSubjects.map(([name]) => name),
              pair,
            ).toEqual(isSame ? [] : ["config-disagree"]);
            for (const [, subject] of foundSubjects) expect(PATHS, pair).toContain(subject);
          }
  });

  it("agree if one of them is not there", () => {
    const config = { quant_algo: "FP8", kv_cache_quant_algo: "FP8", bits: 4, ignore: ["lm_head"] };
    for (const files of [{}, { model: configOf(config) }, { model: {}, modelopt: config }])
      expect(subjects(files)).toEqual([]);
  });
});
