/**
 * Under `backwardOverride` the gradients equal the layer's gradients in high precision, from the values that the option selects.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import * as functional from "../../../../src/functional/index.js";
import { GroupedLinear } from "../../../../src/modules/grouped-linear.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import { LayerNorm } from "../../../../src/modules/norm.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { FakeQuantizer } from "../../../../src/quantizers/fake.js";
import { Float8CurrentScalingQuantizer } from "../../../../src/quantizers/float8.js";
import { type CopyQuantizer, HybridQuantizer, IdentityQuantizer } from "../../../../src/quantizers/hybrid.js";
import { MXFP4Quantizer, MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import { quantizerFor } from "../../../../src/recipes/quantizer-for.js";
import type { Recipe, StandardRecipe } from "../../../../src/recipes/recipe.js";
import { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const [ROWS, FROM, TO] = [32, 128, 256];
const backend = useBackend({ threads: 1, datapath: "hopper" });

const RECIPES = {
  DelayedScaling,
  Float8CurrentScaling,
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} as const;
type Name = keyof typeof RECIPES;
const NAMES = Object.keys(RECIPES) as Name[];
const OVERRIDES = ["highPrecision", "dequantized"] as const;
const CASES = NAMES.flatMap((name) => OVERRIDES.map((override) => [name, override] as const));

function values(seed: bigint, shape: readonly [number, number]): Tensor<WideDType> {
  const numbers = normal({ seed: 11n, offset: seed }, shape[0] * shape[1], 1);
  return castTo(tensor(backend(), numbers, shape), "bf16");
}

const layer = (): Linear => new Linear(backend(), FROM, TO, { random: new RandomState(4n) });

/** The gradients of x, the weight and the bias. `run` computes the result of a layer. */
function gradients(module: Linear, x: Tensor, run: (hidden: Variable) => Variable): readonly unknown[] {
  const hidden = new Variable(x, true);
  run(hidden).backward(values(2n, [ROWS, TO]));
  const grads = [hidden.grad, module.weight.grad, module.bias?.grad].map((grad) => {
    if (!grad || grad instanceof QuantizedTensor) throw new Error("a gradient is missing or quantized");
    return [grad.dtype, [...grad.dataSync()]];
  });
  for (const variable of [hidden, ...module.parameters()]) variable.zeroGrad();
  return grads;
}

/** The values of a tensor after quantization by the recipe in the first step. */
function dequantizeBy(recipe: StandardRecipe, role: "input" | "weight", x: Tensor): Tensor<WideDType> {
  const scale = tensor(backend(), [1]);
  return quantizerFor(recipe, role, { scale, random: new RandomState(0n) })
    .quantize(x)
    .dequantize("bf16");
}

describe.each(CASES)("%s, %s", (name, backwardOverride) => {
  const makeRecipe = (): StandardRecipe => new RECIPES[name]({ backwardOverride });

  it("has the gradients of high precision, from the original or the dequantized values", () => {
    using _ = new Scope();
    using quantizedLayer = layer();
    using wide = layer();
    const x = values(1n, [ROWS, FROM]);
    const recipe = makeRecipe();
    const isDequantized = backwardOverride === "dequantized";
    const results = gradients(quantizedLayer, x, (hidden) =>
      autocast({ recipe }, () => quantizedLayer.forward(hidden, { fp8Grad: true })),
    );
    if (isDequantized) wide.weight.tensor.paste(dequantizeBy(recipe, "weight", wide.weight.tensor), 0);
    const source = isDequantized ? dequantizeBy(recipe, "input", x) : x;
    expect(results).toEqual(gradients(wide, source, (hidden) => wide.forward(hidden)));
    const plainRecipe = new RECIPES[name]();
    using otherLayer = layer();
    expect(results).not.toEqual(
      gradients(otherLayer, x, (hidden) =>
        autocast({ recipe: plainRecipe }, () => otherLayer.forward(hidden)),
      ),
    );
  });

  it("has the result of the recipe without the option, and the same bits if the layer is recomputed", () => {
    using _ = new Scope();
    using firstLayer = layer();
    using secondLayer = layer();
    const x = values(1n, [ROWS, FROM]);
    const y = autocast({ recipe: makeRecipe() }, () => firstLayer.forward(x)).tensor.dataSync();
    const plainResult = autocast({ recipe: new RECIPES[name]() }, () =>
      secondLayer.forward(x),
    ).tensor.dataSync();
    expect([...y]).toEqual([...plainResult]);
    using thirdLayer = layer();
    const forward = (module: Linear) => (hidden: Variable) =>
      autocast({ recipe: makeRecipe() }, () => module.forward(hidden, { isFirstMicrobatch: true }));
    const recomputedResults = gradients(thirdLayer, x, (hidden) => recompute(forward(thirdLayer), hidden));
    using fourth = layer();
    expect(recomputedResults).toEqual(gradients(fourth, x, forward(fourth)));
  });

  it("keeps one copy of the input and the weight for the backward pass, if any", () => {
    using _ = new Scope();
    using module = layer();
    const x = new Variable(values(1n, [ROWS, FROM]), true);
    const live = (recipe?: StandardRecipe): number => {
      const liveBefore = backend().memoryUse().live;
      const y = recipe ? autocast({ recipe }, () => module.forward(x)) : module.forward(x);
      const bytes = backend().memoryUse().live - liveBefore - y.tensor.byteLength;
      y.backward(values(2n, [ROWS, TO]));
      for (const variable of [x, ...module.parameters()]) variable.zeroGrad();
      return bytes;
    };
    // the first call also allocates the layer's persistent state
    const [recipe, plainRecipe] = [makeRecipe(), new RECIPES[name]()];
    const liveBytes = [live(recipe), live(recipe)][1] as number;
    const limit = [live(plainRecipe), live(plainRecipe)][1] as number;
    if (backwardOverride === "highPrecision") expect(liveBytes).toBe(live());
    else expect(liveBytes).toBeLessThanOrEqual(limit);
  });

  it("reads the values of a weight that stays quantized, and needs no columnwise copy of it", () => {
    using _ = new Scope();
    const recipe = makeRecipe();
    using quantizedLayer = quantizedModelInit({ recipe }, layer);
    using wide = layer();
    const weight = quantizedLayer.weight.value as QuantizedTensor;
    wide.weight.tensor.paste(weight.dequantize("bf16"), 0);
    weight.updateUsage({ columnwise: false });
    const x = values(1n, [ROWS, FROM]);
    const source = backwardOverride === "dequantized" ? dequantizeBy(recipe, "input", x) : x;
    const results = gradients(quantizedLayer, x, (hidden) =>
      autocast({ recipe }, () => quantizedLayer.forward(hidden)),
    );
    expect(results).toEqual(gradients(wide, source, (hidden) => wide.forward(hidden)));
  });

  it("gives each expert of GroupedLinear the gradients of a Linear", () => {
    using _ = new Scope();
    const recipe = makeRecipe();
    const options = { random: new RandomState(4n) };
    using groupedLayer = new GroupedLinear(backend(), 1, FROM, TO, options);
    using singleLayer = layer();
    const x = values(1n, [ROWS, FROM]);
    const hidden = new Variable(x, true);
    autocast({ recipe }, () => groupedLayer.forward(hidden, [ROWS])).backward(values(2n, [ROWS, TO]));
    const results = [hidden.grad, groupedLayer.weights[0]?.grad, groupedLayer.biases[0]?.grad].map((grad) => {
      const wide = grad as Tensor<WideDType>;
      return [wide.dtype, [...wide.dataSync()]];
    });
    for (const variable of [hidden, ...groupedLayer.parameters()]) variable.zeroGrad();
    expect(results).toEqual(
      gradients(singleLayer, x, (input) => autocast({ recipe }, () => singleLayer.forward(input))),
    );
  });
});

describe("a norm before a quantized product", () => {
  const quantizerFactory = () => new Float8CurrentScalingQuantizer();
  const recipes: readonly (readonly [string, () => Recipe])[] = [
    ...CASES.map(([name, backwardOverride]) => {
      const recipe = () => new RECIPES[name]({ backwardOverride });
      return [`${name}, ${backwardOverride}`, recipe] as const;
    }),
    ["CustomRecipe", () => new CustomRecipe({ quantizerFactory })],
    [
      "CustomRecipe, dequantized",
      () => new CustomRecipe({ quantizerFactory, backwardOverride: "dequantized" }),
    ],
  ];

  it.each(recipes)("is rounded before it is quantized, as is an activation, under %s", (_, recipe) => {
    using _scope = new Scope();
    const options = () => ({ random: new RandomState(4n) });
    const x = values(1n, [ROWS, FROM]);
    const beta = values(3n, [1, FROM]);
    const run = (body: () => Variable) => [...autocast({ recipe: recipe() }, body).tensor.dataSync()];
    using norm = new LayerNorm(backend(), FROM, { dtype: "bf16" });
    // delayed scales of a layer change with each region: each run has other layers
    using linear = layer();
    using first = layer();
    using second = new Linear(backend(), TO, FROM, options());
    norm.bias?.tensor.paste(beta, 0);
    const normed = norm.forward(x);

    using fused = new LayerNormLinear(backend(), FROM, TO, options());
    fused.layerNormBias?.tensor.paste(beta, 0);
    expect(run(() => fused.forward(x))).toEqual(run(() => linear.forward(normed)));

    using mlp = new LayerNormMLP(backend(), FROM, TO, options());
    mlp.layerNormBias?.tensor.paste(beta, 0);
    mlp.fc1Weight.tensor.paste(first.weight.tensor, 0);
    mlp.fc2Weight.tensor.paste(second.weight.tensor, 0);
    expect(run(() => mlp.forward(x))).toEqual(
      run(() => second.forward(functional.activation(first.forward(normed), "gelu"))),
    );
  });
});

describe("under a CustomRecipe", () => {
  const COPIES = {
    float8: () => new Float8CurrentScalingQuantizer(),
    "fake float8": () => new FakeQuantizer(new Float8CurrentScalingQuantizer()),
    identity: () => new IdentityQuantizer(),
    mxfp8: () => new MXFP8Quantizer(),
    mxfp4: () => new MXFP4Quantizer(),
    "fake mxfp8": () => new FakeQuantizer(new MXFP8Quantizer()),
  } as const satisfies Record<string, () => CopyQuantizer>;
  const copy = fc.constantFrom(...(Object.keys(COPIES) as (keyof typeof COPIES)[]));
  const choices = fc.record({
    rowwise: copy,
    columnwise: copy,
    columnwiseSource: fc.constantFrom("original" as const, "rowwiseDequantized" as const),
    backwardOverride: fc.constantFrom(...OVERRIDES),
  });

  it("results are of the recipe without the option, and gradients of the original or the rowwise copies' values", () => {
    const property = fc.property(choices, ({ rowwise, columnwise, columnwiseSource, backwardOverride }) => {
      using _ = new Scope();
      const quantizerFactory = () => {
        const rowwiseQuantizer = COPIES[rowwise]();
        const columnwiseQuantizer = COPIES[columnwise]();
        return new HybridQuantizer({ rowwiseQuantizer, columnwiseQuantizer, columnwiseSource });
      };
      const recipe = new CustomRecipe({ quantizerFactory, backwardOverride });
      using quantizedLayer = layer();
      using wide = layer();
      const x = values(1n, [ROWS, FROM]);
      const plainRecipe = new CustomRecipe({ quantizerFactory });
      const forward = (customRecipe: CustomRecipe) => [
        ...autocast({ recipe: customRecipe }, () => quantizedLayer.forward(x)).tensor.dataSync(),
      ];
      expect(forward(recipe)).toEqual(forward(plainRecipe));
      const results = gradients(quantizedLayer, x, (hidden) =>
        autocast({ recipe }, () => quantizedLayer.forward(hidden)),
      );
      const valuesOf = (source: Tensor<WideDType>): Tensor<WideDType> => {
        const quantizer = COPIES[rowwise]();
        if (backwardOverride === "highPrecision" || quantizer instanceof IdentityQuantizer) return source;
        return (quantizer instanceof FakeQuantizer ? quantizer.quantizer : quantizer)
          .quantize(source)
          .dequantize("bf16");
      };
      wide.weight.tensor.paste(valuesOf(wide.weight.tensor.clone()), 0);
      expect(results).toEqual(gradients(wide, valuesOf(x), (hidden) => wide.forward(hidden)));
    });
    const mxfp8 = { rowwise: "mxfp8", columnwise: "mxfp4" } as const;
    const fake = { rowwise: "fake float8", columnwise: "identity", columnwiseSource: "original" } as const;
    const examples = [
      ...OVERRIDES.map((backwardOverride) => ({ ...fake, backwardOverride })),
      { ...mxfp8, columnwiseSource: "original", backwardOverride: "dequantized" } as const,
      { ...mxfp8, columnwiseSource: "rowwiseDequantized", backwardOverride: "highPrecision" } as const,
    ];
    fc.assert(property, { numRuns: draws(40, 4), examples: examples.map((example) => [example]) });
  });
});
