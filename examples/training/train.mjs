/** One run: a network trained under one recipe from one seed, then asked about digits it has not seen. */
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
/** Classes padded to a multiple of 32, which every block format takes. */
const OUTPUTS = 32;
const EPOCHS = 4;
const RATE = 0.1;
const MOMENTUM = 0.9;
/** Orders of digits are drawn from here on, far from what weights and rounding draw from the same seed. */
const ORDERS = 1n << 32n;

/** The network in words. */
export const NETWORK = [INPUTS, ...HIDDEN, OUTPUTS].join(" → ");

/** Steps of one pass over `count` digits, and of a whole run. */
export function stepsOf({ count }) {
  const epoch = Math.floor(count / BATCH);
  return { epoch, run: EPOCHS * epoch };
}

/** Puts a set of digits on the backend: `images` is bf16 [count, INPUTS]. */
export function upload(backend, { images, labels, count }) {
  const wide = tensor(backend, images, [count, INPUTS]);
  const stored = encode(wide, { format: "bf16" });
  wide.dispose();
  return { images: stored, labels, count };
}

/**
 * Trains for `steps` steps, calling `onStep` after each. `losses` is f32 [steps], `right` has a 1 for each held-back
 * digit that is recognised. All of it is the same bits on any machine.
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

/** 1024 pixels, two hidden layers, 32 scores of which ten are digits. */
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

/** The digits of step after step, by number: each epoch goes through all in an order of its own. */
function* batchesOf({ count }, seed) {
  for (let epoch = 0n; ; epoch++) {
    const order = Int32Array.from(permutation({ seed: BigInt(seed), offset: ORDERS + epoch }, count));
    for (let place = 0; place + BATCH <= count; place += BATCH) yield order.subarray(place, place + BATCH);
  }
}

/** One step; the loss before it. */
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

/** The scores of all digits, f32 [count, OUTPUTS], under the recipe that the network was trained under. */
function scoresOf(model, region, { images }) {
  const { tensor: scores } = noGrad(() => autocast(region, () => model.forward(images)));
  return decode(scores).dataSync();
}

/** The digit with the largest score, the first of several. */
function predict(scores, row) {
  let best = 0;
  for (let c = 1; c < CLASSES; c++) if (scores[row * OUTPUTS + c] > scores[row * OUTPUTS + best]) best = c;
  return best;
}
