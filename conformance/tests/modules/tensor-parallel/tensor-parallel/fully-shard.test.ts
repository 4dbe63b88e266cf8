/** Tensor-parallel layers under fullyShard have the same parameters as under DataParallel. */
import { describe, expect, it } from "vitest";
import { sampleCases } from "../../../harness/draws.js";
import { rankSteps } from "../../../harness/training/parallel.js";
import { RECIPE_NAMES } from "../../../harness/training/run.js";
import { useRanks } from "../ranks.js";

const STEPS = 2;
const mesh = { tp: 2, dp: 2 } as const;
const groups = useRanks(4, "exact", 1000);

describe.each([false, true])("TP x FSDP, rows divided: %s", (sequence) => {
  it.each(sampleCases(RECIPE_NAMES, 2, Number(sequence)))(
    "%s: has the parameters of TP x DP",
    async (recipe) => {
      const steps = (task: "mlp" | "sharded mlp") =>
        rankSteps(groups(4), { task, recipe, mesh, sequence }, STEPS, {
          dtype: recipe === "delayed" ? "f32" : "bf16",
          parametersOnly: true,
        });
      expect(await steps("sharded mlp")).toEqual(await steps("mlp"));
    },
  );
});
