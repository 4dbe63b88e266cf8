import { describe, expect, it, vi } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { OpName } from "../../../src/backends/ops.js";
import { DTypeError } from "../../../src/errors.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { columnSum } from "../../../src/ops/rows/norm.js";
import { Float8CurrentScalingQuantizer, Float8Quantizer } from "../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { CustomRecipe } from "../../../src/recipes/custom.js";
import { Scope } from "../../../src/tensor/scope.js";
import { WIDE_DTYPES } from "../../../src/tensor/shape.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { downloadQuantized } from "../../operations/quantize/quantized.js";
import { download } from "../../values/plain.js";
import { drawnTensor } from "../harness/drawn-tensor.js";
import { derivedSeed } from "../harness/draws.js";
import { combineResults, createInputs, randomGradient, rowsWhere } from "../harness/modules/calls.js";
import { GRADIENT_RECIPE_NAMES, recipeByName } from "../harness/step/library-recipes.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const BOTH = { rowwise: true, columnwise: true };

/** For each kind of quantizer, a function that makes a new one. */
const QUANTIZERS: Readonly<Record<string, () => Quantizer>> = {
  delayed: () => new Float8Quantizer({ ...BOTH, format: "e5m2", scale: tensor(backend(), [64]) }),
  current: () => new Float8CurrentScalingQuantizer({ ...BOTH, format: "e5m2" }),
  "current, by an amax given": () =>
    new Float8CurrentScalingQuantizer({ ...BOTH, amax: tensor(backend(), [3]) }),
  block: () => new Float8BlockQuantizer(BOTH),
  mxfp8: () => new MXFP8Quantizer(BOTH),
  nvfp4: () => new NVFP4Quantizer({ ...BOTH, rht: true, stochastic: true, random: new RandomState(5n) }),
};

describe("the bits are those of two operations", () => {
  it.each(Object.entries(QUANTIZERS))("%s", (_, make) => {
    using _scope = new Scope();
    for (const dtype of WIDE_DTYPES) {
      const grad = drawnTensor(backend(), 3, [4, 40, 64], "bf16");
      const { out, biasGrad } = make().biasGradQuantize(grad, dtype);
      expect([out.shape, out.dtype, biasGrad.shape, biasGrad.dtype]).toEqual([
        [4, 40, 64],
        "bf16",
        [64],
        dtype,
      ]);
      assertSameAnswer(downloadQuantized(out), downloadQuantized(make().quantize(grad)));
      assertSameAnswer({ biasGrad: download(biasGrad) }, { biasGrad: download(columnSum(grad, dtype)) });
    }
  });

  testInScope("rows are summed in chunks of 32, and the amax is recorded", () => {
    const column = Float32Array.from({ length: 64 }, (_, row) => (row === 0 ? 2 ** 24 : 1));
    const amax = tensor(backend(), [0]);
    const quantizer = new Float8Quantizer({ scale: tensor(backend(), [1]), amax });
    const { biasGrad } = quantizer.biasGradQuantize(tensor(backend(), column, [64, 1]));
    expect([biasGrad.dtype, biasGrad.dataSync()[0], amax.dataSync()[0]]).toEqual([
      "f32",
      2 ** 24 + 32,
      2 ** 24,
    ]);
  });

  testInScope("no rows give zeros, and the inverse of a scale", () => {
    const quantizer = new Float8Quantizer({ scale: tensor(backend(), [4]) });
    const { out, biasGrad } = quantizer.biasGradQuantize(tensor(backend(), [], [0, 3]));
    expect(biasGrad.dataSync()).toEqual(new Float32Array(3));
    expect(out.copy("rowwise").scaleInv.dataSync()).toEqual(Float32Array.of(0.25));
  });
});

describe("refuses", () => {
  testInScope("types that are not wide", () => {
    const quantizer = new Float8CurrentScalingQuantizer();
    const grad = drawnTensor(backend(), 1, [32, 64], "bf16");
    expect(() => quantizer.biasGradQuantize(encode(grad, { format: "e4m3" }))).toThrow(DTypeError);
    expect(() => quantizer.biasGradQuantize(grad, "e4m3" as "bf16")).toThrow(/dtype/);
  });
});

/** The operations that `body` runs on the backend. */
function operationsOf(body: () => void): readonly OpName[] {
  const run = vi.spyOn(backend(), "run");
  try {
    body();
    return run.mock.calls.map(([op]) => op);
  } finally {
    run.mockRestore();
  }
}

const SIZES = { rows: 32, from: 32, to: 64, middle: 64 };

describe.each(rowsWhere(({ products }) => products !== undefined))("%s", (_, row) => {
  /** The number of fused gradient quantizations in a step, and the number of separate column sums. */
  function columnSums(recipe: Parameters<typeof autocast>[0]["recipe"], hasBias = true) {
    using _scope = new Scope();
    using builtModule = row.build(backend(), SIZES);
    for (const [name, parameter] of builtModule.module.namedParameters()) {
      if (!hasBias && /bias$/i.test(name)) parameter.requiresGrad = false;
    }
    const inputs = createInputs(backend(), builtModule, SIZES);
    const y = autocast({ recipe }, () => combineResults(builtModule.run(inputs)));
    const dy = randomGradient(y, 4);
    const operations = operationsOf(() => y.backward(dy));
    for (const x of inputs) x.zeroGrad();
    const count = (expectedOp: OpName): number => operations.filter((op) => op === expectedOp).length;
    return [count("biasGradQuantize"), count("columnSum")];
  }

  it.each(GRADIENT_RECIPE_NAMES)("%s quantizes a gradient with the sums of its columns", (name) => {
    const [fusedSums] = columnSums(recipeByName(name));
    expect(fusedSums).toBeGreaterThan(0);
    expect(columnSums(recipeByName(name), false)).toEqual([0, 0]);
  });

  it("the caller's own quantizers get only the gradient", () => {
    const recipe = new CustomRecipe({ quantizerFactory: () => new MXFP8Quantizer() });
    const [fusedSums, separate] = columnSums(recipe);
    expect([fusedSums, separate]).toEqual([0, row.products?.(SIZES).length]);
  });
});

testEqualBits("threads do not change a bit", useThreads(), (backend) => {
  const grad = drawnTensor(backend, 9, [1000, 512], "bf16");
  const { out, biasGrad } = new Float8BlockQuantizer(BOTH).biasGradQuantize(grad, "f32");
  return { ...downloadQuantized(out), biasGrad: download(biasGrad) };
});

describeLaws(useBackend({ threads: 2 }), ["biasGradQuantize"], { runs: 400, seed: derivedSeed(37) });
