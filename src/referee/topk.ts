/** The model of topk: the selected elements, and the order of equal elements (TensorTopK.cu, SortUtils.cuh). */
import { ShapeError } from "../errors.js";
import { asBytes } from "../tensor/data.js";
import { elementCount } from "../tensor/shape.js";
import type { Call, Model } from "./call.js";
import { roundedValue, toFloat32 } from "./conversions.js";
import { toBits } from "./float32.js";
import { NotModelled } from "./not-modelled.js";
import { rowStart, rowsAlong } from "./value.js";

interface Element {
  readonly value: number;
  readonly index: number;
}

/** The number of elements that the sort of short lists sorts, and the maximum k for which PyTorch uses that sort. */
const SORT_LENGTH = 32;

/** The order of the selection as an integer: -0 is less than +0, and NaN is the largest. */
function sortKey(value: number): number {
  if (Number.isNaN(value)) return 2 ** 31;
  const bits = toBits(value);
  return bits < 0 ? -(bits & 0x7fffffff) - 1 : bits;
}

/** Whether the sort puts `a` before `b`. NaN is the largest value. */
function precedes(a: Element, b: Element): boolean {
  return (Number.isNaN(a.value) && !Number.isNaN(b.value)) || a.value > b.value;
}

/**
 * The k largest elements. First come the elements above the k-th largest element, by index, then the elements that equal it, by
 * index.
 */
function selectLargest(elements: readonly Element[], k: number): Element[] {
  const threshold = elements.map(({ value }) => sortKey(value)).toSorted((a, b) => b - a)[k - 1] as number;
  const larger = elements.filter(({ value }) => sortKey(value) > threshold);
  const equal = elements.filter(({ value }) => sortKey(value) === threshold);
  return [...larger, ...equal].slice(0, k);
}

/** Exchanges a pair of a bitonic sort unless it is in order. Equal elements are exchanged if the order is descending. */
function sortPair(
  list: (Element | undefined)[],
  firstIndex: number,
  secondIndex: number,
  isAscending: boolean,
): void {
  const [a, b] = [list[firstIndex], list[secondIndex]];
  const isSorted = b === undefined || (a !== undefined && precedes(a, b));
  if (isSorted === isAscending) [list[firstIndex], list[secondIndex]] = [b, a];
}

/** The bitonic sort of up to 32 elements in descending order. It is not stable. */
function bitonicSort(elements: readonly Element[]): readonly Element[] {
  const list = Array.from({ length: SORT_LENGTH }, (_, i) => elements[i]);
  for (let size = 2; size <= SORT_LENGTH; size *= 2)
    for (let stride = size / 2; stride >= 1; stride /= 2)
      for (let thread = 0; thread < SORT_LENGTH / 2; thread++) {
        const firstIndex = 2 * thread - (thread & (stride - 1));
        sortPair(list, firstIndex, firstIndex + stride, size < SORT_LENGTH && (thread & (size / 2)) !== 0);
      }
  return list.filter((each) => each !== undefined);
}

/** The largest k elements along a dimension, in descending order, and their indices. */
export const topk: Model = (call) => {
  const x = call.tensor("self");
  const dim = call.dimension("dim", x.shape, -1);
  call.requireDefault("largest", true);
  call.requireDefault("sorted", true);
  const [k, rows] = [call.integer("k"), rowsAlong(x.shape, dim)];
  if (!(k >= 0 && k <= rows.size)) throw new ShapeError(`topk of ${k} of ${rows.size} elements`);
  if (k > SORT_LENGTH) throw new NotModelled(`topk of ${k} elements, which PyTorch sorts otherwise`);
  const shape = x.shape.length === 0 ? [] : x.shape.with(dim, k);
  const input = toFloat32(call.backend, x);
  const values = new Float32Array(elementCount(shape));
  const indices = new BigInt64Array(values.length);
  if (k > 0)
    for (let row = 0; row < rows.outer * rows.inner; row++) {
      const start = rowStart(rows, row);
      const elements = Array.from({ length: rows.size }, (_, index) => ({
        value: input[start + index * rows.inner] as number,
        index,
      }));
      const target = rowStart({ ...rows, size: k }, row);
      for (const [i, { value, index }] of bitonicSort(selectLargest(elements, k)).entries()) {
        values[target + i * rows.inner] = value;
        indices[target + i * rows.inner] = BigInt(index);
      }
    }
  return [
    roundedValue(call.backend, x.dtype, shape, values),
    { dtype: "I64", shape, bytes: asBytes(indices) },
  ];
};

/** Whether rows and k are at most as large as in the recorded calls. PyTorch has other kernels for longer rows. */
export const isComparedTopk = (call: Call): boolean => {
  const { shape } = call.tensor("self");
  return (shape[call.dimension("dim", shape, -1)] ?? 1) <= 100 && call.integer("k") <= 5;
};
