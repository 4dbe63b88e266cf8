/**
 * Whole training runs on a GPU: every loss, and after every step every parameter, optimizer state and amax, equals the
 * reference's bit for bit.
 */
import { expect, it } from "vitest";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";
import {
  ALL_RUNS,
  loadRuns,
  recordedRun,
  resumedSteps,
  runSteps,
  selectSteps,
} from "../harness/training/recorded.js";
import { TrainingRun } from "../harness/training/run.js";

/**
 * A run moves from the GPU to the reference after `middle` steps and stops after `end`, because the reference is
 * slower.
 */
const MOVED = { middle: 6, end: 10 };

describeOnGpu("training on a GPU", () => {
  const { gpu, reference } = useGpu();
  const recorded = loadRuns();

  it.each(ALL_RUNS)(
    "$task under $recipe: $steps steps have the reference's bits",
    ({ task, recipe, steps }) => {
      using run = new TrainingRun(gpu(), task, recipe);
      const { losses, hashes } = recordedRun(recorded, task, recipe);
      expect(runSteps(run, steps)).toEqual({ losses, hashes });
    },
  );

  it.each(ALL_RUNS)(
    "$task under $recipe: a run resumed in the middle has the reference's bits",
    async ({ task, recipe, steps }) => {
      const { losses, hashes } = recordedRun(recorded, task, recipe);
      const made = await resumedSteps([gpu(), gpu()], { task, recipe }, { middle: steps / 2, end: steps });
      expect(made).toEqual({ losses, hashes });
    },
  );

  it.each(ALL_RUNS)(
    "$task under $recipe: a run begun on the GPU and ended on the reference has the reference's bits",
    async (which) => {
      const { losses, hashes } = selectSteps(recordedRun(recorded, which.task, which.recipe), 0, MOVED.end);
      expect(await resumedSteps([gpu(), reference()], which, MOVED)).toEqual({ losses, hashes });
    },
  );
});
