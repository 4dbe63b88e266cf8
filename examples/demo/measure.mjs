/** One recipe, measured: both layers as an H200 multiplies, and exactly, each against float64. */
import { activation, gemm, tensor } from "lockstep";
import { CLASSES } from "./data.mjs";
import { FEATURES, OUTPUTS } from "./model.mjs";
import { bitsOf, ceilingsOf, valuesOf, within } from "./operands.mjs";

/** The largest E4M3 value, which delayed scaling maps the amax of the past to. */
const E4M3_MAX = 448;

/**
 * The float64 side of the comparison: held-back digits, the model, its hidden layer and scores, and the `past` that
 * delayed scaling knows, the largest pixel and the largest hidden value of the training set.
 *
 * @typedef {{ model: object, heldBack: object, hidden: Float64Array, scores: Float64Array,
 *   past: { pixel: number, hidden: number } }} Truth
 */

/** The tensors every recipe starts from, on one backend. */
export function upload(backend, { model, heldBack, past }) {
  const { w1, bias1, w2, bias2 } = model;
  const history = (amax) => ({ scale: tensor(backend, [E4M3_MAX / amax]) });
  return {
    layers: [
      { w: matrix(backend, w1, FEATURES), bias: tensor(backend, bias1), past: history(largest(w1)) },
      { w: matrix(backend, w2, OUTPUTS), bias: tensor(backend, bias2), past: history(largest(w2)) },
    ],
    inputs: [history(past.pixel), history(past.hidden)],
    images: matrix(backend, heldBack.images, heldBack.count),
  };
}

function matrix(backend, data, rows) {
  return tensor(backend, data, [rows, data.length / rows]);
}

/** max |x| */
export function largest(values) {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

/**
 * Measures `recipe`: `operands` on the backend under test, whose datapath is `hopper`, `reference` on the one that
 * multiplies exactly. Everything but `milliseconds` is the same on any machine.
 */
export function measure(recipe, operands, reference, truth) {
  const hopper = forward(recipe, operands, "hopper");
  const exact = forward(recipe, reference, "exact");
  const { labels } = truth.heldBack;
  const [w1, w2] = [truth.model.w1, truth.model.w2];
  const difference = distance(hopper.scores, exact.scores);
  const error = distance(hopper.scores, truth.scores);
  return {
    name: recipe.name,
    bitsPerValue: hopper.bits / hopper.elements,
    weightErrors: [relativeError(hopper.weights[0], w1), relativeError(hopper.weights[1], w2)],
    outputErrors: { hopper: error / norm(truth.scores), exact: relativeError(exact.scores, truth.scores) },
    accumulatorShare: (difference / error) ** 2,
    right: { hopper: countRight(hopper.scores, labels), exact: countRight(exact.scores, labels) },
    milliseconds: hopper.milliseconds,
    scores: { hopper: hopper.scores, exact: exact.scores },
    ceilings: hopper.ceilings,
  };
}

/** The network under one recipe and datapath: ReLU stays wide, and what enters a product is quantized. */
function forward(recipe, { layers, inputs, images }, datapath) {
  return within(() => {
    const start = performance.now();
    const used = [];
    const layer = (i, x) => {
      const a = recipe.weights(layers[i].past).quantize(layers[i].w);
      const b = recipe.activations(inputs[i]).quantize(x);
      used.push({ a, b });
      const { bias } = layers[i];
      return gemm({ a, b, bias, datapath, useSplitAccumulator: recipe.split, outDtype: "f32" }).out;
    };
    const hidden = activation(layer(0, images), { kind: "relu" });
    const scores = layer(1, hidden).dataSync();
    const milliseconds = performance.now() - start;
    const all = used.flatMap(({ a, b }) => [a, b]);
    return {
      scores,
      milliseconds,
      weights: used.map(({ a }) => valuesOf(a)),
      bits: all.reduce((sum, operand) => sum + bitsOf(operand), 0),
      elements: [...layers.map(({ w }) => w), images, hidden].reduce((sum, { size }) => sum + size, 0),
      ceilings: recipe.charted ? { hidden: ceilingsOf(used[1].b), head: ceilingsOf(used[1].a) } : undefined,
    };
  });
}

/** The digit with the largest score, the first of several. */
export function predict(scores, row) {
  let best = 0;
  for (let c = 1; c < CLASSES; c++) if (scores[row * OUTPUTS + c] > scores[row * OUTPUTS + best]) best = c;
  return best;
}

export function countRight(scores, labels) {
  return labels.reduce((right, label, row) => right + Number(predict(scores, row) === label), 0);
}

/** The Euclidean (Frobenius) norm, summed in float64 in order. */
export function norm(values) {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
}

function distance(values, others) {
  return Math.sqrt(values.reduce((sum, value, i) => sum + (value - others[i]) * (value - others[i]), 0));
}

function relativeError(values, truth) {
  return distance(values, truth) / norm(truth);
}
