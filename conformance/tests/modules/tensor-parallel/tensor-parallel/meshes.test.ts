/**
 * Training on a mesh: tensor parallelism in each network, and DataParallel or fullyShard between networks. The parameters are
 * bitwise equal to the parameters of one network that gets all samples in the order of the networks.
 */
import fc from "fast-check";
import { expect, it } from "vitest";
import { draws } from "../../../harness/draws.js";
import { DETERMINISTIC_RECIPES } from "../../../harness/recipes.js";
import { meshSize, type ParallelForm, rankSteps } from "../../../harness/training/parallel.js";
import { useRanks } from "../ranks.js";

const MOST = 8;
const STEPS = 2;
const groups = useRanks(MOST, "exact");

/**
 * Recipes without state between samples. Delayed scaling updates its scales after each sample, and stochastic rounding advances
 * its random state.
 */
const RECIPES = Object.keys(DETERMINISTIC_RECIPES).filter((name) => name !== "delayed");

const cases = fc
  .record({
    task: fc.constantFrom("mlp", "transformer"),
    sharded: fc.boolean(),
    recipe: fc.constantFrom(...RECIPES),
    mesh: fc.constantFrom(
      { tp: 2, dp: 2 },
      { tp: 2, dp: 2 },
      { tp: 1, dp: 2 },
      { tp: 2, dp: 3 },
      { tp: 2, dp: 4 },
      { tp: 4, dp: 2 },
    ),
    sequence: fc.boolean(),
    dtype: fc.constantFrom("bf16", "f32"),
  } as const)
  .map(({ mesh, dtype, ...rest }) => ({
    ...rest,
    mesh,
    sequence: rest.sequence && mesh.tp > 1,
    // one process rounds after each addition of bf16 gradients, ranks round once; with two ranks both round once
    dtype: rest.recipe === "nvfp4" ? "bf16" : mesh.dp > 2 ? "f32" : dtype,
  }))
  .filter(({ recipe, mesh }) => recipe !== "nvfp4" || mesh.dp === 2);

it("TP x DP and TP x FSDP have the parameters of TP whose samples are summed in rank order", async () => {
  await fc.assert(
    fc.asyncProperty(cases, async ({ dtype, sharded: isSharded, ...parallelCase }) => {
      const { recipe, mesh } = parallelCase;
      const { tp } = mesh;
      const form = (): ParallelForm => ({
        dtype,
        parametersOnly: true,
        recipe: DETERMINISTIC_RECIPES[recipe]?.(),
      });
      const plan = { ...parallelCase, recipe: "bf16" } as const;
      const together = await rankSteps(
        groups(meshSize(mesh)),
        isSharded ? ({ ...plan, task: `sharded ${parallelCase.task}` } as const) : plan,
        STEPS,
        form(),
      );
      const tpSteps = await rankSteps(groups(tp), plan, STEPS, { ...form(), accumulates: true });
      const description = JSON.stringify({ dtype, sharded: isSharded, ...parallelCase });
      for (const [step, hashes] of together.entries())
        for (const [rank, hash] of hashes.entries())
          expect(hash, `rank ${rank} after step ${step} of ${description}`).toBe(tpSteps[step]?.[rank % tp]);
    }),
    { numRuns: draws(5) },
  );
});
