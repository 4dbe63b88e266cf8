/** The options of a call, and the shapes of inputs, have the same effect in every layer as in a single product. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { Linear } from "../../../../src/modules/linear.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { zeros } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { dequantize } from "../../../../src/ops/quantize/dequantize.js";
import { columnSum } from "../../../../src/ops/rows/norm.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { quantizerFor } from "../../../../src/recipes/quantizer-for.js";
import type { Role } from "../../../../src/recipes/table.js";
import { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { WIDE_DTYPES, type WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { drawnTensor, expectSame } from "../../harness/drawn-tensor.js";
import { sampleCases } from "../../harness/draws.js";
import {
  createInputs,
  inputsWithGradients,
  rowsWhere,
  step,
  testedCases,
} from "../../harness/modules/calls.js";
import type { BuiltModule, ModuleRow } from "../../harness/modules/row.js";
import { libraryRecipe, recipeByName, STANDARD_RECIPE_NAMES } from "../../harness/step/library-recipes.js";
import { RECIPES, type RecipeName } from "../../harness/step/options.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const SIZE = 32;
const SIZES = { rows: SIZE, from: SIZE, to: SIZE, middle: SIZE };
const NAMES = (Object.keys(RECIPES) as RecipeName[]).filter((name) => name !== "none");

const seedOption = (options: object = {}) => ({ random: new RandomState(7n), ...options });
/** Modules whose result is quantized by the option `fp8Output`. */
const PRODUCTS = rowsWhere(({ call }) => call.includes("fp8Output"));
const make = (row: ModuleRow, options?: object) => row.build(backend(), SIZES, seedOption(options));
const input = (seed = 1): Tensor<WideDType> => drawnTensor(backend(), seed, [SIZE, SIZE], "bf16");

/** Quantizes a tensor as a recipe does for a role, with a scale of 1 if the quantizer needs one. */
function quantizeAs(name: RecipeName, role: Role, x: Tensor): QuantizedTensor {
  const [scale, amax] = [
    zeros(backend(), "f32", [1]).write(Float32Array.of(1)),
    zeros(backend(), "f32", [1]),
  ];
  const quantizer = quantizerFor(recipeByName(name), role, { ...seedOption(), scale, amax });
  return quantizer.setUsage({ rowwise: true, columnwise: false }).quantize(x);
}

describe.each(PRODUCTS)("fp8Output of %s", (name, row) => {
  it.each(
    sampleCases(
      [...STANDARD_RECIPE_NAMES, "custom"] as const,
      3,
      PRODUCTS.findIndex(([productName]) => productName === name),
    ),
  )("under %s gives the codes of the result computed without it", (recipe) => {
    using _scope = new Scope();
    const [codedResults, wide] = [true, false].map((fp8Output) => {
      using builtModule = make(row);
      const [out] = autocast({ recipe: recipeByName(recipe) }, () =>
        builtModule.run([new Variable(input())], { fp8Output }),
      );
      return out?.value;
    }) as [QuantizedTensor, Tensor];
    expect(codedResults).toBeInstanceOf(QuantizedTensor);
    expect([
      codedResults.dtype,
      codedResults.shape,
      codedResults.rowwise !== undefined,
      codedResults.columnwise,
    ]).toEqual([...["bf16", [SIZE, SIZE], true, undefined]]);
    let expected = wide;
    if (recipe.startsWith("delayed")) {
      // the sums are not rounded to bf16 before they are quantized
      if (name !== "Linear") return;
      using layer = new Linear(backend(), SIZE, SIZE, seedOption());
      const w = quantizeAs(recipe, "weight", layer.weight.tensor);
      const x = quantizeAs(recipe, "input", input());
      expected = gemm({ x, w, bias: layer.bias?.tensor, outDtype: "f32", useSplitAccumulator: false }).out;
    }
    const codes = quantizeAs(recipe, "output", expected);
    expect(codedResults.members.length).toBe(codes.members.length);
    for (const [i, member] of codes.members.entries())
      expectSame(`member ${i}`, codedResults.members[i], member);
  });
});

describe.each(PRODUCTS)("fp8Grad behind %s", (moduleName, row) => {
  const resultOf = (builtModule: BuiltModule, x: Variable): Variable => builtModule.run([x])[0] as Variable;
  const WAYS: Readonly<Record<string, (builtModule: BuiltModule, x: Variable) => Variable>> = {
    itself: resultOf,
    "it in a Sequential": (builtModule, x) =>
      new Sequential(backend(), (hidden) => resultOf(builtModule, hidden)).forward(x),
    "it computed again": (builtModule, x) => recompute((hidden) => resultOf(builtModule, hidden), x),
  };
  const cases = Object.entries(WAYS).flatMap(([description, run]) =>
    (["current", "current, E4M3"] as const).map((recipe) => [description, recipe, run] as const),
  );
  it.each(
    sampleCases(
      cases,
      2,
      PRODUCTS.findIndex(([productName]) => productName === moduleName),
    ),
  )("%s under %s gives it the gradient's codes", (_way, name, run) => {
    using _scope = new Scope();
    using builtModule = make(row);
    using nextLayer = new Linear(backend(), SIZE, SIZE, { random: new RandomState(8n) });
    const dy = input(3);
    let result: Tensor | undefined;
    autocast({ recipe: recipeByName(name) }, () => {
      const y = run(builtModule, new Variable(input()));
      result = y.tensor;
      return nextLayer.forward(y, { fp8Grad: true });
    }).backward(dy);
    const sums = builtModule.module.namedParameters().get(row.lastBiases?.[0] ?? "")?.grad;
    nextLayer.weight.zeroGrad();
    const hidden = new Variable(input(), true);
    hidden.tensor.write((result as Tensor).dataSync());
    autocast({ recipe: recipeByName(name) }, () => nextLayer.forward(hidden)).backward(dy);
    const codes = quantizeAs(name, "gradInput", hidden.grad as Tensor);
    expectSame("the gradient of the bias", sums, columnSum(dequantize(codes), "bf16"));
    hidden.zeroGrad();
  });
});

const ROWWISE = rowsWhere(({ rowwise }) => rowwise).flatMap(([name, row]) =>
  (["none", ...NAMES] as const).map((recipe) => [name, recipe, row] as const),
);

describe("leading dimensions of an input are rows", () => {
  it.each(testedCases(ROWWISE, ([, , row]) => row))("of %s, under %s", (_, recipe, row) => {
    using _scope = new Scope();
    const results = [[SIZE], [2, 16], [4, 1, 8]].map((leading) => {
      using builtModule = make(row);
      const inputs = createInputs(backend(), builtModule, SIZES).map((x) => {
        const shape = [...leading, ...x.shape.slice(1)];
        return new Variable(x.value.reshape(shape), x.requiresGrad);
      });
      const y = step(builtModule, inputs, libraryRecipe(RECIPES[recipe]));
      expect(y.shape).toEqual([...leading, y.shape.at(-1)]);
      const leaves = inputsWithGradients(inputs);
      for (const x of leaves) expect(x.grad?.shape).toEqual(x.shape);
      const grads = [...leaves, ...builtModule.module.parameters()].map(({ grad }) =>
        grad?.dataSync().slice(),
      );
      for (const x of leaves) x.zeroGrad();
      return [y.tensor.dataSync().slice(), ...grads];
    });
    for (const result of results) expect(result).toEqual(results[0]);
    expect(results[0]?.every((tensor) => tensor !== undefined)).toBe(true);
  });
});

const CALIBRATED = rowsWhere(({ quantizes }) => quantizes).flatMap(([name, row]) =>
  NAMES.map((recipe) => [name, recipe, row] as const),
);

describe("calibrating changes no bit of the results, in any type", () => {
  it.each(testedCases(CALIBRATED, ([, , row]) => row))("of %s, under %s", (_, name, row) => {
    using _scope = new Scope();
    for (const dtype of WIDE_DTYPES) {
      const [calibratedResults, plainResults] = [true, false].map((isCalibrating) => {
        using builtModule = make(row, { dtype });
        const inputs = createInputs(backend(), builtModule, { ...SIZES, dtype, requiresGrad: false });
        const recipe = recipeByName(name);
        return autocast({ recipe, enabled: false, calibrating: isCalibrating }, () =>
          builtModule.run(inputs),
        ).map(({ value }) => value);
      });
      for (const [i, result] of (plainResults ?? []).entries())
        expectSame(`${dtype} ${i}`, calibratedResults?.[i], result);
      expect(calibratedResults?.length).toBe(plainResults?.length);
    }
  });
});
