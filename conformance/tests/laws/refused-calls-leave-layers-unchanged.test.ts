/** A refused forward pass leaves its layers unchanged: recipes, scales, caches and main gradients. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { type AutocastOptions, autocast } from "../../../src/autocast.js";
import { LockstepError, ShapeError } from "../../../src/errors.js";
import { GroupedLinear } from "../../../src/modules/grouped-linear.js";
import { LayerNormLinear } from "../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import type { LinearCall, LinearOptions } from "../../../src/modules/linear/parts.js";
import { Linear } from "../../../src/modules/linear.js";
import { Module } from "../../../src/modules/module.js";
import { constantInit } from "../../../src/modules/parameter.js";
import { zeros } from "../../../src/ops/create.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import type { VariableLike } from "../../../src/tape/differentiable.js";
import type { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const other = useBackend({ threads: 1, datapath: "hopper" });

interface Layer extends Module {
  forward(input: VariableLike, call?: LinearCall): Variable;
}

const FEATURES = 128;
const OPTIONS = { initMethod: constantInit(0.5) } as const;

/** Experts that share the rows. The second has none. */
class Experts extends Module {
  readonly #grouped: GroupedLinear;

  constructor(options: LinearOptions) {
    const { random, dtype } = options;
    super(backend(), { random, dtype });
    const {
      group: _,
      parallelMode: __,
      pieces: ___,
      overlap: ____,
      sequenceParallel: _____,
      ...rest
    } = options;
    this.#grouped = this.addModule("experts", new GroupedLinear(backend(), 3, FEATURES, FEATURES, rest));
  }

  forward(input: VariableLike, { fp8Output: _, fp8Grad: __, ...call }: LinearCall = {}): Variable {
    return this.#grouped.forward(input, [FEATURES / 2, 0, FEATURES / 2], call);
  }
}

const LAYERS: Readonly<Record<string, (options?: LinearOptions) => Layer>> = {
  Linear: (options) => new Linear(backend(), FEATURES, FEATURES, { ...OPTIONS, ...options }),
  GroupedLinear: (options) => new Experts({ ...OPTIONS, ...options }),
  LayerNormLinear: (options) =>
    new LayerNormLinear(backend(), FEATURES, FEATURES, { ...OPTIONS, ...options }),
  LayerNormMLP: (options) => new LayerNormMLP(backend(), FEATURES, FEATURES, { ...OPTIONS, ...options }),
};

/**
 * Each recipe with `narrow`, a feature count that its quantizer refuses although it accepts 2 * narrow. The first layer
 * of a gated MLP is twice as wide as the second, so only the second layer is refused.
 */
const RECIPES: readonly (readonly [name: string, recipe: Recipe, narrow: number])[] = [
  ["DelayedScaling", new DelayedScaling(), 8],
  ["Float8CurrentScaling", new Float8CurrentScaling(), 8],
  ["Float8BlockScaling", new Float8BlockScaling(), 8],
  ["MXFP8BlockScaling", new MXFP8BlockScaling(), 16],
  ["NVFP4BlockScaling", new NVFP4BlockScaling(), 8],
  ["CustomRecipe", new CustomRecipe({ quantizerFactory: () => new MXFP8Quantizer() }), 16],
];

const input = (on = backend(), dtype: WideDType = "bf16"): Tensor => zeros(on, dtype, [FEATURES, FEATURES]);

const memory = () => {
  const { live, blocks } = backend().memoryUse();
  return { live, blocks };
};

function pass(layer: Layer, region: AutocastOptions, x?: Tensor, call: LinearCall = {}): void {
  using _ = new Scope();
  autocast(region, () => layer.forward(x ?? input(), call));
}

/** The scales, histories and amaxes of a layer. */
function scalesOf(layer: Layer): string {
  const plain = (_: string, value: unknown) => (value instanceof Float32Array ? [...value] : value);
  const states = [...layer.namedQuantizations()].map(([name, of]) => [name, of.snapshotSync() ?? "none"]);
  return JSON.stringify(states, plain);
}

/** Fails unless `call` is refused and the layer then behaves as if it had not been called. */
function expectUntouched(layer: Layer, before: Recipe | undefined, call: () => void): void {
  vi.restoreAllMocks();
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  const [scales, use] = [scalesOf(layer), memory()];
  expect(call).toThrow(LockstepError);
  expect(scalesOf(layer)).toBe(scales);
  expect(memory()).toEqual(use);
  // a layer warns when its recipe changes to another kind; no warning means that the earlier recipe is still in force,
  // or none was
  const isWhole = layer.parameters().every(({ value }) => value instanceof Tensor && !value.disposed);
  if (isWhole) for (const recipe of before ? [before] : ANY) pass(layer, { recipe });
  expect(warn).toHaveBeenCalledTimes(before || !isWhole ? 0 : layer.namedQuantizations().size);
}

/**
 * Two recipes of different kinds. A layer without a recipe takes the first without a warning and warns about the
 * second.
 */
const ANY = [new Float8CurrentScaling(), new DelayedScaling()];

type Wrong = readonly [what: string, call: (layer: Layer, region: AutocastOptions) => () => void];

const on = (x: () => Tensor, call?: () => LinearCall): Wrong[1] => {
  return (layer, region) => {
    const [given, how] = [x(), call?.()];
    return () => pass(layer, region, given, how);
  };
};

const WRONG: readonly Wrong[] = [
  ["columns that the weight does not have", on(() => zeros(backend(), "bf16", [FEATURES, FEATURES / 2]))],
  ["an input on another backend", on(() => input(other()))],
  ["an input of integers", on(() => zeros(backend(), "i32", [FEATURES, FEATURES]))],
  [
    "a flag for the weight on another backend",
    on(input, () => ({ skipFp8WeightUpdate: zeros(other(), "f32", [1]) })),
  ],
];

/** The recipe in force before the call: none, or one of another kind. */
function begun(layer: Layer, recipe: Recipe, used: boolean): Recipe | undefined {
  if (!used) return undefined;
  const before = recipe.kind === "current" ? new DelayedScaling() : new Float8CurrentScaling();
  pass(layer, { recipe: before }, undefined, { isFirstMicrobatch: true });
  return before;
}

describe("a refused forward pass leaves its layer as it was", () => {
  afterEach(() => vi.restoreAllMocks());

  const cases = RECIPES.flatMap(([name, recipe]) =>
    Object.entries(LAYERS).flatMap(([layer, make]) =>
      [true, false].map((used) => ({
        name: `${layer}, ${name}, ${used ? "" : "not "}in use`,
        layer,
        recipe,
        used,
        make,
      })),
    ),
  );

  describe.each(cases)("$name", ({ recipe, used, make }) => {
    it.each(WRONG)("%s", (_what, wrong) => {
      using _ = new Scope();
      using layer = make();
      const before = begun(layer, recipe, used);
      expectUntouched(layer, before, wrong(layer, { recipe }));
    });

    it("disposed parameters", () => {
      using probe = make();
      for (const name of probe.namedParameters().keys()) {
        using layer = make();
        const before = begun(layer, recipe, used);
        layer.namedParameters().get(name)?.value.dispose();
        expectUntouched(layer, before, () => pass(layer, { recipe }));
      }
    });
  });

  it.each(cases.filter(({ recipe }) => recipe.kind === "nvfp4"))(
    "$name: f32, which its transform does not take",
    ({ recipe, used, make }) => {
      using _ = new Scope();
      using layer = make();
      const x = input(backend(), "f32");
      expectUntouched(layer, begun(layer, recipe, used), () => pass(layer, { recipe }, x));
    },
  );

  it("saveOriginalInput under delayed scaling", () => {
    using layer = new Linear(backend(), FEATURES, FEATURES, { ...OPTIONS, saveOriginalInput: true });
    const before = new Float8CurrentScaling();
    pass(layer, { recipe: before });
    expectUntouched(layer, before, () => pass(layer, { recipe: new DelayedScaling() }));
  });

  it.each(RECIPES)("%s: an MLP whose second layer is too narrow", (_name, recipe, narrow) => {
    using _ = new Scope();
    using layer = new LayerNormMLP(backend(), FEATURES, narrow, { ...OPTIONS, activation: "swiglu" });
    const x = input();
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const use = memory();
    expect(() => pass(layer, { recipe }, x)).toThrow(ShapeError);
    expect(memory()).toEqual(use);
    expect(scalesOf(layer)).toBe('[["fc1","none"],["fc2","none"]]');
    // blocks of 1 x 1 fit any layer: if the refused recipe were in force, the first layer would now warn about the
    // change
    const plain = new CustomRecipe({ quantizerFactory: () => new Float8CurrentScalingQuantizer() });
    expect(() => pass(layer, { recipe: plain, enabled: false, calibrating: true }, x)).not.toThrow();
    expect(warn).not.toHaveBeenCalled();
  });
});

describe("a restored state", () => {
  const [three, two] = [new Float32Array(3), new Float32Array(2)];
  const whole = {
    forward: { scale: three, amaxHistory: new Float32Array(12) },
    backward: { scale: two, amaxHistory: new Float32Array(8) },
  };
  const { forward, backward } = whole;
  it.each<readonly [string, unknown]>([
    ["null", null],
    ["a number", 1],
    ["a list", [whole]],
    ["half a snapshot", { forward }],
    ["another field", { ...whole, sideways: forward }],
    ["no scale", { ...whole, forward: { amaxHistory: three } }],
    ["scales of f64", { ...whole, forward: { ...forward, scale: new Float64Array(3) } }],
    ["scales as a list", { ...whole, forward: { ...forward, scale: [1, 1, 1] } }],
    ["scales of the other pass", { ...whole, backward: forward }],
    ["a history of no rows", { ...whole, backward: { ...backward, amaxHistory: new Float32Array(0) } }],
    ["a history of half a row", { ...whole, backward: { ...backward, amaxHistory: new Float32Array(7) } }],
  ])("is refused where it is %s, and the one in force stays", (_, snapshot) => {
    const layer = LAYERS.Linear?.() as Layer;
    pass(layer, { recipe: new DelayedScaling() });
    const quantization = layer.namedQuantizations().get("linear");
    const before = scalesOf(layer);
    expect(() => quantization?.restore(snapshot as undefined)).toThrow(LockstepError);
    expect(scalesOf(layer)).toBe(before);
    quantization?.restore(whole);
    expect(scalesOf(layer)).not.toBe(before);
    layer.dispose();
  });
});
