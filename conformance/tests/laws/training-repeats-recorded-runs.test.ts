/**
 * Recomputes the first steps of every recorded training run. An H200 gives the same bits
 * (conformance/tests/cuda/training.test.ts).
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { Backend } from "../../../src/backends/backend.js";
import { openBackend } from "../../../src/backends/open.js";
import { crossEntropyLoss } from "../../../src/functional/loss.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../src/modules/linear.js";
import { Sequential } from "../../../src/modules/sequential.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import { clipGradNorm } from "../../../src/optimizers/clip-grad-norm.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { normal } from "../../../src/random.js";
import { Scope } from "../../../src/tensor/scope.js";
import { sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { useBackend } from "../harness/suite.js";
import {
  ALL_RUNS,
  loadRuns,
  recordedRun,
  resumedSteps,
  runSteps,
  selectSteps,
} from "../harness/training/recorded.js";
import { RECIPE_NAMES, RECIPES_UNDER_TEST, type RecipeName, TrainingRun } from "../harness/training/run.js";

/** The first steps of a run that are repeated. */
const PREFIX = IS_FULL ? 4 : 2;
const recordedRuns = loadRuns();

describe("training on the reference", () => {
  const backend = useBackend({ datapath: "hopper" });

  it("has a recorded run for every task and recipe", () => {
    expect(recordedRuns.training.map(({ task, recipe, hashes }) => [task, recipe, hashes.length])).toEqual(
      ALL_RUNS.map(({ task, recipe, steps }) => [task, recipe, steps]),
    );
  });

  it.each(sampleCases(ALL_RUNS, 3))("$task under $recipe begins as recorded", ({ task, recipe }) => {
    using run = new TrainingRun(backend(), task, recipe);
    expect(runSteps(run, PREFIX)).toEqual(selectSteps(recordedRun(recordedRuns, task, recipe), 0, PREFIX));
  });

  it.each(sampleCases(ALL_RUNS, 2, 1))(
    "$task under $recipe resumed from a checkpoint is as recorded",
    async (run) => {
      const steps = await resumedSteps([backend(), backend()], run, { middle: PREFIX / 2, end: PREFIX });
      expect(steps).toEqual(selectSteps(recordedRun(recordedRuns, run.task, run.recipe), 0, PREFIX));
    },
  );

  it.each(sampleCases(RECIPE_NAMES, 1))("lowers a loss to less than two thirds, under %s", (name) => {
    const losses = (learningRate: number): number[] => trained(backend(), name, learningRate);
    const [firstLoss, lastLoss] = [0, -1].map((index) => losses(1e-2).at(index) as number) as [
      number,
      number,
    ];
    expect(lastLoss).toBeLessThan((firstLoss * 2) / 3);
    // with a learning rate of 0 the loss stays
    expect(losses(0).at(-1)).toBeGreaterThan((firstLoss * 9) / 10);
  });
});

const LEARNING_STEPS = 16;

/** The losses of a small network that memorizes the classes of 32 vectors. */
function trained(backend: Backend, name: RecipeName, learningRate: number): number[] {
  using _scope = new Scope();
  const random = new RandomState(1n);
  using model = new Sequential(
    backend,
    new LayerNormMLP(backend, 32, 64, { activation: "swiglu", random }),
    new Linear(backend, 32, 32, { random }),
  );
  using optimizer = new AdamW(model, { learningRate });
  const recipe = RECIPES_UNDER_TEST[name]?.();
  const values = tensor(backend, normal({ seed: 2n, offset: 0n }, 32 * 32, 1), [32, 32]);
  const x = encode(values, { format: "bf16", overflow: "nonfinite" });
  const classes = tensor(
    backend,
    Int32Array.from({ length: 32 }, (_, row) => row),
    [32],
    "i32",
  );
  return Array.from({ length: LEARNING_STEPS }, () => {
    const loss = autocast(recipe ? { recipe } : { enabled: false }, () =>
      crossEntropyLoss(model.forward(x), classes),
    );
    loss.backward();
    optimizer.step({ gradScale: clipGradNorm(optimizer, 1).factor });
    optimizer.zeroGrad();
    return loss.tensor.dataSync()[0] as number;
  });
}

describe("the number of threads", () => {
  it.each(sampleCases([1, 3], 1))("changes no bit of a run: %i", async (threads) => {
    const backend = await openBackend("wasm", { datapath: "hopper", threads });
    for (const task of ["mlp", "transformer"] as const) {
      using run = new TrainingRun(backend, task, "nvfp4");
      expect(runSteps(run, PREFIX)).toEqual(selectSteps(recordedRun(recordedRuns, task, "nvfp4"), 0, PREFIX));
    }
    await backend.dispose();
  });
});
