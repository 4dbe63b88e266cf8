/**
 * Runs every recorded training run to its end. RECORD_TRAINING=FILE records the runs again.
 * TRAINING_RUNS=task/recipe,... selects runs; the records of the others stay.
 */
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { useBackend } from "../harness/suite.js";
import { ALL_RUNS, loadRuns, recordedRun, runSteps } from "../harness/training/recorded.js";
import { TrainingRun } from "../harness/training/run.js";

const { RECORD_TRAINING, TRAINING_RUNS } = process.env;
const runs = ALL_RUNS.filter(
  ({ task, recipe }) => !TRAINING_RUNS || TRAINING_RUNS.split(",").includes(`${task}/${recipe}`),
);

describe("training on the reference", () => {
  const backend = useBackend({ datapath: "hopper" });

  it.runIf(RECORD_TRAINING)("records the run of every task and recipe", () => {
    const origin = { project: "Lockstep's reference, datapath hopper", version: "1" };
    const training = ALL_RUNS.map((description) => {
      const { task, recipe, steps } = description;
      if (!runs.includes(description)) return recordedRun(loadRuns(), task, recipe);
      using run = new TrainingRun(backend(), task, recipe);
      return { task, recipe, ...runSteps(run, steps) };
    });
    writeFileSync(RECORD_TRAINING as string, `${JSON.stringify({ origin, training }, null, 1)}\n`);
  });

  it.each(runs)("$task under $recipe is as recorded", ({ task, recipe, steps }) => {
    using run = new TrainingRun(backend(), task, recipe);
    const { losses, hashes } = recordedRun(loadRuns(RECORD_TRAINING), task, recipe);
    expect(runSteps(run, steps)).toEqual({ losses, hashes });
  });
});
