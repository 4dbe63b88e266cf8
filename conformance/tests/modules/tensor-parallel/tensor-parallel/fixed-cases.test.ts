/** The law of divided layers in small fixed cases, one for each way to divide a layer. */
import { describe, it } from "vitest";
import { sampleCases } from "../../../harness/draws.js";
import type { StepActivation } from "../../../harness/step/options.js";
import type { ParallelCase } from "../case.js";
import { assertRanksAgree } from "../law.js";
import { useRanks } from "../ranks.js";

const LAYERS = ["column", "row", "norm", "mlp"] as const;

/**
 * The recipes, with the numbers of columns and of rows of a rank that consist of complete blocks. The model takes too long for
 * blocks of 128 x 128.
 */
const RECIPES = [
  ["none", 16, 4],
  ["delayed", 16, 16],
  ["delayed, most recent", 16, 16],
  ["current", 16, 16],
  ["mxfp8", 32, 32],
  ["nvfp4", 16, 16],
  ["custom", 32, 32],
] as const;

/** How rows are divided, and whether the rows of a rank consist of complete blocks. */
const ROWS = [
  { sequence: false, whole: false },
  { sequence: true, whole: true },
  { sequence: true, whole: false },
] as const;

/** Options that vary from case to case, so that neighbouring cases have different combinations. */
const OPTIONS = [
  { bias: true, dtype: "f32", fuses: false, savesOriginal: false, delays: false },
  { bias: true, dtype: "bf16", fuses: true, savesOriginal: true, delays: true },
  { bias: false, dtype: "bf16", fuses: false, savesOriginal: false, delays: false },
  { bias: true, dtype: "bf16", fuses: false, savesOriginal: true, delays: true },
  { bias: true, dtype: "f32", fuses: true, savesOriginal: true, delays: false },
] as const;

/** How each step uses the weight. */
const CALLS = [
  ["alone", "alone"],
  ["first", "later"],
  ["first", "first"],
  ["recomputed", "later"],
  ["first", "recomputed"],
] as const satisfies readonly ParallelCase["calls"][];

const RANKS = 2;
// all ranks run in one turn of the event loop, so a rank that waits for another fails
const groups = useRanks(RANKS, "exact", 1000);

const cases = RECIPES.flatMap(([recipe, unit, rows], recipeIndex) =>
  LAYERS.flatMap((layer, layerIndex) =>
    ROWS.flatMap(({ sequence, whole: wholeRows }, sequenceIndex) =>
      [0, 1].map((optionIndex): ParallelCase => {
        const { dtype, ...options } = OPTIONS[
          (recipeIndex + layerIndex + sequenceIndex + 2 * optionIndex) % OPTIONS.length
        ] as (typeof OPTIONS)[number];
        const pieces =
          unit === 16 && (layerIndex + sequenceIndex) % 2 === 0 && layer !== "row" && layer !== "mlp" ? 3 : 1;
        const dividedSize = RANKS * unit * pieces;
        return {
          ...options,
          layer,
          recipe,
          ranks: RANKS,
          sequence,
          overlap: (recipeIndex + layerIndex + sequenceIndex + optionIndex) % 2 === 0,
          rows: RANKS * (wholeRows ? rows : 3),
          inFeatures: layer === "row" ? dividedSize : unit,
          outFeatures: layer === "row" ? unit : dividedSize,
          pieces,
          activation:
            (["swiglu", "gelu", "geglu"] as const satisfies StepActivation[])[
              (recipeIndex + sequenceIndex) % 3
            ] ?? "gelu",
          normalization: (layerIndex + sequenceIndex + optionIndex) % 2 === 0 ? "LayerNorm" : "RMSNorm",
          dtype: recipe === "nvfp4" ? "bf16" : dtype,
          savesOriginal: options.savesOriginal && !recipe.startsWith("delayed"),
          calls: CALLS[
            (recipeIndex + layerIndex + 2 * sequenceIndex + optionIndex) % CALLS.length
          ] as ParallelCase["calls"],
          rewrites: (layerIndex + sequenceIndex + optionIndex) % 2 === 0,
          outlier: optionIndex === 0 ? (recipeIndex + layerIndex) % RANKS : undefined,
          seed: 100 * recipeIndex + 10 * layerIndex + sequenceIndex,
        };
      }),
    ),
  ),
);

describe("a divided layer", () => {
  it.each(sampleCases(cases))(
    "is the model's: $layer under $recipe, sequence $sequence, $rows rows, bias $bias, $dtype, fuses $fuses, saves $savesOriginal",
    (parallelCase) => assertRanksAgree(parallelCase, groups(RANKS), "exact"),
  );
});
