/**
 * The state of ranks that have different layers of a model is saved under the names of the model, and loaded by ranks that have
 * other layers of it.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { autocast } from "../../../../../src/autocast.js";
import type { ProcessGroup } from "../../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import { loadShardedCheckpoint } from "../../../../../src/io/sharded/load.js";
import { saveShardedCheckpoint } from "../../../../../src/io/sharded/save.js";
import { Linear } from "../../../../../src/modules/linear.js";
import { Sequential } from "../../../../../src/modules/sequential.js";
import { tensor } from "../../../../../src/ops/create.js";
import { AdamW } from "../../../../../src/optimizers/adamw.js";
import { RandomState } from "../../../../../src/quantizers/random-state.js";
import { DelayedScaling } from "../../../../../src/recipes/per-tensor.js";
import { Variable } from "../../../../../src/tape/variable.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import { draws } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { useFolder } from "../../folder.js";

const LAYERS = 4;
const FEATURES = 16;
const backends = useBackends(LAYERS);

let folder = "";
useFolder((createdFolder) => {
  folder = createdFolder;
});

/** The layers of one rank. Its module numbers them from 0; the model numbers them from `first`. */
class Stage {
  readonly model: Sequential;
  readonly optimizer: AdamW;
  readonly random: RandomState;

  constructor(
    readonly group: ProcessGroup,
    readonly firstLayer: number,
    count: number,
    seed: number,
  ) {
    const { backend } = group;
    this.random = new RandomState(BigInt(seed), 5n);
    const layers = Array.from({ length: count }, (_, i) => {
      const random = new RandomState(BigInt(seed + 100 * (firstLayer + i)));
      return new Linear(backend, FEATURES, FEATURES, { dtype: "bf16", random });
    });
    this.model = new Sequential(backend, ...layers);
    this.optimizer = new AdamW(this.model, { learningRate: 0.1 });
    using _scope = new Scope();
    for (const [i, layer] of layers.entries()) {
      // other amaxes and another number of steps for each layer
      const x = new Float32Array(FEATURES * FEATURES).fill(seed + firstLayer + i);
      const input = new Variable(tensor(backend, x, [FEATURES, FEATURES]));
      const recipe = new DelayedScaling({ amaxHistoryLen: 3 });
      autocast({ recipe }, () => layer.forward(input));
      for (const [name, slot] of this.optimizer.slots)
        if (name.startsWith(`${i}.`)) slot.steps = 10 * seed + firstLayer + i;
    }
  }

  nameOf(name: string): string {
    return name.replace(/^\d+/, (index) => String(Number(index) + this.firstLayer));
  }

  /** The state of each parameter and quantization, by its name in the model. */
  state(): readonly (readonly [name: string, state: string])[] {
    const { model, optimizer } = this;
    const parameters = [...model.namedParameters()].map(
      ([name, { tensor: parameterTensor }]) => [name, String(parameterTensor.dataSync())] as const,
    );
    const slots = [...optimizer.slots].map(([name, { master, buffers, steps }]) => {
      const tensors = [...(master ? [master] : []), ...buffers.values()];
      return [`${name} slot`, `${steps} ${tensors.map((slotTensor) => slotTensor.dataSync())}`] as const;
    });
    const scales = [...model.namedQuantizations()].map(
      ([name, quantization]) => [`${name} scales`, JSON.stringify(quantization.snapshotSync())] as const,
    );
    return [...parameters, ...slots, ...scales].map(([name, text]) => [this.nameOf(name), text] as const);
  }

  dispose(): void {
    this.optimizer.dispose();
    this.model.dispose();
  }
}

/** Divides the layers among ranks: `boundaries` are the first layers of all ranks except the first. */
function stagesOf(boundaries: readonly number[], seed: number): readonly Stage[] {
  const starts = [0, ...boundaries];
  return loopbackOver(backends.slice(0, starts.length), 20_000).map((group, rank) => {
    const firstLayer = starts[rank] as number;
    return new Stage(group, firstLayer, (starts[rank + 1] ?? LAYERS) - firstLayer, seed);
  });
}

const statesOf = (stages: readonly Stage[]) =>
  stages.flatMap((stage) => stage.state()).toSorted(([a], [b]) => (a < b ? -1 : 1));

interface LoadingOptions {
  readonly optimizer: boolean;
  readonly restoreRandom: boolean | undefined;
}

/** The options of a stage. A rank whose layers have their names in the model may leave out `nameOf`. */
const optionsOf = (stage: Stage, hasOptimizer: boolean) => ({
  module: stage.model,
  group: stage.group,
  random: stage.random,
  ...(hasOptimizer ? { optimizer: stage.optimizer } : {}),
  ...(stage.firstLayer === 0 ? {} : { nameOf: (name: string) => stage.nameOf(name) }),
});

async function roundTrip(
  boundariesBefore: readonly number[],
  boundariesAfter: readonly number[],
  { optimizer, restoreRandom }: LoadingOptions,
): Promise<void> {
  const [savedStages, loadedStages] = [stagesOf(boundariesBefore, 1), stagesOf(boundariesAfter, 2)];
  const [expected, statesBefore] = [statesOf(savedStages), new Map(statesOf(loadedStages))];
  await Promise.all(savedStages.map((stage) => saveShardedCheckpoint(folder, optionsOf(stage, true))));
  await Promise.all(
    loadedStages.map((stage) =>
      loadShardedCheckpoint(folder, { ...optionsOf(stage, optimizer), restoreRandom }),
    ),
  );
  expect(statesOf(loadedStages)).toEqual(
    expected.map(([name, state]) =>
      optimizer || !name.endsWith(" slot") ? [name, state] : [name, statesBefore.get(name)],
    ),
  );
  for (const { random } of loadedStages) expect(random.seed).toBe(restoreRandom === false ? 2n : 1n);
  for (const stage of [...savedStages, ...loadedStages]) stage.dispose();
}

it("parameters, masters, step counts, scales and random states are restored under any names", async () => {
  const boundaries = fc.subarray([1, 2, 3]);
  const loadingOptions = fc.record({
    optimizer: fc.constantFrom(true, true, false),
    restoreRandom: fc.constantFrom(undefined, true, false),
  });
  await fc.assert(fc.asyncProperty(boundaries, boundaries, loadingOptions, roundTrip), {
    numRuns: draws(24, 6),
    // the step counts of a rank whose names are not those of the model
    examples: [[[1], [2], { optimizer: true, restoreRandom: true }]],
  });
});
