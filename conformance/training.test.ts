/** The first steps of every recorded training run, computed again; an H200 gives the same (conformance/cuda/training.test.ts). */
import { describe, expect, it } from "vitest";
import { openBackend } from "../src/backends/open.js";
import { useBackend } from "./harness/suite.js";
import {
  ALL_RUNS,
  loadRuns,
  partOf,
  recordedRun,
  resumedSteps,
  stepsOf,
} from "./harness/training/recorded.js";
import { TrainingRun } from "./harness/training/run.js";

const PREFIX = 4;
const recorded = loadRuns();

describe("training on the reference", () => {
  const backend = useBackend({ datapath: "hopper" });

  it("is recorded for every task and recipe", () => {
    expect(recorded.training.map(({ task, recipe, hashes }) => [task, recipe, hashes.length])).toEqual(
      ALL_RUNS.map(({ task, recipe, steps }) => [task, recipe, steps]),
    );
  });

  it.each(ALL_RUNS)("$task under $recipe begins as recorded", ({ task, recipe }) => {
    using run = new TrainingRun(backend(), task, recipe);
    expect(stepsOf(run, PREFIX)).toEqual(partOf(recordedRun(recorded, task, recipe), 0, PREFIX));
  });

  it.each(ALL_RUNS)("$task under $recipe goes on from a checkpoint as recorded", async (which) => {
    const steps = await resumedSteps([backend(), backend()], which, { middle: 2, end: PREFIX });
    expect(steps).toEqual(partOf(recordedRun(recorded, which.task, which.recipe), 0, PREFIX));
  });

  it("lowers every loss to less than two thirds, under every recipe", () => {
    for (const { task, recipe, losses } of recorded.training) {
      const last = losses.slice(-10);
      const mean = last.reduce((sum, loss) => sum + loss, 0) / last.length;
      expect(mean, `${task} ${recipe}`).toBeLessThan(((losses[0] as number) * 2) / 3);
    }
  });
});

describe("the number of threads", () => {
  it.each([1, 3])("is not seen in a run: %i", async (threads) => {
    const backend = await openBackend("wasm", { datapath: "hopper", threads });
    for (const task of ["mlp", "transformer"] as const) {
      using run = new TrainingRun(backend, task, "nvfp4");
      expect(stepsOf(run, PREFIX)).toEqual(partOf(recordedRun(recorded, task, "nvfp4"), 0, PREFIX));
    }
    await backend.dispose();
  });
});
