/**
 * Attention modules and transformer layers on several ranks give the bits of the model on one rank, whose products use the plans
 * that the divided layers declare: results, and gradients of inputs and of every parameter.
 */
import { describe, expect, it } from "vitest";
import { covering, product } from "../../../arbitraries/covering.js";
import { sampleCases } from "../../harness/draws.js";
import { DIVIDED_LAYER_RECIPE_NAMES } from "../../harness/step/library-recipes.js";
import { RECIPES } from "../../harness/step/options.js";
import { difference } from "../../harness/step/seen.js";
import { useRanks } from "../tensor-parallel/ranks.js";
import { modelResults, partOn, type RanksCase, rankResults } from "./ranks-case.js";

// all ranks run in one turn of the event loop, so a rank that waits for another fails
const groups = useRanks(2, "hopper", 1000);

const FLAGS = [false, true];
const OPTIONS = covering(
  product({
    module: ["self", "cross", "layer", "layer, norm of the result", "layer, parallel"] as const,
    weights: ["separate", "fused", "ordered"] as const,
    groups: [4, 2] as const,
    sequence: FLAGS,
    layout: ["sbhd", "bshd"] as const,
    qkNorm: ["none", "RMSNorm", "LayerNorm"] as const,
    softmaxType: ["vanilla", "learnable"] as const,
    drops: FLAGS,
    inputNorm: FLAGS,
    dtype: ["bf16", "f32"] as const,
  }).filter(
    ({ module, weights, groups }) =>
      groups === 4 || weights === "fused" || (module === "cross" && weights !== "ordered"),
  ),
  2,
);

const NAMES = ["none", ...DIVIDED_LAYER_RECIPE_NAMES] as const;

/** The options with each recipe in turn, each at least once. */
const CASES = Array.from({ length: Math.max(OPTIONS.length, NAMES.length) }, (_, i): RanksCase => {
  const recipe = NAMES[i % NAMES.length] ?? "none";
  const options = OPTIONS[i % OPTIONS.length] as (typeof OPTIONS)[number];
  return {
    ...options,
    recipe,
    attention: "wide",
    ranks: 2,
    dtype: RECIPES[recipe]?.kind === "nvfp4" ? "bf16" : options.dtype,
    narrow: i % 2 === 0,
    bias: i % 3 !== 0,
    fuses: i % 4 === 1,
    checkpoints: i % 5 < 2,
  };
});

/** The recipes with FP8 attention whose scales are of tensors, with each option of it. */
const FP8 = product({
  recipe: DIVIDED_LAYER_RECIPE_NAMES.filter((name) => ["delayed", "current"].includes(RECIPES[name].kind)),
  attention: ["fp8Mha", "fp8Dpa"] as const,
});
const FP8_CASES = Array.from({ length: Math.max(OPTIONS.length, FP8.length) }, (_, i): RanksCase => {
  const options = OPTIONS[i % OPTIONS.length] as (typeof OPTIONS)[number];
  const fp8 = FP8[i % FP8.length] as (typeof FP8)[number];
  return {
    ...options,
    ...fp8,
    ranks: i % 3 === 0 ? 1 : 2,
    sequence: i % 3 !== 0 && options.sequence,
    qkNorm: i % 4 < 2 ? "none" : options.qkNorm,
    narrow: i % 2 === 0,
    bias: i % 3 !== 1,
    fuses: i % 4 === 1,
    checkpoints: i % 5 < 2,
  };
});

describe("a module divided by heads has the bits of the model on one rank", () => {
  const sampledCases = [...sampleCases(CASES, 1), ...sampleCases(FP8_CASES, 5)];
  it.each(sampledCases)(
    "$module, $recipe, $attention, $weights weights, $groups groups",
    async (ranksCase) => {
      const fullResults = modelResults(ranksCase);
      const results = await Promise.all(
        groups(ranksCase.ranks).map((group) => rankResults(ranksCase, group)),
      );
      for (const [rank, matrices] of results.entries()) {
        const expected = new Map(
          [...fullResults].map(([name, matrix]) => [name, partOn(ranksCase, matrix, rank)]),
        );
        expect(
          difference(matrices, expected),
          `rank ${rank} of ${JSON.stringify(ranksCase)}`,
        ).toBeUndefined();
      }
    },
  );
});
