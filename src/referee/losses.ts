/** Models of the negative log-likelihood loss as PyTorch 2.11 computes it on CUDA (aten/src/ATen/native/cuda/Loss.cu). */
import { ShapeError } from "../errors.js";
import { threadSums, treeSum } from "./block-sums.js";
import type { Call, Model } from "./call.js";
import { roundedValue, toFloat32 } from "./conversions.js";
import { NotModelled } from "./not-modelled.js";
import { toIntegers } from "./selections.js";
import type { Value } from "./value.js";

const [NO_REDUCTION, MEAN_REDUCTION] = [0, 1];

/** The operands of a loss without class weights. `classes` has the class of each row, or undefined if the row is ignored. */
function readOperands(call: Call): {
  readonly x: Value;
  readonly classes: readonly (number | undefined)[];
  readonly reduction: number;
} {
  const [x, target] = [call.tensor("self"), call.tensor("target")];
  call.requireDefault("weight", null);
  const [rows = 0, size = 0] = x.shape;
  if (x.shape.length !== 2) throw new NotModelled(`a loss of [${x.shape}]`);
  const ignoredClass = call.integer("ignore_index", -100);
  const classes = toIntegers(target).map((each) => (each === ignoredClass ? undefined : each));
  const isClass = (each: number | undefined): boolean => each === undefined || (each >= 0 && each < size);
  if (classes.length !== rows || !classes.every(isClass))
    throw new ShapeError(
      `a loss of [${x.shape}] with classes [${target.shape}], or one that is out of range`,
    );
  return { x, classes, reduction: call.integer("reduction", MEAN_REDUCTION) };
}

/** Whether no row is ignored, as in all recorded calls. */
export const hasNoIgnoredRow = (call: Call): boolean =>
  !toIntegers(call.tensor("target")).includes(call.integer("ignore_index", -100));

/** The number of threads that sum the losses: 2^round(log2(rows / 16)), at least 32 and at most 1024. */
function threadCount(rows: number): number {
  return Math.min(Math.max(2 ** Math.round(Math.log2(Math.floor(rows / 16))), 32), 1024);
}

/**
 * The loss of each row is -x at its class, or 0 if the row is ignored. One block computes the sum in f32: thread t of T adds rows
 * t, t + T, …, starting at +0, then `treeSum`. The mean is the f32 quotient of the sum and the number of rows that are not
 * ignored. Each result is rounded once to the dtype.
 */
export const nllLoss: Model = (call) => {
  const { x, classes, reduction } = readOperands(call);
  const { backend } = call;
  const values = toFloat32(backend, x);
  const [rows, size] = x.shape as [number, number];
  const losses = Float32Array.from(classes, (classIndex, row) =>
    classIndex === undefined ? 0 : -(values[row * size + classIndex] as number),
  );
  const scalar = (value: number): Value => roundedValue(backend, x.dtype, [], Float32Array.of(value));
  if (reduction === NO_REDUCTION) return [roundedValue(backend, x.dtype, [rows], losses), scalar(0)];
  const terms = losses.map((loss, row) => (classes[row] === undefined ? -0 : loss));
  const threads = threadCount(rows);
  const sum = treeSum(
    threadSums({ terms, start: 0, stride: 1, size: rows }, { threads, width: 1 }),
    0,
    threads,
  );
  const count = classes.filter((each) => each !== undefined).length;
  return [scalar(reduction === MEAN_REDUCTION ? sum / count : sum), scalar(count)];
};

/**
 * The gradient at the class of a row is -grad_output, or -(grad_output / total_weight) for the mean, rounded once to the dtype.
 * It is +0 elsewhere.
 */
export const nllLossBackward: Model = (call) => {
  const { x, classes, reduction } = readOperands(call);
  const { backend } = call;
  const gradOutput = toFloat32(backend, call.tensor("grad_output"));
  const [total = 0] = toFloat32(backend, call.tensor("total_weight"));
  const size = x.shape[1] as number;
  const results = new Float32Array(classes.length * size);
  for (const [row, classIndex] of classes.entries()) {
    const grad = gradOutput[reduction === NO_REDUCTION ? row : 0] as number;
    if (classIndex !== undefined)
      results[row * size + classIndex] = -(reduction === MEAN_REDUCTION ? grad / total : grad);
  }
  return [roundedValue(backend, x.dtype, x.shape, results)];
};
