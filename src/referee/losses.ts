/** Models of the negative log-likelihood loss as PyTorch 2.11 computes it on CUDA (aten/src/ATen/native/cuda/Loss.cu). */
import { ShapeError } from "../errors.js";
import { threadSums, treeSum } from "./block-sums.js";
import type { Call, Model } from "./call.js";
import { roundedTo, valuesOf } from "./conversions.js";
import { NotModelled } from "./not-modelled.js";
import { integersOf } from "./selections.js";
import type { Value } from "./value.js";

const [NONE, MEAN] = [0, 1];

/** The operands of a loss without class weights. `classes` has the class of each row, or undefined if the row is ignored. */
function operandsOf(call: Call): {
  readonly x: Value;
  readonly classes: readonly (number | undefined)[];
  readonly reduction: number;
} {
  const [x, target] = [call.tensor("self"), call.tensor("target")];
  call.requireDefault("weight", null);
  const [rows = 0, size = 0] = x.shape;
  if (x.shape.length !== 2) throw new NotModelled(`a loss of [${x.shape}]`);
  const ignored = call.integer("ignore_index", -100);
  const classes = integersOf(target).map((each) => (each === ignored ? undefined : each));
  const isClass = (each: number | undefined): boolean => each === undefined || (each >= 0 && each < size);
  if (classes.length !== rows || !classes.every(isClass))
    throw new ShapeError(
      `a loss of [${x.shape}] with classes [${target.shape}], or one that is out of range`,
    );
  return { x, classes, reduction: call.integer("reduction", MEAN) };
}

/** Whether no row is ignored. No recorded call has an ignored row. */
export const ignoresNone = (call: Call): boolean =>
  !integersOf(call.tensor("target")).includes(call.integer("ignore_index", -100));

/** The number of threads that sum the losses: 2^round(log2(rows / 16)), at least 32 and at most 1024. */
function threadsFor(rows: number): number {
  return Math.min(Math.max(2 ** Math.round(Math.log2(Math.floor(rows / 16))), 32), 1024);
}

/**
 * The loss of each row is -x at its class, or 0 if the row is ignored. One block computes the sum in f32: thread t of T adds rows
 * t, t + T, …, starting at +0, then `treeSum`. The mean is the f32 quotient of the sum and the number of rows that are not
 * ignored. Each result is rounded once to the dtype.
 */
export const nllLoss: Model = (call) => {
  const { x, classes, reduction } = operandsOf(call);
  const { backend } = call;
  const values = valuesOf(backend, x);
  const [rows, size] = x.shape as [number, number];
  const losses = Float32Array.from(classes, (classIndex, row) =>
    classIndex === undefined ? 0 : -(values[row * size + classIndex] as number),
  );
  const scalar = (value: number): Value => roundedTo(backend, x.dtype, [], Float32Array.of(value));
  if (reduction === NONE) return [roundedTo(backend, x.dtype, [rows], losses), scalar(0)];
  const terms = losses.map((loss, row) => (classes[row] === undefined ? -0 : loss));
  const threads = threadsFor(rows);
  const sum = treeSum(
    threadSums({ terms, start: 0, stride: 1, size: rows }, { threads, width: 1 }),
    0,
    threads,
  );
  const count = classes.filter((each) => each !== undefined).length;
  return [scalar(reduction === MEAN ? sum / count : sum), scalar(count)];
};

/**
 * The gradient at the class of a row is -grad_output, or -(grad_output / total_weight) for the mean, rounded once to the dtype.
 * It is +0 elsewhere.
 */
export const nllLossBackward: Model = (call) => {
  const { x, classes, reduction } = operandsOf(call);
  const { backend } = call;
  const gradOutput = valuesOf(backend, call.tensor("grad_output"));
  const [total = 0] = valuesOf(backend, call.tensor("total_weight"));
  const size = x.shape[1] as number;
  const results = new Float32Array(classes.length * size);
  for (const [row, classIndex] of classes.entries()) {
    const grad = gradOutput[reduction === NONE ? row : 0] as number;
    if (classIndex !== undefined)
      results[row * size + classIndex] = -(reduction === MEAN ? grad / total : grad);
  }
  return [roundedTo(backend, x.dtype, x.shape, results)];
};
