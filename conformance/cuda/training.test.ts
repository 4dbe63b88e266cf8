/** Whole training runs on a GPU: every loss, and after every step every parameter, optimizer state and amax, as the reference has them. */
import { expect, it } from "vitest";
import { describeOnGpu, useGpu } from "../harness/gpu.js";
import { ALL_RUNS, loadRuns, recordedRun, stepsOf } from "../harness/training/recorded.js";
import { TrainingRun } from "../harness/training/run.js";

describeOnGpu("training on a GPU", () => {
  const { gpu } = useGpu();
  const recorded = loadRuns();

  it.each(ALL_RUNS)("$task under $recipe: $steps steps, the reference's bits", ({ task, recipe, steps }) => {
    using run = new TrainingRun(gpu(), task, recipe);
    const { losses, hashes } = recordedRun(recorded, task, recipe);
    expect(stepsOf(run, steps)).toEqual({ losses, hashes });
  });
});
