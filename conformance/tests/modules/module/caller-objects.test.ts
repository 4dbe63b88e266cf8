/** A layer does not change the caller's objects: quantized inputs, and the quantizers of a custom recipe. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { Linear } from "../../../../src/modules/linear.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { tensor, zeros } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { columnSum } from "../../../../src/ops/rows/norm.js";
import { Float8CurrentScalingQuantizer, Float8Quantizer } from "../../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import { MXFP8BlockScaling, NVFP4BlockScaling } from "../../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import type { Variable } from "../../../../src/tape/variable.js";
import type { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import {
  combineResults,
  createInputs,
  inputsWithGradients,
  randomGradient,
  regionOptions,
  rowsWhere,
  testedCases,
} from "../../harness/modules/calls.js";
import { libraryRecipe } from "../../harness/step/library-recipes.js";
import { RECIPES, type RecipeName } from "../../harness/step/options.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const hopper = useBackend({ threads: 1, datapath: "hopper" });
const SIZES = { rows: 32, from: 32, to: 32, middle: 32 };
const [ROWS, FROM, TO] = [32, 64, 32];

const randomInput = (
  seed: number,
  shape: readonly [number, number],
  dtype: WideDType = "bf16",
): Tensor<WideDType> =>
  castTo(tensor(backend(), normal({ seed: BigInt(seed), offset: 0n }, shape[0] * shape[1], 1), shape), dtype);
const bits = (x: Tensor | undefined): unknown => x && [x.dtype, ...x.dataSync()];
const custom = (make: (role: string) => Quantizer): Recipe =>
  new CustomRecipe({ quantizerFactory: (role) => make(role) });
const makeQuantizer = (): Quantizer => new Float8CurrentScalingQuantizer();

describe("a quantized input", () => {
  const GIVEN: Readonly<Record<string, readonly [() => Recipe, () => Quantizer]>> = {
    delayed: [() => new DelayedScaling(), makeQuantizer],
    current: [() => new Float8CurrentScaling(), makeQuantizer],
    mxfp8: [() => new MXFP8BlockScaling(), () => new MXFP8Quantizer()],
    nvfp4: [() => new NVFP4BlockScaling({ disableRht: true }), () => new NVFP4Quantizer()],
  };
  const cases = Object.entries(GIVEN).flatMap(([name, [recipe, quantizer]]) =>
    [false, true].flatMap((keepsOriginal) =>
      [false, true].map((isTracked) => ({ name, recipe, quantizer, keepsOriginal, tracked: isTracked })),
    ),
  );
  it.each(cases.filter(({ name, keepsOriginal }) => name !== "delayed" || !keepsOriginal))(
    "is the caller's after both passes, with the copies that it had: $name, keeps $keepsOriginal, gradients $tracked",
    ({ recipe, quantizer, keepsOriginal, tracked: isTracked }) => {
      using _ = new Scope();
      using layer = new Linear(backend(), FROM, TO, { saveOriginalInput: keepsOriginal });
      const x = quantizer()
        .setUsage({ rowwise: true, columnwise: true })
        .quantize(randomInput(1, [ROWS, FROM]));
      const wide = bits(x.dequantize());
      const run = (): Variable => autocast({ recipe: recipe() }, () => layer.forward(x));
      const y = isTracked ? run() : noGrad(run);
      if (isTracked) y.backward(randomInput(2, [ROWS, TO]));
      layer.weight.zeroGrad();
      layer.bias?.zeroGrad();
      expect(x.members.some(({ disposed }) => disposed)).toBe(false);
      expect([x.rowwise !== undefined, x.columnwise !== undefined]).toEqual([true, true]);
      expect(bits(x.dequantize())).toEqual(wide);
    },
  );

  it("need not fit the quantizer that the layer would have taken", () => {
    using _ = new Scope();
    // the blocks of MXFP8 do not divide 16 columns
    using layer = new Linear(backend(), 16, TO);
    const recipe = custom((role) => (role === "input" ? new MXFP8Quantizer() : makeQuantizer()));
    const x = randomInput(1, [ROWS, 16]);
    expect(() => noGrad(() => autocast({ recipe }, () => layer.forward(x)))).toThrow(/the input/);
    expect(
      noGrad(() => autocast({ recipe }, () => layer.forward(makeQuantizer().quantize(x)))).shape,
    ).toEqual([ROWS, TO]);
  });
});

const CALLS = rowsWhere().flatMap(([name, row]) =>
  (Object.keys(RECIPES) as RecipeName[])
    .filter((recipe) => recipe === "none" || row.quantizes)
    .map((recipe) => [name, recipe, row] as const),
);

describe("inputs, results and parameters are the caller's after both passes, and have the same elements", () => {
  it.each(testedCases(CALLS, ([, , row]) => row))("of %s, under %s", (_, name, row) => {
    using _scope = new Scope();
    const recipe = libraryRecipe(RECIPES[name]);
    for (const saveOriginalInput of name.startsWith("delayed") ? [false] : [false, true]) {
      using builtModule = row.build(hopper(), SIZES, { random: new RandomState(7n), saveOriginalInput });
      const inputs = createInputs(hopper(), builtModule, SIZES);
      const results = autocast(regionOptions(recipe), () => builtModule.run(inputs));
      const variables = [...inputs, ...results, ...builtModule.module.parameters()];
      const elements = () => variables.map(({ value }) => [...(value as Tensor).dataSync()]);
      const elementsBefore = elements();
      const y = combineResults(results);
      y.backward(randomGradient(y));
      expect(elements()).toEqual(elementsBefore);
      for (const inputsWithGradient of inputsWithGradients(inputs)) inputsWithGradient.zeroGrad();
      if (!row.takes.includes("saveOriginalInput")) return;
    }
  });
});

describe("the quantizers of a custom recipe", () => {
  it.each([
    { rowwise: true, columnwise: true },
    { rowwise: false, columnwise: true },
  ])("give rowwise results and weights, whatever copies they made before: %o", (usage) => {
    using _ = new Scope();
    for (const callOptions of [{}, { isFirstMicrobatch: true }]) {
      using layer = new Linear(backend(), FROM, TO);
      const recipe = custom(() => new MXFP8Quantizer().setUsage(usage));
      const call = { ...callOptions, fp8Output: true };
      const y = noGrad(() => autocast({ recipe }, () => layer.forward(randomInput(1, [ROWS, FROM]), call)));
      const { rowwise, columnwise } = y.value as QuantizedTensor;
      expect([rowwise !== undefined, columnwise !== undefined]).toEqual([true, false]);
    }
  });

  it("record the amaxes of calibration, whatever copies they made before", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), FROM, TO);
    const [scale, amax] = [tensor(backend(), new Float32Array([1])), zeros(backend(), "f32", [1])];
    const recipe = custom((role) =>
      role === "input"
        ? new Float8Quantizer({ scale, amax, rowwise: false, columnwise: true })
        : makeQuantizer(),
    );
    const x = zeros(backend(), "bf16", [ROWS, FROM]);
    x.write(new Uint16Array(ROWS * FROM).fill(0xc040));
    autocast({ recipe, enabled: false, calibrating: true }, () => layer.forward(x));
    expect([...amax.dataSync()]).toEqual([3]);
  });

  it("quantize a gradient alone; those of a standard recipe sum the bias gradient in the same operation", () => {
    const operations = (recipe: Recipe): Set<string> => {
      using _ = new Scope();
      const tensorNames = new Set<string>();
      using layer = new Linear(backend(), FROM, TO);
      const x = randomInput(1, [ROWS, FROM]);
      const y = autocast({ recipe }, () => layer.forward(x));
      const grad = randomInput(2, [ROWS, TO]);
      const run = backend().run;
      backend().run = (op, args) => {
        tensorNames.add(op);
        run.call(backend(), op, args);
      };
      try {
        y.backward(grad);
      } finally {
        backend().run = run;
      }
      for (const parameter of layer.parameters()) parameter.zeroGrad();
      return tensorNames;
    };
    expect([...operations(custom(makeQuantizer))]).not.toContain("biasGradQuantize");
    expect([...operations(new Float8CurrentScaling())]).toContain("biasGradQuantize");
  });
});

describe("a product's type", () => {
  it("is f32 before delayed scaling quantizes the gradient of the input, which rounds once", () => {
    using _ = new Scope();
    using firstLayer = new Linear(backend(), FROM, FROM);
    using secondLayer = new Linear(backend(), FROM, TO, { bias: false });
    const dy = randomInput(2, [ROWS, TO]);
    const y = autocast({ recipe: new DelayedScaling() }, () =>
      secondLayer.forward(firstLayer.forward(randomInput(1, [ROWS, FROM])), { fp8Grad: true }),
    );
    y.backward(dy);
    const scale = tensor(backend(), new Float32Array([1]));
    const quantizerOf = (format: "e4m3" | "e5m2", columnwise: boolean) =>
      new Float8Quantizer({ scale, format }).setUsage({ rowwise: true, columnwise });
    const w = quantizerOf("e4m3", true).quantize(secondLayer.weight.tensor);
    const product = gemm({
      a: w,
      b: quantizerOf("e5m2", false).quantize(dy),
      layout: "NN",
      outDtype: "f32",
    }).out;
    const dh = quantizerOf("e5m2", false).quantize(product as Tensor<"f32">);
    expect(bits(firstLayer.bias?.grad)).toEqual(bits(columnSum(dh.dequantize("bf16"), "bf16")));
    for (const parameter of [firstLayer, secondLayer].flatMap((layer) => layer.parameters()))
      parameter.zeroGrad();
  });

  it("is that of the input for the bias too, of which f16 keeps more than bf16", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), FROM, TO, { dtype: "f16" });
    // 1 + 2^-10 is an f16 number, and 1 in bf16
    layer.bias?.tensor.write(new Uint16Array(TO).fill(0x3c01));
    const y = noGrad(() =>
      autocast({ recipe: new Float8CurrentScaling() }, () =>
        layer.forward(zeros(backend(), "f16", [ROWS, FROM])),
      ),
    );
    expect(bits(y.tensor)).toEqual(["f16", ...Array.from({ length: ROWS * TO }, () => 0x3c01)]);
  });
});
