/** The options of a call, and the shapes of inputs, have the same effect in every layer as in a single product. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { LayerNorm, RMSNorm } from "../../../../src/modules/norm.js";
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
import { libraryRecipe, recipeNamed, STANDARD_NAMES } from "../../harness/step/library-recipes.js";
import { RECIPES, type RecipeName } from "../../harness/step/options.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const SIZE = 32;
const NAMES = (Object.keys(RECIPES) as RecipeName[]).filter((name) => name !== "none");

type Layer = Module & {
  forward(x: Variable, call?: { readonly fp8Output?: boolean; readonly fp8Grad?: boolean }): Variable;
};
const seeded = (options: object = {}) => ({ random: new RandomState(7n), ...options });
/** Layers that end with a product, and the name of that product's bias. */
const PRODUCTS: Readonly<Record<string, readonly [(options?: object) => Layer, string]>> = {
  Linear: [(options) => new Linear(backend(), SIZE, SIZE, seeded(options)), "bias"],
  LayerNormLinear: [(options) => new LayerNormLinear(backend(), SIZE, SIZE, seeded(options)), "bias"],
  LayerNormMLP: [(options) => new LayerNormMLP(backend(), SIZE, SIZE, seeded(options)), "fc2Bias"],
  "gated LayerNormMLP": [
    (options) => new LayerNormMLP(backend(), SIZE, SIZE, { ...seeded(options), activation: "swiglu" }),
    "fc2Bias",
  ],
};
const LAYERS: Readonly<Record<string, () => Layer>> = {
  ...Object.fromEntries(Object.entries(PRODUCTS).map(([name, [make]]) => [name, make])),
  LayerNorm: () => new LayerNorm(backend(), SIZE),
  RMSNorm: () => new RMSNorm(backend(), SIZE),
};

const input = (seed = 1): Tensor<WideDType> => drawnTensor(backend(), seed, [SIZE, SIZE], "bf16");

/** Quantizes a tensor as a recipe does for a role, with a scale of 1 if the quantizer needs one. */
function quantized(name: RecipeName, role: Role, x: Tensor): QuantizedTensor {
  const [scale, amax] = [
    zeros(backend(), "f32", [1]).write(Float32Array.of(1)),
    zeros(backend(), "f32", [1]),
  ];
  const quantizer = quantizerFor(recipeNamed(name), role, { ...seeded(), scale, amax });
  return quantizer.setUsage({ rowwise: true, columnwise: false }).quantize(x);
}

describe.each(Object.entries(PRODUCTS))("fp8Output of %s", (name, [make]) => {
  it.each([...STANDARD_NAMES, "custom"] as const)(
    "under %s gives the codes of the result computed without it",
    (recipe) => {
      using _scope = new Scope();
      const [coded, wide] = [true, false].map((fp8Output) => {
        using layer = make();
        return autocast({ recipe: recipeNamed(recipe) }, () =>
          layer.forward(new Variable(input()), { fp8Output }),
        ).value;
      }) as [QuantizedTensor, Tensor];
      expect(coded).toBeInstanceOf(QuantizedTensor);
      expect([coded.dtype, coded.shape, coded.rowwise !== undefined, coded.columnwise]).toEqual([
        ...["bf16", [SIZE, SIZE], true, undefined],
      ]);
      let expected = wide;
      if (recipe.startsWith("delayed")) {
        // the sums are not rounded to bf16 before they are quantized
        if (name !== "Linear") return;
        using layer = make() as Linear;
        const w = quantized(recipe, "weight", layer.weight.tensor);
        const x = quantized(recipe, "input", input());
        expected = gemm({ x, w, bias: layer.bias?.tensor, outDtype: "f32", useSplitAccumulator: false }).out;
      }
      const codes = quantized(recipe, "output", expected);
      expect(coded.members.length).toBe(codes.members.length);
      for (const [i, member] of codes.members.entries()) expectSame(`member ${i}`, coded.members[i], member);
    },
  );
});

describe.each(Object.entries(PRODUCTS))("fp8Grad behind %s", (_, [make, bias]) => {
  const WAYS: Readonly<Record<string, (layer: Layer, x: Variable) => Variable>> = {
    itself: (layer, x) => layer.forward(x),
    "it in a Sequential": (layer, x) => new Sequential(backend(), layer).forward(x),
    "it computed again": (layer, x) => recompute((h) => layer.forward(h), x),
  };
  it.each(
    Object.entries(WAYS).flatMap(([way, run]) =>
      (["current", "current, E4M3"] as const).map((recipe) => [way, recipe, run] as const),
    ),
  )("%s under %s gives it the gradient's codes", (_way, name, run) => {
    using _scope = new Scope();
    using layer = make();
    using behind = new Linear(backend(), SIZE, SIZE, { random: new RandomState(8n) });
    const dy = input(3);
    let between: Tensor | undefined;
    autocast({ recipe: recipeNamed(name) }, () => {
      const y = run(layer, new Variable(input()));
      between = y.tensor;
      return behind.forward(y, { fp8Grad: true });
    }).backward(dy);
    const sums = layer.namedParameters().get(bias)?.grad;
    behind.weight.zeroGrad();
    const h = new Variable(input(), true);
    h.tensor.write((between as Tensor).dataSync());
    autocast({ recipe: recipeNamed(name) }, () => behind.forward(h)).backward(dy);
    const codes = quantized(name, "gradInput", h.grad as Tensor);
    expectSame("the gradient of the bias", sums, columnSum(dequantize(codes), "bf16"));
    h.zeroGrad();
  });
});

describe.each(Object.entries(LAYERS))("leading dimensions of an input of %s", (_, make) => {
  it.each(["none", ...NAMES] as const)("under %s are rows", (name) => {
    using _scope = new Scope();
    const recipe = libraryRecipe(RECIPES[name]);
    const seen = [
      [SIZE, SIZE],
      [2, 16, SIZE],
      [4, 1, 8, SIZE],
    ].map((shape) => {
      using layer = make();
      const x = new Variable(input().reshape(shape), true);
      const y = recipe ? autocast({ recipe }, () => layer.forward(x)) : layer.forward(x);
      expect(y.shape).toEqual(shape);
      y.backward(input(2).reshape(shape));
      const grads = [x, ...layer.parameters()].map(({ grad }) => grad?.dataSync().slice());
      expect(x.grad?.shape).toEqual(shape);
      x.zeroGrad();
      return [y.tensor.dataSync().slice(), ...grads];
    });
    for (const each of seen) expect(each).toEqual(seen[0]);
    expect(seen[0]?.every((each) => each !== undefined)).toBe(true);
  });
});

describe.each(Object.entries(PRODUCTS))("calibrating %s", (_, [make]) => {
  it.each(NAMES)("under %s changes no bit of the results, in any type", (name) => {
    using _scope = new Scope();
    for (const dtype of WIDE_DTYPES) {
      const [calibrated, plain] = [true, false].map((calibrating) => {
        using layer = make({ dtype });
        const x = new Variable(drawnTensor(backend(), 1, [SIZE, SIZE], dtype));
        const recipe = recipeNamed(name);
        return autocast({ recipe, enabled: false, calibrating }, () => layer.forward(x)).value;
      });
      expectSame(dtype, calibrated, plain);
    }
  });
});
