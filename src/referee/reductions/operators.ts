/**
 * Models of reductions: sums, means, maxima and norms over dimensions. A model computes the iterated dimensions (geometry.ts) and
 * the launch (launch.ts), then adds the inputs of each output to accumulators (accumulators.ts) in the order of reduce.ts.
 */
import type { FileDType } from "../../io/dtypes.js";
import { asBytes } from "../../tensor/data.js";
import { elementCount, type Shape } from "../../tensor/shape.js";
import type { Call, Model } from "../call.js";
import { roundedValue, roundThrough, toFloat32 } from "../conversions.js";
import { applyMath, fma } from "../float32.js";
import { NotModelled } from "../not-modelled.js";
import { broadcast, type DimRows, rowStart, rowsAlong, type Value } from "../value.js";
import { NumberAccumulators, WelfordAccumulators } from "./accumulators.js";
import { reductionGeometry } from "./geometry.js";
import { reductionLaunch, type Unrolling } from "./launch.js";
import { reduceAll, slotCount } from "./reduce.js";

/**
 * The maximum size of a tensor. PyTorch divides a larger tensor into several launches with 32-bit offsets, which the models do
 * not.
 */
const MAX_BYTES = 2 ** 31 - 1;

/** The operands of a reduction. `shape` and `outDtype` belong to the result. */
interface Reduction {
  readonly x: Value;
  readonly values: Float32Array;
  readonly dims: readonly number[];
  readonly keepdim: boolean;
  readonly shape: Shape;
  readonly outDtype: FileDType;
}

/** The argument `dim` as dimensions counted from the front. All dimensions if the argument is absent or empty. */
function readDims(call: Call, { length }: Shape): readonly number[] {
  const dimsArgument = call.get("dim") === undefined ? [] : call.integers("dim");
  if (dimsArgument.length === 0) return Array.from({ length }, (_, dim) => dim);
  const dims = dimsArgument.map((dim) => (dim < 0 ? dim + Math.max(length, 1) : dim));
  if (dims.some((dim) => !(dim >= 0 && dim < Math.max(length, 1))))
    throw new NotModelled(`dimensions ${dimsArgument}`);
  return dims;
}

function readReduction(call: Call): Reduction {
  const x = call.tensor("self");
  const outDtype = call.dtype("dtype") ?? x.dtype;
  if (outDtype !== x.dtype && outDtype !== "F32") throw new NotModelled(`${x.dtype} reduced to ${outDtype}`);
  if (elementCount(x.shape) === 0) throw new NotModelled("no elements");
  if (x.bytes.length > MAX_BYTES) throw new NotModelled(`${x.bytes.length} bytes`);
  const dims = readDims(call, x.shape);
  const keepdim = call.boolean("keepdim", false);
  const shape = x.shape.flatMap((size, dim) => (dims.includes(dim) ? (keepdim ? [1] : []) : [size]));
  return { x, values: toFloat32(call.backend, x), dims, keepdim, shape, outDtype };
}

/** Sums and means read vectors of 16 bytes; other reductions read vectors of 4 elements. */
const wideVectors = ({ dtype }: Value): Unrolling => ({ strided: 4, vector: dtype === "F32" ? 4 : 8 });

const vectorsOfFour = (): Unrolling => ({ strided: 4, vector: 4 });

/** A reduction whose accumulator is one number. */
interface NumberReduction {
  readonly identity: number;
  readonly add: (sum: number, input: number) => number;
  readonly combine: (a: number, b: number) => number;
  readonly unrolling: (x: Value) => Unrolling;
  /** Computes the result from the accumulator, the number of elements of the input, and the number of elements of the result. */
  readonly project: (sum: number, inputs: number, outputs: number) => number;
}

function reduceNumbers({ x, values, dims, keepdim, shape }: Reduction, rule: NumberReduction): Float32Array {
  const geometry = reductionGeometry(x.shape, dims, keepdim);
  const launch = reductionLaunch(geometry, rule.unrolling(x));
  const state = new NumberAccumulators(slotCount(launch), rule.identity, rule.add, rule.combine);
  const result = new Float32Array(elementCount(shape));
  reduceAll(state, launch, geometry, values, (slot, output) => {
    result[output] = rule.project(state.values[slot] as number, values.length, result.length);
  });
  return result;
}

/** The model of a reduction whose accumulator is one number. */
const numberReductionModel =
  (rule: NumberReduction): Model =>
  (call) => {
    const reduction = readReduction(call);
    const result = reduceNumbers(reduction, rule);
    return [roundedValue(call.backend, reduction.outDtype, reduction.shape, result)];
  };

const add = (a: number, b: number): number => a + b;

const SUM: NumberReduction = {
  identity: 0,
  add,
  combine: add,
  unrolling: wideVectors,
  project: (total) => total,
};

export const sum: Model = numberReductionModel(SUM);

/**
 * The sum multiplied by a factor. The factor is the number of outputs divided by the number of inputs. Both numbers and the
 * quotient are rounded to f32.
 */
export const mean: Model = numberReductionModel({
  ...SUM,
  project: (total, inputs, outputs) => total * Math.fround(Math.fround(outputs) / Math.fround(inputs)),
});

/** Returns b if the numbers are equal. So the sign of a zero maximum depends on the order. */
const greater = (a: number, b: number): number => (Number.isNaN(a) || a > b ? a : b);

const MAXIMUM: NumberReduction = {
  ...SUM,
  identity: -Infinity,
  add: greater,
  combine: greater,
  unrolling: vectorsOfFour,
};

export const amax: Model = numberReductionModel(MAXIMUM);

/** Norms by their order: the sum of magnitudes, and the root of the sum of squares. An fma adds each square. */
const NORMS: ReadonlyMap<number, NumberReduction> = new Map([
  [1, { ...SUM, unrolling: vectorsOfFour, add: (total, x) => total + Math.abs(x) }],
  [2, { ...SUM, unrolling: vectorsOfFour, add: (total, x) => fma(x, x, total), project: Math.sqrt }],
]);

/** The model of a norm. If each output has one input, the norm is the magnitude of the input. */
export const norm: Model = (call) => {
  const order = call.number("ord", 2);
  const rule = NORMS.get(order);
  if (rule === undefined) throw new NotModelled(`the norm of order ${order}`);
  const reduction = readReduction(call);
  const { values, shape, outDtype } = reduction;
  const isMagnitude = elementCount(shape) === values.length;
  const result = isMagnitude ? values.map(Math.abs) : reduceNumbers(reduction, rule);
  return [roundedValue(call.backend, outDtype, shape, result)];
};

/**
 * The variance and the mean by `WelfordAccumulators`, with two accumulators per thread. The variance is squares / max(n -
 * correction, 0).
 */
export const varianceAndMean: Model = (call) => {
  const { x, values, dims, keepdim, shape, outDtype } = readReduction(call);
  const correction = Math.fround(call.number("correction", 1));
  const geometry = reductionGeometry(x.shape, dims, keepdim);
  const launch = reductionLaunch(geometry, { strided: 2, vector: 2 });
  const state = new WelfordAccumulators(slotCount(launch));
  const [variances, means] = [new Float32Array(elementCount(shape)), new Float32Array(elementCount(shape))];
  reduceAll(state, launch, geometry, values, (slot, output) => {
    const divisor = Math.fround(Math.max((state.counts[slot] as number) - correction, 0));
    variances[output] = (state.squares[slot] as number) / divisor;
    means[output] = state.means[slot] as number;
  });
  return [variances, means].map((each) => roundedValue(call.backend, outDtype, shape, each));
};

/**
 * log(sum(exp(x - m))) + m, where m is the maximum, or 0 if the maximum is infinite (`logsumexp_out_impl` of
 * aten/src/ATen/native/ReduceOps.cpp). Each step is a separate operator, whose result is rounded to the dtype.
 */
export const logSumExp: Model = (call) => {
  const reduction = readReduction(call);
  const { backend } = call;
  const { x, values, shape, dims } = reduction;
  const round = (numbers: Float32Array) => roundThrough(backend, x.dtype, numbers);
  const maxima = reduceNumbers(reduction, MAXIMUM).map((each) => (Math.abs(each) === Infinity ? 0 : each));
  const keptShape = x.shape.map((size, dim) => (dims.includes(dim) ? 1 : size));
  const subtrahend = toFloat32(
    backend,
    broadcast({ dtype: "F32", shape: keptShape, bytes: asBytes(maxima) }, x.shape),
  );
  const differences = round(values.map((each, i) => each - (subtrahend[i] as number)));
  const powers = round(applyMath(backend, "expf", differences));
  const sums = round(reduceNumbers({ ...reduction, values: powers }, SUM));
  const logarithms = round(applyMath(backend, "logf", sums));
  const result = logarithms.map((each, i) => each + (maxima[i] as number));
  return [roundedValue(backend, x.dtype, shape, result)];
};

/** The first maximum or NaN of each row, and its index in the row. Rows must have elements. */
export function firstMaxima(
  values: Float32Array,
  rows: DimRows,
): { readonly maxima: Float32Array; readonly indices: BigInt64Array } {
  const { outer, size, inner } = rows;
  const maxima = new Float32Array(outer * inner);
  const indices = new BigInt64Array(outer * inner);
  for (let row = 0; row < maxima.length; row++) {
    const start = rowStart(rows, row);
    let maximum = values[start] as number;
    let index = 0;
    for (let k = 1; k < size && !Number.isNaN(maximum); k++) {
      const value = values[start + k * inner] as number;
      if (value > maximum || Number.isNaN(value)) [maximum, index] = [value, k];
    }
    maxima[row] = maximum;
    indices[row] = BigInt(index);
  }
  return { maxima, indices };
}

/** aten::max.dim: the first maximum along a dimension, or the first NaN, and its index. */
export const maximumAndIndex: Model = (call) => {
  const x = call.tensor("self");
  if (elementCount(x.shape) === 0) throw new NotModelled("no elements");
  const dim = call.dimension("dim", x.shape);
  const keepdim = call.boolean("keepdim", false) && x.shape.length > 0;
  const shape = [...x.shape.slice(0, dim), ...(keepdim ? [1] : []), ...x.shape.slice(dim + 1)];
  const { maxima, indices } = firstMaxima(toFloat32(call.backend, x), rowsAlong(x.shape, dim));
  return [
    roundedValue(call.backend, x.dtype, shape, maxima),
    { dtype: "I64", shape, bytes: asBytes(indices) },
  ];
};
