/** `backwardDw` computes the gradients of weights bitwise equal to a backward pass that computes them at once. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { ArgumentError } from "../../../src/errors.js";
import { Linear } from "../../../src/modules/linear.js";
import type { Module } from "../../../src/modules/module.js";
import type { Parameter } from "../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { recompute } from "../../../src/modules/recompute.js";
import { Sequential } from "../../../src/modules/sequential.js";
import { zeros } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import type { HookedPass } from "../../../src/tape/hooks.js";
import { Variable } from "../../../src/tape/variable.js";
import { disown, Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { covering, product } from "../../arbitraries/covering.js";
import { download, upload } from "../../values/plain.js";
import { combineResults, rowsWhere, testedCases } from "../harness/modules/calls.js";
import type { BuiltModule } from "../harness/modules/row.js";
import { moduleRow } from "../harness/modules/table.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../harness/recipes.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [SIZE, ROWS] = [128, 24];
const SIZES = { rows: ROWS, from: SIZE, to: SIZE, middle: SIZE };
const LAYERS = Object.fromEntries(rowsWhere(({ takes }) => takes.includes("delayWgradCompute")));

/** The backward passes of a step: each microbatch calls the layer once, or twice in one pass. */
const PASSES = [1, 2] as const;

const ALL = covering(
  product({
    layer: Object.keys(LAYERS),
    recipe: Object.keys(DETERMINISTIC_RECIPES),
    fuses: [false, true],
    savesOriginal: [false, true],
    bias: [true, false],
    calls: [1, 2],
    recomputes: [false, true],
    quantized: [false, true],
    microbatches: [false, true],
    atEnd: [false, true],
  }).filter(
    ({ recipe, quantized, savesOriginal }) =>
      (recipe !== "bf16" || !quantized) && (recipe !== "delayed" || !savesOriginal),
  ),
  2,
);

type Case = (typeof ALL)[number];

/** A short run tests only a sample of the composed layers, and of the rows that differ from another row only in a result. */
const CASES = testedCases(
  ALL,
  ({ layer }) => moduleRow(layer),
  ({ operationsOf, type }) => operationsOf === type.name,
);

function layerOf(row: Case, delayWgradCompute: boolean): BuiltModule {
  const recipe = DETERMINISTIC_RECIPES[row.recipe]?.();
  const make = () =>
    moduleRow(row.layer).build(backend(), SIZES, {
      ...{ bias: row.bias, fuseWgradAccumulation: row.fuses, saveOriginalInput: row.savesOriginal },
      ...{ delayWgradCompute, random: new RandomState(1n) },
    });
  const layer = row.quantized ? quantizedModelInit({ recipe: recipe as Recipe }, make) : make();
  if (row.fuses)
    for (const [name, parameter] of layer.module.namedParameters()) {
      if (!isDelayed(row, [name, parameter])) continue;
      parameter.mainGrad = zeros(backend(), "f32", parameter.shape);
      disown(parameter.mainGrad);
    }
  return layer;
}

/** Whether a parameter is the weight of a product whose gradient is delayed. */
const isDelayed = ({ layer }: Case, [name, { shape }]: Named): boolean =>
  shape.length === 2 && !moduleRow(layer).routerWeights?.includes(name);
const bitsOf = (x: Tensor | undefined): unknown => x && download(x);
type Named = readonly [string, Parameter];
const gradsOf = (module: Module, isChosen: (parameter: Named) => boolean = () => true) =>
  [...module.namedParameters()]
    .filter(isChosen)
    .map(([name, { grad, mainGrad }]) => [name, bitsOf(grad), bitsOf(mainGrad)]);

/** Runs one microbatch. All tensors of the pass are freed when it returns. */
function pass(row: Case, layer: BuiltModule, recipe: Recipe | undefined, index: number): unknown {
  using _ = new Scope();
  const call = row.microbatches ? { isFirstMicrobatch: index === 0 } : {};
  const x = new Variable(upload(backend(), drawnValues(10 + index, [ROWS, SIZE])), true);
  const forward = (input: Variable): Variable => {
    let y = input;
    for (let i = 0; i < row.calls; i++) y = combineResults(layer.run([y], call));
    return y;
  };
  const body = () => (row.recomputes ? recompute(forward, x) : forward(x));
  const y = recipe ? autocast({ recipe }, body) : body();
  y.backward(upload(backend(), drawnValues(20 + index, [ROWS, SIZE])));
  const bits = [bitsOf(y.tensor), bitsOf(x.grad)];
  x.zeroGrad();
  return bits;
}

describe("gradients equal those of a layer that computes them in the backward pass", () => {
  it.each(CASES.map((row, i) => [`${i}: ${JSON.stringify(row)}`, row] as const))("%s", (_, row) => {
    using _scope = new Scope();
    const recipe = DETERMINISTIC_RECIPES[row.recipe]?.();
    using delayedLayer = layerOf(row, true);
    using atOnce = layerOf(row, false);
    const { module } = delayedLayer;
    const weights = (parameter: Named): boolean => isDelayed(row, parameter);
    const isOtherParameter = (parameter: Named): boolean => !weights(parameter);
    for (const index of PASSES.keys()) {
      const gradsBefore = gradsOf(module, weights);
      expect(gradsBefore.length).toBeGreaterThan(0);
      expect(pass(row, delayedLayer, recipe, index)).toEqual(pass(row, atOnce, recipe, index));
      expect(gradsOf(module, weights)).toEqual(gradsBefore);
      expect(gradsOf(module, isOtherParameter)).toEqual(gradsOf(atOnce.module, isOtherParameter));
      if (row.atEnd) continue;
      module.backwardDw();
      expect(gradsOf(module)).toEqual(gradsOf(atOnce.module));
    }
    if (row.atEnd) for (const _pass of PASSES) module.backwardDw();
    expect(gradsOf(module)).toEqual(gradsOf(atOnce.module));
    const states = (builtModule: BuiltModule) =>
      [...builtModule.module.namedQuantizations().values()].map((state) => state.snapshotSync());
    expect(states(delayedLayer)).toEqual(states(atOnce));
    expect(() => module.backwardDw()).toThrow(ArgumentError);
  });
});

/** Runs a layer forward and backward. */
function trainLayer(layer: Linear | Sequential): void {
  using _ = new Scope();
  const x = upload(backend(), drawnValues(1, [ROWS, SIZE]));
  layer.forward(x).backward(upload(backend(), drawnValues(2, [ROWS, SIZE])));
}

const delayedLayer = (): Linear => new Linear(backend(), SIZE, SIZE, { delayWgradCompute: true });

testInScope("hooks of the weight are called by backwardDw, those of the bias by the backward pass", () => {
  using layer = delayedLayer();
  const hookCalls: string[] = [];
  for (const [name, parameter] of layer.namedParameters())
    parameter.registerPostAccumulateGradHook((leaf, { atEnd }) => {
      hookCalls.push(`${name} ${leaf.grad !== undefined}`);
      atEnd(() => void hookCalls.push(`end of ${name}`));
    });
  trainLayer(layer);
  expect(hookCalls).toEqual(["bias true", "end of bias"]);
  layer.backwardDw();
  expect(hookCalls.slice(2)).toEqual(["weight true", "end of weight"]);
});

testInScope(
  "all hooks of a call get the same pass, with the weights whose gradients the call completes",
  () => {
    using model = new Sequential(backend(), delayedLayer(), delayedLayer(), delayedLayer());
    const passes: HookedPass[] = [];
    const weights = [...model.namedParameters()].flatMap(([name, parameter]) =>
      name.endsWith("weight") ? [parameter] : [],
    );
    for (const weight of weights) weight.registerPostAccumulateGradHook((_, pass) => void passes.push(pass));
    trainLayer(model);
    expect(passes).toEqual([]);
    const [frozenWeight, ...otherWeights] = weights as [Parameter, ...Parameter[]];
    frozenWeight.requiresGrad = false;
    model.backwardDw();
    expect(passes).toHaveLength(2);
    expect(passes[1]).toBe(passes[0]);
    expect(passes[0]?.delayedLeaves).toEqual(otherWeights);
  },
);

testInScope("a weight that is frozen after the pass gets no gradient", () => {
  using layer = delayedLayer();
  trainLayer(layer);
  layer.weight.requiresGrad = false;
  layer.backwardDw();
  expect(layer.weight.grad).toBeUndefined();
  // no work is left, and a frozen weight needs none
  layer.backwardDw();
});

testInScope("a module without delayed gradients has nothing to compute", () => {
  using layer = new Linear(backend(), SIZE, SIZE);
  trainLayer(layer);
  const gradsBefore = gradsOf(layer);
  layer.backwardDw();
  expect(gradsOf(layer)).toEqual(gradsBefore);
});

testInScope("gradients that are never computed are freed with the module", () => {
  const layer = delayedLayer();
  const liveBefore = backend().memoryUse().live;
  trainLayer(layer);
  expect(backend().memoryUse().live).toBeGreaterThan(liveBefore);
  layer.dispose();
});

testInScope("a missing mainGrad is refused in the backward pass, and by backwardDw", () => {
  using layer = new Linear(backend(), SIZE, SIZE, { delayWgradCompute: true, fuseWgradAccumulation: true });
  expect(() => trainLayer(layer)).toThrow(ArgumentError);
  layer.weight.mainGrad = zeros(backend(), "f32", [SIZE, SIZE]);
  trainLayer(layer);
  layer.weight.mainGrad = undefined;
  expect(() => layer.backwardDw()).toThrow(ArgumentError);
  layer.weight.mainGrad = zeros(backend(), "f32", [SIZE, SIZE]);
  layer.backwardDw();
  expect(layer.weight.mainGrad.dataSync().some((value) => value !== 0)).toBe(true);
});
