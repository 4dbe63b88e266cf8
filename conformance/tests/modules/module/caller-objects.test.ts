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

const drawn = (
  seed: number,
  shape: readonly [number, number],
  dtype: WideDType = "bf16",
): Tensor<WideDType> =>
  castTo(tensor(backend(), normal({ seed: BigInt(seed), offset: 0n }, shape[0] * shape[1], 1), shape), dtype);
const bits = (x: Tensor | undefined): unknown => x && [x.dtype, ...x.dataSync()];
const custom = (make: (role: string) => Quantizer): Recipe =>
  new CustomRecipe({ quantizerFactory: (role) => make(role) });
const current = (): Quantizer => new Float8CurrentScalingQuantizer();

describe("a quantized input", () => {
  const GIVEN: Readonly<Record<string, readonly [() => Recipe, () => Quantizer]>> = {
    delayed: [() => new DelayedScaling(), current],
    current: [() => new Float8CurrentScaling(), current],
    mxfp8: [() => new MXFP8BlockScaling(), () => new MXFP8Quantizer()],
    nvfp4: [() => new NVFP4BlockScaling({ disableRht: true }), () => new NVFP4Quantizer()],
  };
  const cases = Object.entries(GIVEN).flatMap(([name, [recipe, quantizer]]) =>
    [false, true].flatMap((keepsOriginal) =>
      [false, true].map((tracked) => ({ name, recipe, quantizer, keepsOriginal, tracked })),
    ),
  );
  it.each(cases.filter(({ name, keepsOriginal }) => name !== "delayed" || !keepsOriginal))(
    "is the caller's after both passes, with the copies that it had: $name, keeps $keepsOriginal, gradients $tracked",
    ({ recipe, quantizer, keepsOriginal, tracked }) => {
      using _ = new Scope();
      using layer = new Linear(backend(), FROM, TO, { saveOriginalInput: keepsOriginal });
      const x = quantizer()
        .setUsage({ rowwise: true, columnwise: true })
        .quantize(drawn(1, [ROWS, FROM]));
      const wide = bits(x.dequantize());
      const run = (): Variable => autocast({ recipe: recipe() }, () => layer.forward(x));
      const y = tracked ? run() : noGrad(run);
      if (tracked) y.backward(drawn(2, [ROWS, TO]));
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
    const recipe = custom((role) => (role === "input" ? new MXFP8Quantizer() : current()));
    const x = drawn(1, [ROWS, 16]);
    expect(() => noGrad(() => autocast({ recipe }, () => layer.forward(x)))).toThrow(/the input/);
    expect(noGrad(() => autocast({ recipe }, () => layer.forward(current().quantize(x)))).shape).toEqual([
      ROWS,
      TO,
    ]);
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
      using built = row.build(hopper(), SIZES, { random: new RandomState(7n), saveOriginalInput });
      const inputs = createInputs(hopper(), built, SIZES);
      const results = autocast(regionOptions(recipe), () => built.run(inputs));
      const kept = [...inputs, ...results, ...built.module.parameters()];
      const elements = () => kept.map(({ value }) => [...(value as Tensor).dataSync()]);
      const before = elements();
      const y = combineResults(results);
      y.backward(randomGradient(y));
      expect(elements()).toEqual(before);
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
    for (const cached of [{}, { isFirstMicrobatch: true }]) {
      using layer = new Linear(backend(), FROM, TO);
      const recipe = custom(() => new MXFP8Quantizer().setUsage(usage));
      const call = { ...cached, fp8Output: true };
      const y = noGrad(() => autocast({ recipe }, () => layer.forward(drawn(1, [ROWS, FROM]), call)));
      const { rowwise, columnwise } = y.value as QuantizedTensor;
      expect([rowwise !== undefined, columnwise !== undefined]).toEqual([true, false]);
    }
  });

  it("record the amaxes of calibration, whatever copies they made before", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), FROM, TO);
    const [scale, amax] = [tensor(backend(), new Float32Array([1])), zeros(backend(), "f32", [1])];
    const recipe = custom((role) =>
      role === "input" ? new Float8Quantizer({ scale, amax, rowwise: false, columnwise: true }) : current(),
    );
    const x = zeros(backend(), "bf16", [ROWS, FROM]);
    x.write(new Uint16Array(ROWS * FROM).fill(0xc040));
    autocast({ recipe, enabled: false, calibrating: true }, () => layer.forward(x));
    expect([...amax.dataSync()]).toEqual([3]);
  });

  it("quantize a gradient alone; those of a standard recipe sum the bias gradient in the same operation", () => {
    const operations = (recipe: Recipe): Set<string> => {
      using _ = new Scope();
      const seen = new Set<string>();
      using layer = new Linear(backend(), FROM, TO);
      const x = drawn(1, [ROWS, FROM]);
      const y = autocast({ recipe }, () => layer.forward(x));
      const grad = drawn(2, [ROWS, TO]);
      const run = backend().run;
      backend().run = (op, args) => {
        seen.add(op);
        run.call(backend(), op, args);
      };
      try {
        y.backward(grad);
      } finally {
        backend().run = run;
      }
      for (const parameter of layer.parameters()) parameter.zeroGrad();
      return seen;
    };
    expect([...operations(custom(current))]).not.toContain("biasGradQuantize");
    expect([...operations(new Float8CurrentScaling())]).toContain("biasGradQuantize");
  });
});

describe("a product's type", () => {
  it("is f32 before delayed scaling quantizes the gradient of the input, which rounds once", () => {
    using _ = new Scope();
    using first = new Linear(backend(), FROM, FROM);
    using second = new Linear(backend(), FROM, TO, { bias: false });
    const dy = drawn(2, [ROWS, TO]);
    const y = autocast({ recipe: new DelayedScaling() }, () =>
      second.forward(first.forward(drawn(1, [ROWS, FROM])), { fp8Grad: true }),
    );
    y.backward(dy);
    const scale = tensor(backend(), new Float32Array([1]));
    const by = (format: "e4m3" | "e5m2", columnwise: boolean) =>
      new Float8Quantizer({ scale, format }).setUsage({ rowwise: true, columnwise });
    const w = by("e4m3", true).quantize(second.weight.tensor);
    const product = gemm({ a: w, b: by("e5m2", false).quantize(dy), layout: "NN", outDtype: "f32" }).out;
    const dh = by("e5m2", false).quantize(product as Tensor<"f32">);
    expect(bits(first.bias?.grad)).toEqual(bits(columnSum(dh.dequantize("bf16"), "bf16")));
    for (const each of [first, second].flatMap((layer) => layer.parameters())) each.zeroGrad();
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
