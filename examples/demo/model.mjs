/** The network: fixed random ReLU features and a ridge-regression head, with a float64 forward pass. */
import { CholeskyDecomposition, Matrix } from "ml-matrix";
import { CLASSES, PIXELS } from "../shared/digits.mjs";
import { INPUTS } from "./data.mjs";

export const FEATURES = 512;
/** The number of classes, padded to a multiple of 32; the additional rows are zero. */
export const OUTPUTS = 32;

const SEED = 2024;
const WEIGHT_SCALE = 2 ** -4;
const BIAS_SCALE = 2 ** -2;
const RIDGE = 8;

/**
 * Builds the model. `w1` f32 [FEATURES, INPUTS] and `bias1` are random. `w2` f32 [OUTPUTS, FEATURES] and `bias2` are
 * fitted to the training set in float64, then rounded to f32. `past` has the largest pixel and the largest hidden value
 * of the training set. Every step is an addition, a multiplication, a division or a square root in a fixed order, so
 * the weights have the same bits on every machine.
 */
export function fitModel(training) {
  const normal = normalSource(SEED);
  const w1 = new Float32Array(FEATURES * INPUTS);
  for (let f = 0; f < FEATURES; f++) {
    for (let k = 0; k < PIXELS; k++) w1[f * INPUTS + k] = normal() * WEIGHT_SCALE;
  }
  const bias1 = Float32Array.from({ length: FEATURES }, () => normal() * BIAS_SCALE);
  const hidden = features({ w1, bias1 }, training);
  const past = { pixel: largest(training.images), hidden: largest(hidden) };
  return { w1, bias1, ...ridgeHead(hidden, training.labels), past };
}

/**
 * A source of approximately normal numbers with variance 1, exact in f32: the sum of twelve 16-bit uniform numbers
 * minus its mean (Irwin-Hall). The uniform numbers are the upper halves of a 32-bit counter, mixed twice by multiply
 * and xor-shift.
 */
function normalSource(seed) {
  let counter = seed;
  const uniform = () => {
    counter = (counter + 0x9e3779b9) | 0;
    let x = Math.imul(counter ^ (counter >>> 16), 0x7feb352d);
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    return (x ^ (x >>> 16)) >>> 16;
  };
  return () => {
    let sum = 0;
    for (let i = 0; i < 12; i++) sum += uniform();
    return (sum - 6 * 65535) / 65536;
  };
}

/** The largest |x|. */
export function largest(values) {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

/** ReLU(images * w1' + bias1) in float64, [count, FEATURES]; each sum adds the pixels in order. */
export function features({ w1, bias1 }, { images, count }) {
  const byPixel = new Float64Array(PIXELS * FEATURES);
  for (let f = 0; f < FEATURES; f++) {
    for (let k = 0; k < PIXELS; k++) byPixel[k * FEATURES + f] = w1[f * INPUTS + k];
  }
  const hidden = new Float64Array(count * FEATURES);
  for (let row = 0; row < count; row++) {
    const sums = hidden.subarray(row * FEATURES, (row + 1) * FEATURES);
    for (let k = 0; k < PIXELS; k++) {
      const pixel = images[row * INPUTS + k];
      if (pixel !== 0) addScaled(sums, byPixel, k * FEATURES, pixel);
    }
    for (let f = 0; f < FEATURES; f++) sums[f] = Math.max(0, sums[f] + bias1[f]);
  }
  return hidden;
}

/** Adds factor * source[from + i] to target[i]. */
function addScaled(target, source, from, factor) {
  for (let i = 0; i < target.length; i++) target[i] += factor * source[from + i];
}

/** hidden * w2' + bias2 in float64, [count, OUTPUTS]. */
export function scores({ w2, bias2 }, hidden, count) {
  const out = new Float64Array(count * OUTPUTS);
  for (let row = 0; row < count; row++) {
    for (let c = 0; c < CLASSES; c++) {
      let sum = 0;
      for (let f = 0; f < FEATURES; f++) sum += hidden[row * FEATURES + f] * w2[c * FEATURES + f];
      out[row * OUTPUTS + c] = sum + bias2[c];
    }
  }
  return out;
}

/**
 * Solves (H'H + RIDGE) W = H'T by a Cholesky decomposition. The last column of H is all ones; T is 1 for the digit and
 * -1 elsewhere.
 */
function ridgeHead(hidden, labels) {
  const size = FEATURES + 1;
  const gram = new Matrix(size, size);
  const moments = new Matrix(size, CLASSES);
  const row = new Float64Array(size).fill(1);
  labels.forEach((label, n) => {
    row.set(hidden.subarray(n * FEATURES, (n + 1) * FEATURES));
    accumulate(gram, moments, row, label);
  });
  for (let i = 0; i < size; i++) {
    for (let j = 0; j < i; j++) gram.set(i, j, gram.get(j, i));
    gram.set(i, i, gram.get(i, i) + RIDGE);
  }
  const solution = new CholeskyDecomposition(gram).solve(moments);
  const w2 = new Float32Array(OUTPUTS * FEATURES);
  const bias2 = new Float32Array(OUTPUTS);
  for (let c = 0; c < CLASSES; c++) {
    for (let f = 0; f < FEATURES; f++) w2[c * FEATURES + f] = solution.get(f, c);
    bias2[c] = solution.get(FEATURES, c);
  }
  return { w2, bias2 };
}

/** Adds one digit to the upper triangle of H'H and to H'T. */
function accumulate(gram, moments, row, label) {
  for (let i = 0; i < row.length; i++) {
    const factor = row[i];
    if (factor === 0) continue;
    const gramRow = gram.data[i];
    for (let j = i; j < row.length; j++) gramRow[j] += factor * row[j];
    const momentRow = moments.data[i];
    for (let c = 0; c < CLASSES; c++) momentRow[c] += c === label ? factor : -factor;
  }
}
