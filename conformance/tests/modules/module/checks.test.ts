/** The checks of modules: they run before any operation, require only what the call needs, and name the public function. */
import { describe, expect, it } from "vitest";
import { type AutocastOptions, autocast } from "../../../../src/autocast.js";
import { ArgumentError, LockstepError, ShapeError, UnsupportedError } from "../../../../src/errors.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import { Module, type ModuleOptions } from "../../../../src/modules/module.js";
import { constantInit, normalInit, type Parameter } from "../../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { tensor, zeros } from "../../../../src/ops/create.js";
import { Float8CurrentScalingQuantizer } from "../../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import { MXFP8BlockScaling, NVFP4BlockScaling } from "../../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { DType, Shape } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { rowsWhere } from "../../harness/modules/calls.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const zero = (shape: Shape, dtype: DType = "bf16"): Tensor => zeros(backend(), dtype, shape);
const recipeOf = (make: (role: string) => Quantizer): Recipe =>
  new CustomRecipe({ quantizerFactory: (role) => make(role) });
const makeQuantizer = (): Quantizer => new Float8CurrentScalingQuantizer();
/** A recipe whose blocks divide 32 columns but not 16. */
const blocks = (): Quantizer => new MXFP8Quantizer();

/** Returns the error of a call, during which the backend must not run an operation. */
function refusalOf(call: () => unknown): LockstepError {
  const run = backend().run;
  const errors: string[] = [];
  backend().run = (op, args) => {
    errors.push(op);
    run.call(backend(), op, args);
  };
  const liveBefore = backend().memoryUse().live;
  let error: unknown;
  try {
    call();
  } catch (reason) {
    error = reason;
  } finally {
    backend().run = run;
  }
  expect(errors.filter((op) => op !== "fill")).toEqual([]);
  expect(backend().memoryUse().live).toBe(liveBefore);
  return error as LockstepError;
}

describe("a layer refuses before it computes anything", () => {
  const f32 = (shape: Shape): Tensor => zero(shape, "f32");

  it("in a later call under the same recipe", () => {
    using _ = new Scope();
    const recipe = new NVFP4BlockScaling();
    for (const layer of [
      new Linear(backend(), 32, 32, { dtype: "f32" }),
      new LayerNormMLP(backend(), 32, 32, { dtype: "f32" }),
    ]) {
      const x = f32([32, 32]);
      const run = (): Variable => autocast({ recipe }, () => layer.forward(x));
      // the Hadamard transform, which takes bf16 only, is the gradient's
      noGrad(run);
      expect(refusalOf(run).message).toMatch(/^linear: /);
      layer.dispose();
    }
  });

  it("where only the second product of an MLP needs an unsupported operation", () => {
    using _ = new Scope();
    using layer = new LayerNormMLP(backend(), 32, 32, { dtype: "f32" });
    layer.fc1Weight.requiresGrad = false;
    const x = f32([32, 32]);
    expect(
      refusalOf(() => autocast({ recipe: new NVFP4BlockScaling() }, () => layer.forward(x))).message,
    ).toMatch(/^linear: /);
    // and later, under the same recipe
    const recipe = new NVFP4BlockScaling();
    noGrad(() => autocast({ recipe }, () => layer.forward(x)));
    expect(refusalOf(() => autocast({ recipe }, () => layer.forward(x))).message).toMatch(/^linear: /);
  });

  it("where a calibrated MLP's second product does not fit", () => {
    using _ = new Scope();
    using layer = new LayerNormMLP(backend(), 32, 16);
    const region: AutocastOptions = { recipe: recipeOf(blocks), enabled: false, calibrating: true };
    const x = zero([32, 32]);
    expect(refusalOf(() => autocast(region, () => layer.forward(x)))).toBeInstanceOf(ShapeError);
  });

  it("inputs of any number of dimensions by their own shape, for the second product of an MLP", () => {
    using _ = new Scope();
    using layer = new LayerNormMLP(backend(), 32, 16);
    const recipe = new MXFP8BlockScaling();
    for (const rows of [[4], [2, 4], [2, 3, 4]]) {
      const x = zero([...rows, 32]);
      const error = refusalOf(() => autocast({ recipe }, () => layer.forward(x)));
      expect(error.message).toContain(`the input is [${[...rows, 16]}]`);
    }
  });

  it("a weight that does not fit its quantizer, by name", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), 16, 32);
    const x = zero([32, 16]);
    const recipe = recipeOf((role) => (role === "weight" ? blocks() : makeQuantizer()));
    const error = refusalOf(() => noGrad(() => autocast({ recipe }, () => layer.forward(x))));
    expect(error).toBeInstanceOf(ShapeError);
    expect(error.message).toMatch(/the weight/);
  });

  it("an input that is not aligned, by name", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), 24, 32);
    const x = zero([32, 24]);
    const error = refusalOf(() => autocast({ recipe: new Float8CurrentScaling() }, () => layer.forward(x)));
    expect(error.message).toMatch(/^linear: the input is \[32,24\]/);
  });

  it("a weight that was quantized for another recipe, and keeps nothing of this one", () => {
    using _ = new Scope();
    using layer = quantizedModelInit(
      { recipe: new MXFP8BlockScaling() },
      () => new Linear(backend(), 32, 32),
    );
    const x = zero([32, 32]);
    const liveBefore = backend().memoryUse().live;
    expect(() => autocast({ recipe: new DelayedScaling() }, () => layer.forward(x))).toThrow(ArgumentError);
    expect(backend().memoryUse().live).toBe(liveBefore);
  });

  it("a recipe that the backend does not support", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), 32, 32);
    const x = zero([32, 32]);
    const { supports } = backend();
    backend().supports = () => ({ ok: false, reason: "there is no such product" });
    try {
      // no other test checks support for this margin
      const run = (): Variable =>
        autocast({ recipe: new DelayedScaling({ margin: 11 }) }, () => layer.forward(x));
      expect(refusalOf(run)).toBeInstanceOf(UnsupportedError);
    } finally {
      backend().supports = supports;
    }
  });

  it("an input whose dtype differs in the second run of recompute, in an error that begins with the layer", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), 32, 32);
    let runs = 0;
    const body = (x: Variable | Tensor): Variable => {
      const { tensor } = x as Variable;
      return layer.forward(runs++ === 0 ? x : castTo(tensor, "f32"));
    };
    const y = autocast({ recipe: new NVFP4BlockScaling() }, () =>
      recompute(body, new Variable(zero([32, 32]), true)),
    );
    expect(() => y.backward(zero([32, 32]))).toThrow(/^linear: /);
  });

  it("fp8Grad, which a norm does not take", () => {
    using _ = new Scope();
    const x = new Variable(zero([32, 32]));
    const sizes = { rows: 32, from: 32, to: 32, middle: 32 };
    const rowsWithNorm = rowsWhere(({ call }) => call.includes("fp8Output") && !call.includes("fp8Grad"));
    expect(rowsWithNorm.length).toBeGreaterThan(2);
    for (const [, row] of rowsWithNorm) {
      using builtModule = row.build(backend(), sizes);
      const run = () =>
        autocast({ recipe: new Float8CurrentScaling() }, () =>
          builtModule.runUnfiltered([x], { fp8Grad: true }),
        );
      expect(refusalOf(run).message).toMatch(/: fp8Grad quantizes the gradient of the input/);
    }
  });

  it("call options, by the names of the module and of its parameter", () => {
    using identity = new Sequential(backend(), (x) => x);
    using linear = new Linear(backend(), 4, 4);
    using x = zero([4, 4]);
    for (const layer of [identity, linear]) {
      const call = (argument: unknown) => () => Reflect.apply(layer.forward, layer, [x, argument]);
      const { name } = layer.constructor;
      expect(call({ isFirst: true })).toThrow(new RegExp(`^${name}: `));
      expect(call(1)).toThrow(new RegExp(`^${name}: .*call`));
    }
  });
});

describe("a layer does not refuse", () => {
  // blocks of 16 divide 48 columns, and blocks of 32 do not
  const recipe = (): Recipe => recipeOf((role) => (role === "gradOutput" ? blocks() : makeQuantizer()));

  it("a recipe whose gradients cannot be quantized, if no gradient is computed", () => {
    using _ = new Scope();
    using linear = new Linear(backend(), 32, 48);
    using mlp = new LayerNormMLP(backend(), 48, 64);
    expect(noGrad(() => autocast({ recipe: recipe() }, () => linear.forward(zero([32, 32])))).shape).toEqual([
      32, 48,
    ]);
    expect(noGrad(() => autocast({ recipe: recipe() }, () => mlp.forward(zero([32, 48])))).shape).toEqual([
      32, 48,
    ]);
    expect(() => autocast({ recipe: recipe() }, () => linear.forward(zero([32, 32])))).toThrow(ShapeError);
  });

  it("a gradient that calibration does not quantize", () => {
    using _ = new Scope();
    using linear = new Linear(backend(), 32, 48);
    const region: AutocastOptions = { recipe: recipe(), enabled: false, calibrating: true };
    expect(autocast(region, () => linear.forward(zero([32, 32]))).shape).toEqual([32, 48]);
  });

  it("the gradient of a bias alone, for which nothing is quantized or recorded", () => {
    for (const recipe of [new DelayedScaling({ amaxHistoryLen: 2 }), new Float8CurrentScaling()]) {
      using _ = new Scope();
      using layer = new Linear(backend(), 32, 32);
      layer.weight.requiresGrad = false;
      const y = autocast({ recipe }, () => layer.forward(zero([32, 32])));
      const backwardBefore = layer.namedQuantizations().get("")?.snapshotSync()?.backward;
      y.backward(castTo(tensor(backend(), new Float32Array(32 * 32).fill(1), [32, 32]), "bf16"));
      expect([...(layer.bias?.grad?.dataSync() ?? [])]).toEqual(Array.from({ length: 32 }, () => 0x4200));
      expect(layer.namedQuantizations().get("")?.snapshotSync()?.backward).toEqual(backwardBefore);
      layer.bias?.zeroGrad();
    }
  });
});

describe("the products of a backward pass", () => {
  it.each([undefined, new MXFP8BlockScaling()])("are only the ones whose results are required", (recipe) => {
    using _ = new Scope();
    using layer = new LayerNormMLP(backend(), 32, 32);
    for (const parameter of layer.parameters()) parameter.requiresGrad = parameter === layer.fc2Weight;
    const y = autocast(recipe ? { recipe } : { enabled: false }, () => layer.forward(zero([32, 32])));
    const grad = zero([32, 32]);
    const run = backend().run;
    let products = 0;
    backend().run = (op, args) => {
      if (op === "gemm") products++;
      run.call(backend(), op, args);
    };
    y.backward(grad);
    backend().run = run;
    expect(products).toBe(1);
    layer.fc2Weight.zeroGrad();
  });
});

describe("a state that another recipe has replaced", () => {
  it("is left out where the group of the region reduces amaxes", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), 32, 32);
    const counts: number[] = [];
    const group = { size: 2, reduceMax: (tensors: readonly unknown[]) => void counts.push(tensors.length) };
    const { warn } = console;
    console.warn = () => undefined;
    autocast({ recipe: new DelayedScaling(), amaxReductionGroup: group }, () => {
      layer.forward(zero([32, 32]));
      autocast({ recipe: new Float8CurrentScaling() }, () => layer.forward(zero([32, 32])));
    });
    console.warn = warn;
    expect(counts).toEqual([]);
  });
});

describe("a module", () => {
  class OwnModule extends Module {
    constructor(options: ModuleOptions) {
      super(backend(), options);
    }
    with(parameter: Parameter): this {
      this.addParameter("own", parameter);
      return this;
    }
    withModules(...modules: readonly Module[]): this {
      for (const [i, module] of modules.entries()) this.addModule(`${i}`, module);
      return this;
    }
  }

  it("of a class of its own has its options checked", () => {
    for (const options of [{ dtype: "f64" }, { dtype: "i32" }, { random: 1 }, { random: {} }])
      expect(() => new OwnModule(options as unknown as ModuleOptions)).toThrow(LockstepError);
    expect(() => normalInit(1)({} as RandomState, [2])).toThrow(/^normalInit: random/);
  });

  it("lists a parameter that two modules share once, for the first, and no module without parameters", () => {
    using sharedLayer = new Linear(backend(), 4, 4);
    const otherModule = new OwnModule({}).with(sharedLayer.weight);
    using allModules = new OwnModule({}).withModules(sharedLayer, new OwnModule({}), otherModule);
    expect(allModules.parameterGroups()).toEqual([[sharedLayer.weight, sharedLayer.bias]]);
  });

  it("draws from the random state of its backend, unless it gets another one", async () => {
    const { openBackend } = await import("../../../../src/backends/open.js");
    const newBackend = await openBackend("wasm", { threads: 1 });
    const [firstLayer, secondLayer] = [new Linear(newBackend, 4, 4), new Linear(newBackend, 4, 4)];
    const [firstValues, secondValues] = [firstLayer, secondLayer].map(({ weight }) => [
      ...weight.tensor.dataSync(),
    ]);
    expect(secondValues).not.toEqual(firstValues);
    for (const layer of [firstLayer, secondLayer]) layer.dispose();
    await newBackend.dispose();
  });
});

describe("quantizedModelInit", () => {
  it("quantizes weights unless it, or the innermost one, is not enabled", () => {
    const isQuantized = (make: () => Linear): boolean => {
      using layer = make();
      return layer.weight.value instanceof QuantizedTensor;
    };
    const make = (): Linear => new Linear(backend(), 32, 32);
    for (const enabled of [true, undefined, false]) {
      const makeInside = (): Linear => quantizedModelInit({ enabled }, make);
      expect(isQuantized(makeInside)).toBe(enabled !== false);
      expect(isQuantized(() => quantizedModelInit({}, makeInside))).toBe(enabled !== false);
    }
  });
});

describe("a weight in the cache", () => {
  const x = (): Tensor =>
    castTo(tensor(backend(), normal({ seed: 2n, offset: 0n }, 32 * 32, 1), [32, 32]), "bf16");
  const calls = (layer: Linear, recipe: Recipe, isFirstMicrobatch?: boolean): unknown => {
    using _ = new Scope();
    const call = isFirstMicrobatch === undefined ? {} : { isFirstMicrobatch };
    return [...noGrad(() => autocast({ recipe }, () => layer.forward(x(), call))).tensor.dataSync()];
  };

  it("belongs to the current recipe: another recipe drops it", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), 32, 32, { random: new RandomState(1n) });
    calls(layer, new MXFP8BlockScaling(), true);
    const { warn } = console;
    console.warn = () => undefined;
    const scalesAfter = calls(layer, new Float8CurrentScaling(), false);
    console.warn = warn;
    using newLayer = new Linear(backend(), 32, 32, { random: new RandomState(1n) });
    expect(scalesAfter).toEqual(calls(newLayer, new Float8CurrentScaling()));
  });

  it("is freed by restore, which refuses a snapshot by that name", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), 32, 32);
    const state = [...layer.namedQuantizations().values()][0];
    calls(layer, new Float8CurrentScaling());
    const liveBefore = backend().memoryUse().live;
    calls(layer, new Float8CurrentScaling(), true);
    expect(backend().memoryUse().live).toBeGreaterThan(liveBefore);
    expect(() => state?.restore(1 as never)).toThrow(/^restore: the snapshot /);
    state?.restore(undefined);
    expect(backend().memoryUse().live).toBe(liveBefore);
  });
});

describe("a recomputed layer", () => {
  it("keeps no memory if its recipe changes between the two runs", () => {
    using _ = new Scope();
    const layers = [new LayerNormMLP(backend(), 32, 32), new Linear(backend(), 32, 32)];
    const { warn } = console;
    console.warn = () => undefined;
    for (const layer of layers) {
      const y = autocast({ recipe: new DelayedScaling() }, () =>
        recompute((input) => layer.forward(input), new Variable(zero([32, 32]))),
      );
      autocast({ recipe: new MXFP8BlockScaling() }, () => layer.forward(zero([32, 32])));
      y.backward(zero([32, 32]));
      for (const parameter of layer.parameters()) parameter.zeroGrad();
      layer.dispose();
    }
    console.warn = warn;
  });

  it("frees its handles on the scales, whichever way it is used", () => {
    using layer = new Linear(backend(), 32, 32, { initMethod: constantInit(1) });
    const heldBytes = (): number => {
      using _ = new Scope();
      autocast({ recipe: new DelayedScaling() }, () =>
        recompute((input) => layer.forward(input), new Variable(zero([32, 32]))),
      ).backward(zero([32, 32]));
      for (const parameter of layer.parameters()) parameter.zeroGrad();
      return 0;
    };
    heldBytes();
    const useBefore = backend().memoryUse();
    heldBytes();
    expect(backend().memoryUse()).toEqual(useBefore);
  });
});
