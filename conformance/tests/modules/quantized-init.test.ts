/** Weights stored in quantized form from the beginning use the scales of their layers. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { mseLoss } from "../../../src/functional/loss.js";
import { Linear } from "../../../src/modules/linear.js";
import { wideTensor } from "../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { normal } from "../../../src/random.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import type { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const SIZE = 32;
const WEIGHT = 1;
const backend = useBackend({ threads: 1, datapath: "hopper" });

function input(offset: number): Tensor<WideDType> {
  const values = normal({ seed: 1n, offset: BigInt(offset) }, SIZE * SIZE, 1);
  return wideTensor(backend(), values, [SIZE, SIZE], "bf16");
}

it("under delayed scaling each step casts the master by the layer's scale and records its amax", () => {
  const length = fc.integer({ min: 1, max: 4 });
  const seeds = fc.bigInt({ min: 0n, max: 99n });
  const property = fc.property(length, seeds, (amaxHistoryLen, seed) => {
    const recipe = new DelayedScaling({ amaxHistoryLen });
    const random = new RandomState(seed);
    using layer = quantizedModelInit({ recipe }, () => new Linear(backend(), SIZE, SIZE, { random }));
    using optimizer = new SGD(layer, { learningRate: 0.5 });
    const weight = layer.weight.value as QuantizedTensor;
    for (let step = 0; step < 4; step++) {
      using _scope = new Scope();
      autocast({ recipe }, () => mseLoss(layer.forward(input(2 * step)), input(2 * step + 1))).backward();
      optimizer.step();
      optimizer.zeroGrad();
      const state = layer.namedQuantizations().get("linear")?.snapshotSync()?.forward;
      const scale = state?.scale[WEIGHT] as number;
      const master = optimizer.slots.get("weight")?.master.dataSync() as Float32Array;
      const amax = master.reduce((maximum, value) => Math.max(maximum, Math.abs(value)), 0);
      expect(state?.amaxHistory[WEIGHT]).toBe(amax);
      expect(weight.rowwise?.scaleInv.dataSync()).toEqual(Float32Array.of(1 / scale));
      expect(scale !== 1).toBe(step > 0);
    }
  });
  fc.assert(property, { numRuns: draws(10) });
});

it("the gradient of a quantized weight has the type of the input, and its bits are those of a layer of that type", () => {
  for (const dtype of WIDE_DTYPES)
    for (const inputDtype of WIDE_DTYPES) {
      using _scope = new Scope();
      const recipe = new MXFP8BlockScaling();
      const gradientOf = (layer: Linear): Tensor => {
        const x = castTo(input(0), inputDtype);
        autocast({ recipe }, () => layer.forward(x)).backward(castTo(input(1), inputDtype));
        return layer.weight.grad as Tensor;
      };
      using quantizedLayer = quantizedModelInit(
        { recipe },
        () => new Linear(backend(), SIZE, SIZE, { dtype }),
      );
      using plainLayer = new Linear(backend(), SIZE, SIZE, { dtype: inputDtype });
      const [grad, expected] = [gradientOf(quantizedLayer), gradientOf(plainLayer)];
      expect(grad.dtype, `${dtype} weight, ${inputDtype} input`).toBe(inputDtype);
      expect(grad.dataSync()).toEqual(expected.dataSync());
    }
});

it("a layer whose recipe changes within a region leaves no scale to update", () => {
  using _scope = new Scope();
  using layer = new Linear(backend(), SIZE, SIZE);
  autocast({ recipe: new DelayedScaling() }, () => {
    layer.forward(input(0));
    autocast({ recipe: new DelayedScaling({ margin: 1 }) }, () => layer.forward(input(1)));
    autocast({ recipe: new MXFP8BlockScaling() }, () => layer.forward(input(2)));
  });
  expect(layer.namedQuantizations().get("linear")?.snapshotSync()).toBeUndefined();
});
