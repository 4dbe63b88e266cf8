/**
 * Weights of `quantizedModelInit` inside `noGrad` have rowwise codes only, and give the same results as weights with both copies.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { ArgumentError } from "../../../../src/errors.js";
import { GroupedLinear } from "../../../../src/modules/grouped-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { MXFP8BlockScaling } from "../../../../src/recipes/block-scaled.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { covering, product } from "../../../arbitraries/covering.js";
import { download, upload } from "../../../values/plain.js";
import { sampleCases } from "../../harness/draws.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../../harness/recipes.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [SIZE, ROWS] = [128, 32];

type Layer = Module & { forward(x: Variable, call?: object): Variable };
const LAYERS: Readonly<Record<string, () => Layer>> = {
  Linear: () => new Linear(backend(), SIZE, SIZE, { random: new RandomState(1n) }),
  LayerNormMLP: () =>
    new LayerNormMLP(backend(), SIZE, SIZE, { activation: "swiglu", random: new RandomState(1n) }),
  GroupedLinear: () => {
    const groupedLayer = new GroupedLinear(backend(), 2, SIZE, SIZE, { random: new RandomState(1n) });
    const run = groupedLayer.forward.bind(groupedLayer);
    return Object.assign(groupedLayer, {
      forward: (x: Variable, call = {}) => run(x, [20, 12], call),
    }) as Layer;
  },
};

const { bf16: _, ...DETERMINISTIC } = DETERMINISTIC_RECIPES;
const RECIPES: Readonly<Record<string, () => Recipe>> = {
  ...(DETERMINISTIC as Record<string, () => Recipe>),
  "mxfp8 in squares": () => new MXFP8BlockScaling({ enable2dQuantization: true }),
};
/** The recipes whose weights have blocks along rows, from which a columnwise copy cannot be derived. */
const UNDERIVABLE = ["mxfp8"];

const make = (recipe: string, layer: string, rowwise: boolean): Layer => {
  const withCreatedBytes = () =>
    quantizedModelInit({ recipe: RECIPES[recipe]?.() }, () => (LAYERS[layer] as () => Layer)());
  return rowwise ? noGrad(withCreatedBytes) : withCreatedBytes();
};

const quantizedOf = (layer: Module): readonly QuantizedTensor[] =>
  layer.parameters().flatMap(({ value }) => (value instanceof QuantizedTensor ? [value] : []));
const bytesOf = (layer: Module): number =>
  quantizedOf(layer).reduce(
    (sum, { members }) => members.reduce((total, member) => total + member.byteLength, sum),
    0,
  );
const codesOf = (layer: Module) => quantizedOf(layer).map(({ rowwise }) => rowwise && download(rowwise.data));

const CASES = covering(
  product({
    layer: Object.keys(LAYERS),
    recipe: Object.keys(RECIPES),
    recomputes: [false, true],
    microbatches: [false, true],
    inputGrad: [true, false],
  }),
  2,
);

describe("results, gradients and steps equal those with both copies", () => {
  it.each(sampleCases(CASES.map((row, i) => [`${i}: ${JSON.stringify(row)}`, row] as const)))(
    "%s",
    (_name, row) => {
      using _scope = new Scope();
      using rowwise = make(row.recipe, row.layer, true);
      using fullLayer = make(row.recipe, row.layer, false);
      expect(quantizedOf(rowwise).map(({ columnwise }) => columnwise)).toEqual(
        quantizedOf(rowwise).map(() => undefined),
      );
      expect(bytesOf(rowwise)).toBeLessThan(0.6 * bytesOf(fullLayer));
      const optimizers = [rowwise, fullLayer].map((layer) => new SGD(layer, { learningRate: 0.5 }));
      const isRefused = UNDERIVABLE.includes(row.recipe) && (row.inputGrad || row.layer === "LayerNormMLP");
      const pass = (layer: Layer, step: number) => {
        using _pass = new Scope();
        const recipe = RECIPES[row.recipe]?.();
        const call = row.microbatches ? { isFirstMicrobatch: step === 0 } : {};
        const x = new Variable(upload(backend(), drawnValues(10 + step, [ROWS, SIZE])), row.inputGrad);
        const forward = (input: Variable) => layer.forward(input, call);
        const run = () => autocast({ recipe }, () => (row.recomputes ? recompute(forward, x) : forward(x)));
        const evaluatedResult = download(noGrad(run).tensor);
        if (isRefused && layer === rowwise) {
          const states = () =>
            [...layer.namedQuantizations().values()].map((quantization) => quantization.snapshotSync());
          const statesBefore = states();
          expect(run).toThrow(ArgumentError);
          expect(run).toThrow(/rowwise codes only/);
          expect(states()).toEqual(statesBefore);
          return { evaluated: evaluatedResult };
        }
        const y = run();
        y.backward(upload(backend(), drawnValues(20 + step, [ROWS, SIZE])));
        const grads = [x, ...layer.parameters()].map(({ grad }) => grad && download(grad));
        x.zeroGrad();
        return { evaluated: evaluatedResult, y: download(y.tensor), grads };
      };
      for (let step = 0; step < 2; step++) {
        const [actual, expected] = [pass(rowwise, step), pass(fullLayer, step)];
        expect(actual).toEqual(isRefused ? { evaluated: expected.evaluated } : expected);
        if (isRefused) break;
        for (const optimizer of optimizers) {
          optimizer.step();
          optimizer.zeroGrad();
        }
        expect(codesOf(rowwise)).toEqual(codesOf(fullLayer));
        expect(quantizedOf(rowwise).every(({ columnwise }) => columnwise === undefined)).toBe(true);
      }
      for (const optimizer of optimizers) optimizer.dispose();
    },
  );
});

testInScope("a copy for the backward pass is freed with its graph", () => {
  const recipe = RECIPES.current?.();
  using layer = make("current", "Linear", true);
  const x = new Variable(upload(backend(), drawnValues(1, [ROWS, SIZE])), true);
  const step = () => {
    using _pass = new Scope();
    autocast({ recipe }, () => layer.forward(x)).backward(upload(backend(), drawnValues(2, [ROWS, SIZE])));
    for (const variable of [x, ...layer.parameters()]) variable.zeroGrad();
  };
  step();
  const { live } = backend().memoryUse();
  step();
  expect(backend().memoryUse().live).toBe(live);
});
