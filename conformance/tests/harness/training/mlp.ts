/** A classifier of handwritten digits with three linear layers. */
import type { Backend } from "../../../../src/backends/backend.js";
import { activation } from "../../../../src/functional/elementwise.js";
import { crossEntropyLoss } from "../../../../src/functional/loss.js";
import { Linear } from "../../../../src/modules/linear.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { encode } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import type { RandomState } from "../../../../src/quantizers/random-state.js";
import { permutation } from "../../../../src/random.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { loadDigits, PIXELS } from "./digits.js";

const DIGITS = 4096;
export const BATCH = 128;
export const HIDDEN = [256, 128] as const;
/** The number of outputs; ten of them are digits. */
export const CLASSES = 32;

let digits: ReturnType<typeof loadDigits> | undefined;

/** The images and labels of step `step`. */
export function batch(step: number): { readonly images: Float32Array; readonly labels: Int32Array } {
  const dataset = digits ?? loadDigits(DIGITS);
  digits = dataset;
  const [epoch, start] = [Math.floor((step * BATCH) / DIGITS), (step * BATCH) % DIGITS];
  const order = permutation({ seed: 1n, offset: BigInt(epoch) }, DIGITS).subarray(start, start + BATCH);
  const images = new Float32Array(BATCH * PIXELS);
  const labels = Int32Array.from(order, (digit) => dataset.labels[digit] as number);
  order.forEach((digit, row) => {
    images.set(dataset.images.subarray(digit * PIXELS, (digit + 1) * PIXELS), row * PIXELS);
  });
  return { images, labels };
}

/** Trains on batches in random order; each epoch has a new order. */
export function mlp(backend: Backend, random: RandomState) {
  const linear = (inFeatures: number, outFeatures: number): Linear =>
    new Linear(backend, inFeatures, outFeatures, { random });
  const relu = (x: Variable): Variable => activation(x, "relu");
  const layers = [linear(PIXELS, HIDDEN[0]), relu, linear(...HIDDEN), relu, linear(HIDDEN[1], CLASSES)];
  const model = new Sequential(backend, ...layers);
  const optimizer = new SGD(model, { learningRate: 0.1, momentum: 0.9, weightDecay: 1e-4 });
  return {
    model,
    optimizer,
    loss(step: number): Variable {
      const { images, labels } = batch(step);
      const x = encode(tensor(backend, images, [BATCH, PIXELS]), { format: "bf16", overflow: "nonfinite" });
      return crossEntropyLoss(model.forward(x), tensor(backend, labels, [BATCH], "i32"));
    },
  };
}
