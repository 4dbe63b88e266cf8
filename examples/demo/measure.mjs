/**
 * Measures one recipe: runs both layers with the sums of an H200 and with exact sums, and compares each with float64.
 */
import { activation, gemm, tensor } from "lockstep";
import { CLASSES } from "../shared/digits.mjs";
import { within } from "../shared/within.mjs";
import { FEATURES, largest, OUTPUTS } from "./model.mjs";
import { bitsOf, ceilingsOf, valuesOf } from "./operands.mjs";
import { CHARTED } from "./recipes.mjs";

/** The largest E4M3 value, to which delayed scaling maps the recorded amax. */
const E4M3_MAX = 448;

/** Uploads the tensors that every recipe starts from. Each has a scale for delayed scaling, from the training set. */
export function upload(backend, { model, heldBack }) {
  const { w1, bias1, w2, bias2, past } = model;
  const scale = (amax) => tensor(backend, [E4M3_MAX / amax]);
  const layer = (w, bias, rows, amax) => ({
    weights: { wide: matrix(backend, w, rows), scale: scale(largest(w)) },
    inputs: { scale: scale(amax) },
    bias: tensor(backend, bias),
  });
  return {
    layers: [layer(w1, bias1, FEATURES, past.pixel), layer(w2, bias2, OUTPUTS, past.hidden)],
    images: matrix(backend, heldBack.images, heldBack.count),
  };
}

function matrix(backend, data, rows) {
  return tensor(backend, data, [rows, data.length / rows]);
}

/**
 * Measures `recipe`. `operands` are on the backend under test, whose datapath is `hopper`; `reference` are on the
 * backend that multiplies exactly; the third argument has the float64 results. Everything except `milliseconds` is the
 * same on every machine.
 */
export function measure(recipe, operands, reference, { scores, heldBack: { labels } }) {
  const first = forward(recipe, operands, "hopper");
  const hopper = forward(recipe, operands, "hopper", describe);
  const exact = forward(recipe, reference, "exact");
  const error = distance(hopper.scores, scores);
  const difference = distance(hopper.scores, exact.scores);
  return {
    ...hopper,
    name: recipe.name,
    outputError: error / norm(scores),
    accumulator: { error: difference / norm(scores), share: (difference * difference) / (error * error) },
    right: { hopper: countRight(hopper.scores, labels), exact: countRight(exact.scores, labels) },
    milliseconds: Math.min(first.milliseconds, hopper.milliseconds),
    scores: { hopper: hopper.scores, exact: exact.scores },
  };
}

/**
 * Runs the network under a recipe and a datapath; returns its scores and the time. The operands of each product are
 * quantized; ReLU runs on f32.
 */
function forward(recipe, { layers, images }, datapath, inspect = () => ({})) {
  return within(() => {
    const start = performance.now();
    const used = [];
    const product = ({ weights, inputs, bias }, wide) => {
      const w = recipe.weights(weights).quantize(weights.wide);
      const x = recipe.activations(inputs).quantize(wide);
      used.push({ wide: weights.wide, operand: w }, { wide, operand: x });
      return gemm({ x, w, bias, datapath, useSplitAccumulator: recipe.split, outDtype: "f32" }).out;
    };
    const hidden = activation(product(layers[0], images), { kind: "relu" });
    const scores = product(layers[1], hidden).dataSync();
    const milliseconds = performance.now() - start;
    return { scores, milliseconds, ...inspect(recipe, used) };
  });
}

/** The effects of quantization on each operand: weights and inputs of layer 1, then of layer 2. */
function describe({ name }, used) {
  const sum = (measureOf) => used.reduce((total, each) => total + measureOf(each), 0);
  const [, , head, hidden] = used.map(({ operand }) => operand);
  return {
    bitsPerValue: sum(({ operand }) => bitsOf(operand)) / sum(({ wide }) => wide.size),
    operandErrors: used.map(({ wide, operand }) => relativeError(valuesOf(operand), wide.dataSync())),
    ceilings: CHARTED.includes(name) ? { hidden: ceilingsOf(hidden), head: ceilingsOf(head) } : undefined,
  };
}

/** The index of the largest score; the first one if several are equal. */
export function predict(scores, row) {
  let best = 0;
  for (let c = 1; c < CLASSES; c++) if (scores[row * OUTPUTS + c] > scores[row * OUTPUTS + best]) best = c;
  return best;
}

export function countRight(scores, labels) {
  return labels.reduce((right, label, row) => right + Number(predict(scores, row) === label), 0);
}

/** The Frobenius norm, summed in order in float64. */
function norm(values) {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
}

function distance(values, others) {
  return Math.sqrt(values.reduce((sum, value, i) => sum + (value - others[i]) * (value - others[i]), 0));
}

function relativeError(values, truth) {
  return distance(values, truth) / norm(truth);
}
