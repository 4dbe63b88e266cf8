/** Outside of autocast, a layer computes with the dequantized values of a quantized weight or input. */
import { describe, expect, it } from "vitest";
import { Linear } from "../../../../src/modules/linear.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { tensor } from "../../../../src/ops/create.js";
import { scaled } from "../../../../src/ops/elementwise/operators.gen.js";
import { dequantize } from "../../../../src/ops/quantize/dequantize.js";
import { Float8CurrentScalingQuantizer } from "../../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { type Value, wideOf } from "../../../../src/tape/value.js";
import { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { gridValues } from "../../harness/gradients.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const { rows, from, to } = { rows: 32, from: 64, to: 32 };
const DTYPES: readonly WideDType[] = ["f32", "bf16", "f16"];
const RECIPES = {
  delayed: () => new DelayedScaling(),
  current: () => new Float8CurrentScaling(),
  block: () => new Float8BlockScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
  nvfp4: () => new NVFP4BlockScaling(),
};
const QUANTIZERS = {
  current: () => new Float8CurrentScalingQuantizer(),
  block: () => new Float8BlockQuantizer(),
  mxfp8: () => new MXFP8Quantizer(),
  nvfp4: () => new NVFP4Quantizer(),
};

const wide = (seed: number, shape: readonly [number, number], dtype: WideDType): Tensor<WideDType> =>
  scaled(tensor(backend(), gridValues(seed, shape[0] * shape[1], 2), shape), 1, { outDtype: dtype });

const bitsOf = (x: Value | undefined): unknown => x && [...wideOf("a result", x).dataSync()];

/**
 * The results of a forward and backward pass: y, and the gradients of the input, the weight and the bias, if they
 * require one.
 */
function passes(layer: Linear, x: Variable, grad: Tensor): readonly unknown[] {
  const y = layer.forward(x);
  y.backward(grad);
  const actual = [y.value, x.grad, layer.weight.grad, layer.bias?.grad].map(bitsOf);
  for (const variable of [x, ...layer.parameters()]) variable.zeroGrad();
  return actual;
}

describe.each(DTYPES)("of %s", (dtype) => {
  it.each(Object.entries(RECIPES))(
    "a weight quantized under %s gives the bits of its dequantized values",
    (_, recipe) => {
      const liveBefore = backend().memoryUse().live;
      {
        using _scope = new Scope();
        using layer = quantizedModelInit(
          { recipe: recipe() },
          () => new Linear(backend(), from, to, { dtype }),
        );
        const weight = layer.weight.value as QuantizedTensor;
        expect(weight).toBeInstanceOf(QuantizedTensor);
        const values = Float32Array.from(dequantize(weight, "f32").dataSync() as Float32Array);
        using plainLayer = new Linear(backend(), from, to, { dtype, initMethod: () => values });
        const grad = wide(3, [rows, to], dtype);
        for (const requiresGrad of [true, false]) {
          const [ownBits, plainBits] = [layer, plainLayer].map((module) => {
            module.weight.requiresGrad = false;
            return passes(module, new Variable(wide(2, [rows, from], dtype), requiresGrad), grad);
          });
          expect(ownBits).toEqual(plainBits);
        }
        const x = wide(5, [rows, from], dtype);
        const [y, plainResult] = [layer, plainLayer].map((module) =>
          bitsOf(noGrad(() => module.forward(x)).value),
        );
        expect(y).toEqual(plainResult);
      }
      expect(backend().memoryUse().live).toBe(liveBefore);
    },
  );

  it.each(Object.entries(QUANTIZERS))(
    "an input quantized by %s gives the bits of its dequantized values",
    (_, make) => {
      const liveBefore = backend().memoryUse().live;
      {
        using _scope = new Scope();
        using layer = new Linear(backend(), from, to, { dtype });
        const x = make().quantize(wide(7, [rows, from], dtype));
        const grad = wide(8, [rows, to], dtype);
        for (const isFrozen of [false, true]) {
          layer.weight.requiresGrad = !isFrozen;
          const [ownBits, dequantizedBits] = [x, dequantize(x, dtype)].map((input) =>
            passes(layer, new Variable(input), grad),
          );
          expect(ownBits).toEqual(dequantizedBits);
        }
      }
      expect(backend().memoryUse().live).toBe(liveBefore);
    },
  );
});
