/** GroupedLinear is bitwise equal to a Linear for each expert, whatever the other experts' rows, under every recipe. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { GroupedLinear, type GroupedLinearOptions } from "../../../src/modules/grouped-linear.js";
import { Linear } from "../../../src/modules/linear.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { recompute } from "../../../src/modules/recompute.js";
import { stateDictionary } from "../../../src/modules/state-dictionary.js";
import { empty } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { covering, product } from "../../arbitraries/covering.js";
import { download, type PlainTensor, upload } from "../../values/plain.js";
import { sampleCases } from "../harness/draws.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../harness/recipes.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

/** Zero rows for the first, the last or all experts, all rows for one expert, one expert, and rows that no block divides. */
const SPLITS = [[0, 32, 5], [48, 0, 0], [0, 0, 0], [16, 16, 16], [37], [0]] as const;
const [IN, OUT] = [128, 128];
const STEPS = 2;

const gradOf = ({ grad }: Variable): PlainTensor | undefined => grad && download(grad);

interface Row {
  readonly recipe: string;
  readonly splits: readonly number[];
  readonly bias: boolean;
  readonly microbatches: boolean;
  readonly recomputes: boolean;
  readonly quantized: boolean;
  readonly inputGrad: boolean;
}

const ROWS: readonly Row[] = covering(
  product({
    recipe: Object.keys(DETERMINISTIC_RECIPES),
    splits: SPLITS,
    bias: [true, false],
    microbatches: [false, true],
    recomputes: [false, true],
    quantized: [false, true],
    inputGrad: [true, false],
  }).filter(({ recipe, quantized }) => recipe !== "bf16" || !quantized),
  2,
);

function equalsLinears(row: Row): void {
  using _scope = new Scope();
  const { splits } = row;
  const recipe = DETERMINISTIC_RECIPES[row.recipe]?.();
  const options: GroupedLinearOptions = { bias: row.bias, saveOriginalInput: row.recipe === "current" };
  const create = <T>(body: () => T): T =>
    row.quantized ? quantizedModelInit({ recipe: recipe as Recipe }, body) : body();
  const groupedLayer = create(
    () => new GroupedLinear(backend(), splits.length, IN, OUT, { ...options, random: new RandomState(1n) }),
  );
  const random = new RandomState(1n);
  const linears = create(() => splits.map(() => new Linear(backend(), IN, OUT, { ...options, random })));
  const total = splits.reduce((a, b) => a + b, 0);
  for (let step = 0; step < STEPS; step++) {
    using _step = new Scope();
    const call = row.microbatches ? { isFirstMicrobatch: step === 0 } : {};
    const x = new Variable(upload(backend(), drawnValues(step, [total, IN])), row.inputGrad);
    const dy = upload(backend(), drawnValues(100 + step, [total, OUT]));
    const region = <T>(body: () => T): T => (recipe ? autocast({ recipe }, body) : body());
    const recomputeIf = (body: (x: Variable) => Variable, input: Variable): Variable =>
      row.recomputes
        ? recompute((input) => body(functional.reshape(input, input.shape)), input)
        : body(input);
    const y = region(() => recomputeIf((input) => groupedLayer.forward(input, splits, call), x));
    y.backward(dy);
    let begin = 0;
    for (const [i, count] of splits.entries()) {
      const linear = linears[i] as Linear;
      const expertInput = new Variable(x.tensor.slice(begin * IN, [count, IN]), row.inputGrad);
      const out = region(() => recomputeIf((input) => linear.forward(input, call), expertInput));
      expect(download(y.tensor.slice(begin * OUT, [count, OUT]))).toEqual(download(out.tensor));
      out.backward(dy.slice(begin * OUT, [count, OUT]));
      if (row.inputGrad)
        expect(download((x.grad as Tensor).slice(begin * IN, [count, IN]))).toEqual(gradOf(expertInput));
      begin += count;
      expertInput.zeroGrad();
    }
    expect(groupedLayer.weights.map(gradOf)).toEqual(linears.map(({ weight }) => gradOf(weight)));
    expect(groupedLayer.biases.map(gradOf)).toEqual(
      linears.flatMap(({ bias }) => (bias ? [gradOf(bias)] : [])),
    );
    for (const [i, count] of splits.entries())
      if (count === 0 && step === 0)
        expect(groupedLayer.weights[i]?.grad?.dataSync().every((code) => code === 0)).toBe(true);
    const states = [...groupedLayer.namedQuantizations().values()].map((quantization) =>
      quantization.snapshotSync(),
    );
    expect(states).toEqual(
      linears.map((linear) => [...linear.namedQuantizations().values()][0]?.snapshotSync()),
    );
    x.zeroGrad();
  }
  for (const layer of [groupedLayer, ...linears]) layer.dispose();
}

describe("results, gradients and scales equal those of a Linear for each expert", () => {
  it.each(sampleCases(ROWS.map((row, i) => [`${i}: ${JSON.stringify(row)}`, row] as const)))(
    "%s",
    (_, row) => {
      equalsLinears(row);
    },
  );
});

describe("the bits of an expert's rows do not depend on the rows of others", () => {
  it.each(sampleCases(Object.keys(DETERMINISTIC_RECIPES)))("under %s", (name) => {
    using _scope = new Scope();
    const recipe = DETERMINISTIC_RECIPES[name]?.();
    using groupedLayer = new GroupedLinear(backend(), 3, IN, OUT, { random: new RandomState(2n) });
    const rowsOfExpert = drawnValues(7, [17, IN]);
    const grad = drawnValues(8, [17, OUT]);
    const results = [
      [0, 17, 0],
      [3, 17, 40],
      [64, 17, 1],
    ].map((splits) => {
      const [rowsBefore = 0, , rowsAfter = 0] = splits;
      const withNeighbors = (expertRows: PlainTensor<"bf16">, seed: number) =>
        functional.concatenate(
          [drawnValues(seed, [rowsBefore, IN]), expertRows, drawnValues(seed + 1, [rowsAfter, IN])].map(
            (rows) => upload(backend(), rows),
          ),
        );
      const x = new Variable(withNeighbors(rowsOfExpert, 20).tensor, true);
      const y = recipe
        ? autocast({ recipe }, () => groupedLayer.forward(x, splits))
        : groupedLayer.forward(x, splits);
      y.backward(withNeighbors(grad, 30).tensor);
      const result = [
        download(y.tensor.slice(rowsBefore * OUT, [17, OUT])),
        download((x.grad as Tensor).slice(rowsBefore * IN, [17, IN])),
        gradOf(groupedLayer.weights[1] as Variable),
      ];
      x.zeroGrad();
      for (const parameter of groupedLayer.parameters()) parameter.zeroGrad();
      return result;
    });
    // under delayed scaling the first step has other scales than the second
    const [, secondResult, thirdResult] = results;
    expect(thirdResult).toEqual(secondResult);
    if (name !== "delayed") expect(secondResult).toEqual(results[0]);
  });
});

testInScope("its parameters have TransformerEngine's names", () => {
  using groupedLayer = new GroupedLinear(backend(), 2, 16, 32);
  const shapes = [...stateDictionary(groupedLayer)].map(([name, { shape }]) => [name, shape]);
  expect(Object.fromEntries(shapes)).toEqual({
    weight0: [32, 16],
    weight1: [32, 16],
    bias0: [32],
    bias1: [32],
  });
});

testInScope("leading dimensions are rows, and splits that do not fit are refused", () => {
  using groupedLayer = new GroupedLinear(backend(), 2, 16, 32);
  const x = empty(backend(), "bf16", [2, 3, 16]);
  expect(groupedLayer.forward(x, [2, 4]).shape).toEqual([2, 3, 32]);
  expect(() => groupedLayer.forward(x, [2, 3])).toThrow(ShapeError);
  expect(() => groupedLayer.forward(x, [6])).toThrow(ArgumentError);
  expect(() => groupedLayer.forward(x, [7, -1])).toThrow(ArgumentError);
  expect(() => groupedLayer.forward(empty(backend(), "bf16", [6, 8]), [2, 4])).toThrow(ShapeError);
});
