/**
 * Optimizers, layers and sharded parameters keep memory between calls. If any allocation of the call that creates this memory
 * fails, the call frees all of its memory, and the same call then succeeds.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { ProcessGroup } from "../../../src/collectives/group.js";
import { LocalCommunicator } from "../../../src/collectives/local.js";
import { OutOfMemoryError } from "../../../src/errors.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import type { Module } from "../../../src/modules/module.js";
import { persistent, wideTensor } from "../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { zeros } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import type { Optimizer } from "../../../src/optimizers/optimizer.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { fullyShard } from "../../../src/parallel/fsdp/fully-shard.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { normal } from "../../../src/random.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { membersOf } from "../../../src/tape/value.js";
import { Scope } from "../../../src/tensor/scope.js";
import { product } from "../../arbitraries/covering.js";
import { IS_FULL } from "../harness/full.js";
import { createInputs, regionOptions, rowsWhere, testedCases } from "../harness/modules/calls.js";
import { runWithFailure, useBackend } from "../harness/suite.js";

const backend = useBackend();

/** A short run fails each of the first allocations of a call, and one of three of the others. */
const FIRST_ALLOCATIONS = 12;
const stepFrom = (k: number): number => (IS_FULL || k < FIRST_ALLOCATIONS ? 1 : 3);

/**
 * Requires for each tested k: if the k-th allocation of `work` fails, it throws, the same work then succeeds, and no memory is
 * left after the module is disposed of.
 */
function expectAllFreed<M extends { dispose(): void }>(make: () => M, work: (module: M) => void): void {
  const { live, blocks } = backend().memoryUse();
  let error: unknown;
  let k = 0;
  do {
    const module = make();
    ({ error } = runWithFailure(backend(), k, () => work(module)));
    if (error !== undefined) work(module);
    module.dispose();
    expect(backend().memoryUse(), `after allocation ${k} failed`).toMatchObject({ live, blocks });
    if (error !== undefined) expect(error).toBeInstanceOf(OutOfMemoryError);
    k += stepFrom(k);
  } while (error !== undefined);
  expect(k).toBeGreaterThan(1);
}

const SIZES = { rows: 32, from: 32, to: 32, middle: 32 };
const layerNormMLP = (dtype: "f32" | "bf16"): Module =>
  new LayerNormMLP(backend(), SIZES.from, SIZES.middle, { dtype });
const OPTIMIZERS: Readonly<Record<string, (module: Module) => Optimizer>> = {
  AdamW: (module) => new AdamW(module, { learningRate: 0.1 }),
  "AdamW of low precision": (module) =>
    new AdamW(module, {
      learningRate: 0.1,
      expAvgDtype: "e4m3",
      expAvgSqDtype: "f16",
      masterWeightDtype: "f16",
    }),
  "SGD with remainders": (module) =>
    new SGD(module, { learningRate: 0.1, momentum: 0.9, storeParamRemainders: true }),
  "SGD with momentum": (module) => new SGD(module, { learningRate: 0.1, momentum: 0.9 }),
};
const QUANTIZED: Readonly<Record<string, Recipe | undefined>> = {
  nothing: undefined,
  MXFP8: new MXFP8BlockScaling(),
  delayed: new DelayedScaling(),
};

describe("fullyShard that runs out of memory keeps none, and leaves the module as it was", () => {
  it.each(Object.entries(QUANTIZED))("of parameters quantized: %s", (_, recipe) => {
    expectAllFreed(
      () =>
        quantizedModelInit(
          { enabled: recipe !== undefined, recipe, preserveHighPrecisionInitVal: true },
          () => layerNormMLP("bf16"),
        ),
      (model) => {
        const shapes = model.parameters().map(({ value }) => String(value.shape));
        try {
          fullyShard(model, new ProcessGroup(new LocalCommunicator(backend(), "world", [0])));
        } catch (error) {
          expect(model.parameters().map(({ value }) => String(value.shape))).toEqual(shapes);
          throw error;
        }
      },
    );
  });
});

describe("a pass that runs out of memory leaves sharded main gradients usable, and keeps no memory", () => {
  it.each(product({ delayWgradCompute: [false, true], isFirstMicrobatch: [false, true] }))(
    "%j",
    ({ delayWgradCompute, isFirstMicrobatch }) => {
      const gradStrings = new Set<string>();
      expectAllFreed(
        () => {
          const random = new RandomState(1n);
          const options = { fuseWgradAccumulation: true, delayWgradCompute, random };
          const model = new LayerNormMLP(backend(), SIZES.from, SIZES.middle, options);
          fullyShard(model, new ProcessGroup(new LocalCommunicator(backend(), "world", [0])));
          for (const parameter of model.parameters())
            if (parameter.fusesAccumulation)
              parameter.mainGrad = persistent(zeros(backend(), "f32", parameter.shape));
          return model;
        },
        (model) => {
          using _ = new Scope();
          for (const parameter of model.parameters()) parameter.clearGrads();
          const shape = [SIZES.rows, SIZES.from] as const;
          const x = wideTensor(
            backend(),
            normal({ seed: 1n, offset: 0n }, shape[0] * shape[1], 1),
            shape,
            "bf16",
          );
          model.forward(x, { isFirstMicrobatch }).backward(x);
          if (delayWgradCompute) model.backwardDw();
          gradStrings.add(
            String(model.parameters().map(({ grad, mainGrad }) => (mainGrad ?? grad)?.dataSync())),
          );
        },
      );
      expect(gradStrings.size).toBe(1);
    },
  );
});

describe.each(Object.entries(OPTIMIZERS))("%s that runs out of memory keeps none", (_, optimizer) => {
  for (const dtype of ["f32", "bf16"] as const)
    it.each(Object.entries(QUANTIZED))(`of ${dtype} parameters, quantized: %s`, (__, recipe) => {
      for (const preserveHighPrecisionInitVal of recipe ? [false, true] : [false])
        expectAllFreed(
          () =>
            quantizedModelInit({ enabled: recipe !== undefined, recipe, preserveHighPrecisionInitVal }, () =>
              layerNormMLP(dtype),
            ),
          (model) => {
            optimizer(model).dispose();
            const tensors = model.parameters().flatMap(({ value }) => membersOf(value));
            expect(tensors.some(({ disposed }) => disposed)).toBe(false);
          },
        );
    });
});

const noModule = { dispose: () => undefined };
/** Modules that allocate parameters. */
const MADE = rowsWhere(({ hasNoParameters }) => !hasNoParameters).flatMap(([name, row]) =>
  Object.entries(QUANTIZED).map(([kind, recipe]) => [name, kind, row, recipe] as const),
);

describe("a constructor that runs out of memory keeps none of its parameters", () => {
  it.each(MADE)("of %s, quantized: %s", (_, __, row, recipe) => {
    const init = { enabled: recipe !== undefined, recipe };
    const make = () => row.build(backend(), SIZES).module;
    expectAllFreed(
      () => noModule,
      () => quantizedModelInit(init, make).dispose(),
    );
  });
});

const CALLED = rowsWhere().flatMap(([name, row]) =>
  Object.entries(QUANTIZED)
    .filter(([, recipe]) => !recipe || row.quantizes)
    .map(([kind, recipe]) => [name, kind, row, recipe] as const),
);

describe("a forward pass that runs out of memory keeps no memory, and no state of delayed scaling", () => {
  it.each(testedCases(CALLED, ([, , row]) => row))("of %s, recipe: %s", (_, __, row, recipe) => {
    using scope = new Scope();
    const probe = row.build(backend(), SIZES);
    const inputs = createInputs(backend(), probe, { ...SIZES, isZero: true });
    probe.module.dispose();
    expectAllFreed(
      () => row.build(backend(), SIZES).module,
      (module) => {
        using _ = new Scope();
        noGrad(() => autocast(regionOptions(recipe), () => row.wrap(module)?.run(inputs)));
      },
    );
    scope.dispose();
  });
});
