/**
 * Optimizers and layers keep memory between calls. If any allocation of the call that creates this memory fails, the call frees
 * all of its memory, and the same call then succeeds.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { OutOfMemoryError } from "../../../src/errors.js";
import { Embedding } from "../../../src/modules/embedding.js";
import { GroupedLinear } from "../../../src/modules/grouped-linear.js";
import { LayerNormLinear } from "../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../src/modules/linear.js";
import type { Module } from "../../../src/modules/module.js";
import { MoELayer } from "../../../src/modules/moe-layer.js";
import { LayerNorm, RMSNorm } from "../../../src/modules/norm.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { zeros } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import type { Optimizer } from "../../../src/optimizers/optimizer.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import type { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { failingAt, useBackend } from "../harness/suite.js";

const backend = useBackend();

/**
 * Requires for each k: if the k-th allocation of `work` fails, it throws, and no memory is left after the module is disposed
 * of.
 */
function expectAllFreed<M extends { dispose(): void }>(make: () => M, work: (module: M) => void): void {
  const { live, blocks } = backend().memoryUse();
  let error: unknown;
  let k = 0;
  do {
    const module = make();
    ({ error } = failingAt(backend(), k++, () => work(module)));
    module.dispose();
    expect(backend().memoryUse(), `after allocation ${k - 1} failed`).toMatchObject({ live, blocks });
    if (error !== undefined) expect(error).toBeInstanceOf(OutOfMemoryError);
  } while (error !== undefined);
  expect(k).toBeGreaterThan(2);
}

const SIZE = 32;
type Layer = Module & { forward(x: Tensor): Variable };
const layerNormMLP = (dtype: "f32" | "bf16"): Layer => new LayerNormMLP(backend(), SIZE, SIZE, { dtype });
const LAYERS: Readonly<Record<string, () => Layer>> = {
  Linear: () => new Linear(backend(), SIZE, SIZE),
  LayerNormLinear: () => new LayerNormLinear(backend(), SIZE, SIZE),
  LayerNormMLP: () => layerNormMLP("bf16"),
};
const MADE: Readonly<Record<string, () => Module>> = {
  ...LAYERS,
  GroupedLinear: () => new GroupedLinear(backend(), 2, SIZE, SIZE),
  MoELayer: () => new MoELayer(backend(), SIZE, SIZE, 2, { topk: 1 }),
  LayerNorm: () => new LayerNorm(backend(), SIZE),
  RMSNorm: () => new RMSNorm(backend(), SIZE),
  Embedding: () => new Embedding(backend(), SIZE, SIZE),
};
const OPTIMIZERS: Readonly<Record<string, (module: Module) => Optimizer>> = {
  AdamW: (module) => new AdamW(module, { learningRate: 0.1 }),
  "SGD with momentum": (module) => new SGD(module, { learningRate: 0.1, momentum: 0.9 }),
};
const QUANTIZED: Readonly<Record<string, Recipe | undefined>> = {
  nothing: undefined,
  MXFP8: new MXFP8BlockScaling(),
  delayed: new DelayedScaling(),
};

describe.each(Object.entries(OPTIMIZERS))("%s that runs out of memory keeps none", (_, optimizer) => {
  for (const dtype of ["f32", "bf16"] as const)
    it.each(Object.entries(QUANTIZED))(`of ${dtype} parameters, quantized: %s`, (__, recipe) => {
      for (const preserveHighPrecisionInitVal of recipe ? [false, true] : [false])
        expectAllFreed(
          () =>
            quantizedModelInit({ enabled: recipe !== undefined, recipe, preserveHighPrecisionInitVal }, () =>
              layerNormMLP(dtype),
            ),
          (model) => optimizer(model).dispose(),
        );
    });
});

describe.each(Object.entries(MADE))("the constructor of %s that runs out of memory keeps none", (_, make) => {
  it.each(Object.entries(QUANTIZED))("of its parameters, quantized: %s", (__, recipe) => {
    const init = { enabled: recipe !== undefined, recipe };
    const nothing = { dispose: () => undefined };
    expectAllFreed(
      () => nothing,
      () => quantizedModelInit(init, make).dispose(),
    );
  });
});

it.each(Object.entries(LAYERS))("%s that runs out of memory keeps no state of delayed scaling", (_, make) => {
  using x = zeros(backend(), "bf16", [SIZE, SIZE]);
  expectAllFreed(make, (layer) => {
    using _ = new Scope();
    noGrad(() => autocast({ recipe: new DelayedScaling() }, () => layer.forward(x)));
  });
});
