/** Models of `_foreach_` operators on lists of tensors. */
import { ShapeError } from "../errors.js";
import { sameShape } from "../tensor/shape.js";
import { addcFormula, lerpFormula } from "./arithmetic.js";
import { blockSum } from "./block-sums.js";
import type { Call, Model } from "./call.js";
import { roundedValue, toFloat32 } from "./conversions.js";
import { applyMath, fma } from "./float32.js";
import { NotModelled } from "./not-modelled.js";
import { computeValue, type Formula, mapElements } from "./pointwise.js";
import type { Value } from "./value.js";

const { abs, fround } = Math;

/**
 * The lists of tensors with these names. All lists must have the same length. Throws `NotModelled` unless all tensors have one
 * dtype and tensors with the same index have one shape: otherwise PyTorch calls another operator for each tensor.
 */
export function readLists(call: Call, names: readonly string[]): readonly (readonly Value[])[] {
  const lists = names.map((name) => call.tensors(name));
  const [first, ...otherLists] = lists as [readonly Value[], ...(readonly Value[])[]];
  for (const list of otherLists)
    if (list.length !== first.length)
      throw new ShapeError(`lists of ${first.length} and ${list.length} tensors`);
  for (const list of lists)
    for (const [i, { dtype, shape }] of list.entries())
      if (dtype !== first[0]?.dtype || !sameShape(shape, (first[i] as Value).shape))
        throw new NotModelled(`lists with ${dtype} [${shape}] and other dtypes or shapes`);
  return lists;
}

/** The scalar for each index, rounded to f32. The argument is a number, a list of numbers, or a tensor without dimensions. */
function readScalars(call: Call, name: string, count: number): readonly number[] {
  const argument = call.get(name);
  if (Array.isArray(argument)) {
    if (argument.length !== count) throw new ShapeError(`${argument.length} scalars of ${count} tensors`);
    return argument.map((element) => {
      if (typeof element !== "number") throw new NotModelled(`${name} is no list of numbers`);
      return fround(element);
    });
  }
  const operand = argument === undefined ? 1 : call.operand(name);
  if (typeof operand === "number") return new Array<number>(count).fill(fround(operand));
  if (operand.shape.length > 0) throw new NotModelled(`${name} is a tensor [${operand.shape}]`);
  if (operand.dtype !== call.tensors("self")[0]?.dtype) throw new NotModelled(`${name} is ${operand.dtype}`);
  return new Array<number>(count).fill(toFloat32(call.backend, operand)[0] as number);
}

/** Returns the formula for the tensors with one index. `scalar` is the scalar with this index. */
type ScalarFormula = (scalar: number, alpha: number) => Formula;

/**
 * The model that applies a formula to the tensors with the same index. Results are rounded once to the dtype
 * (ForeachFunctors.cuh).
 */
export function listModel(lists: string, formula: ScalarFormula, scalar?: string): Model {
  const names = lists.split(" ");
  return (call) => {
    const tensors = readLists(call, names);
    const count = (tensors[0] as readonly Value[]).length;
    const scalars = scalar === undefined ? undefined : readScalars(call, scalar, count);
    const alpha = fround(call.number("alpha", 1));
    return Array.from({ length: count }, (_, i) => {
      const values = tensors.map((list) => list[i] as Value) as [Value, ...Value[]];
      const element = formula(scalars?.[i] ?? 1, alpha);
      return computeValue(call, values, (...floats) => mapElements(element, ...floats))[0] as Value;
    });
  };
}

/** sqrtf of each element, rounded once to the dtype. */
export const squareRoots: Model = (call) =>
  (readLists(call, ["self"])[0] as readonly Value[]).flatMap((x) =>
    computeValue(call, [x], (values) => applyMath(call.backend, "sqrtf", values)),
  );

export const listLerp: ScalarFormula = (weight) => (x, end) => lerpFormula(x, end, weight);
export const listAddcmul: ScalarFormula = (value) => addcFormula("product", value);
export const listAddcdiv: ScalarFormula = (value) => addcFormula("quotient", value);

/** The number of elements that a block sums. */
const CHUNK = 65_536;
const THREADS = 512;
/** The number of partial sums of a thread, and the number of elements of a vector. */
const VECTOR = 4;

/**
 * The sum of a chunk. Each thread has four sums. If the number of elements from `start` to the end of the tensor is a multiple of
 * 4, a thread loads four consecutive elements, one for each sum; otherwise it loads four elements that are 512 apart. Then it
 * adds its four sums in order, and `blockSum` adds the sums of the threads.
 */
function chunkSum(values: Float32Array, start: number, add: (sum: number, value: number) => number): number {
  const end = Math.min(start + CHUNK, values.length);
  const isVectorized = (values.length - start) % VECTOR === 0;
  const partial = new Float32Array(THREADS * VECTOR);
  for (let i = start; i < end; i++) {
    const offset = (i - start) % (THREADS * VECTOR);
    const slot = isVectorized ? offset : (offset % THREADS) * VECTOR + Math.floor(offset / THREADS);
    partial[slot] = add(partial[slot] as number, values[i] as number);
  }
  const sums = new Float32Array(THREADS);
  for (const [i, value] of partial.entries()) {
    const thread = Math.floor(i / VECTOR);
    sums[thread] = (sums[thread] as number) + value;
  }
  return blockSum(sums);
}

/**
 * The norm of each tensor in f32 (foreach_reduce.cuh). `chunkSum` adds the magnitudes of each chunk, or the squares, each by one
 * fma. Another block adds the sums of the chunks: thread t adds the sums of chunks t, t + 512, … in order, then `blockSum`. The
 * model assumes that the first element of each tensor is aligned to four elements.
 */
export const norms: Model = (call) => {
  const order = call.number("ord", 2);
  if (order !== 1 && order !== 2) throw new NotModelled(`the norm of order ${order}`);
  const add =
    order === 2
      ? (sum: number, value: number) => fma(value, value, sum)
      : (sum: number, value: number) => sum + abs(value);
  return (readLists(call, ["self"])[0] as readonly Value[]).map((x) => {
    call.requireDefault("dtype", null);
    const values = toFloat32(call.backend, x);
    const sums = new Float32Array(THREADS);
    for (let chunk = 0; chunk * CHUNK < values.length; chunk++)
      sums[chunk % THREADS] = (sums[chunk % THREADS] as number) + chunkSum(values, chunk * CHUNK, add);
    const sum = Float32Array.of(blockSum(sums));
    return roundedValue(call.backend, x.dtype, [], order === 2 ? applyMath(call.backend, "sqrtf", sum) : sum);
  });
};
