/** One run: trains a network under one recipe from one seed, then classifies the held-back digits. */
import {
  autocast,
  decode,
  embedding,
  encode,
  functional,
  Linear,
  noGrad,
  normalInit,
  permutation,
  RandomState,
  Sequential,
  SGD,
  tensor,
} from "lockstep";
import { CLASSES } from "../shared/digits.mjs";
import { within } from "../shared/within.mjs";
import { INPUTS } from "./data.mjs";

const BATCH = 64;
const HIDDEN = [256, 128];
/** The number of classes, padded to a multiple of 32, which every block format accepts. */
const OUTPUTS = 32;
const EPOCHS = 4;
const RATE = 0.1;
const MOMENTUM = 0.9;
/**
 * The offset of the random numbers that order the digits. It is far from the offsets of weights and stochastic rounding, which
 * draw from the same seed.
 */
const ORDERS = 1n << 32n;

/** The layer sizes as text. */
export const NETWORK = [INPUTS, ...HIDDEN, OUTPUTS].join(" → ");

/** The number of steps in one epoch of `count` digits, and in a full run. */
export function stepsOf({ count }) {
  const epoch = Math.floor(count / BATCH);
  return { epoch, run: EPOCHS * epoch };
}

/** Uploads a set of digits; `images` is bf16 [count, INPUTS]. */
export function upload(backend, { images, labels, count }) {
  const wide = tensor(backend, images, [count, INPUTS]);
  const stored = encode(wide, { format: "bf16" });
  wide.dispose();
  return { images: stored, labels, count };
}

/**
 * Trains for `steps` steps and calls `onStep` after each. `losses` is f32 [steps]; `right` has a 1 for each held-back
 * digit that was recognised. All results have the same bits on every machine.
 */
export function train(backend, { training, heldBack }, { recipe, seed, steps, onStep }) {
  const model = network(backend, new RandomState(BigInt(seed)));
  const optimizer = new SGD(model, { learningRate: RATE, momentum: MOMENTUM });
  const region = recipe ? { recipe } : { enabled: false };
  try {
    const batches = batchesOf(training, seed);
    const losses = Float32Array.from({ length: steps }, (_, step) => {
      optimizer.options = { ...optimizer.options, learningRate: RATE * (1 - step / steps) };
      const loss = within(() => advance({ model, optimizer, region }, training, batches.next().value));
      onStep();
      return loss;
    });
    const scores = within(() => scoresOf(model, region, heldBack));
    return { losses, right: heldBack.labels.map((label, row) => Number(predict(scores, row) === label)) };
  } finally {
    optimizer.dispose();
    model.dispose();
  }
}

/** The network: 1024 pixels, two hidden layers, and 32 scores, of which ten belong to digits. */
function network(backend, random) {
  const linear = (from, to) =>
    new Linear(backend, from, to, { random, initMethod: normalInit(Math.sqrt(2 / from)) });
  const relu = (x) => functional.activation(x, "relu");
  return new Sequential(
    backend,
    linear(INPUTS, HIDDEN[0]),
    relu,
    linear(HIDDEN[0], HIDDEN[1]),
    relu,
    linear(HIDDEN[1], OUTPUTS),
  );
}

/** The indices of the digits in each step. Every epoch visits all digits in a new random order. */
function* batchesOf({ count }, seed) {
  for (let epoch = 0n; ; epoch++) {
    const order = Int32Array.from(permutation({ seed: BigInt(seed), offset: ORDERS + epoch }, count));
    for (let place = 0; place + BATCH <= count; place += BATCH) yield order.subarray(place, place + BATCH);
  }
}

/** Runs one step; returns the loss before its update. */
function advance({ model, optimizer, region }, { images, labels }, batch) {
  const int32 = (values) => tensor(images.backend, values, [BATCH], "i32");
  const inputs = embedding(images, int32(batch));
  const answers = int32(batch.map((digit) => labels[digit]));
  const loss = autocast(region, () => functional.crossEntropyLoss(model.forward(inputs), answers));
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
  return loss.tensor.dataSync()[0];
}

/** The scores of all digits, f32 [count, OUTPUTS], under the recipe of the training. */
function scoresOf(model, region, { images }) {
  const { tensor: scores } = noGrad(() => autocast(region, () => model.forward(images)));
  return decode(scores).dataSync();
}

/** The index of the largest score; the first one if several are equal. */
function predict(scores, row) {
  let best = 0;
  for (let c = 1; c < CLASSES; c++) if (scores[row * OUTPUTS + c] > scores[row * OUTPUTS + best]) best = c;
  return best;
}
