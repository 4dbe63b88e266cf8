/** Models of operators that only move bytes: views, copies, selections. Their results do not depend on the chip. */
import { ArgumentError, ShapeError } from "../errors.js";
import { elementCount, type Shape } from "../tensor/shape.js";
import type { Call } from "./call.js";
import { NotModelled } from "./not-modelled.js";
import {
  broadcast,
  copyElement,
  eachOf,
  gathered,
  itemSize,
  reshaped,
  scattered,
  stridesOf,
  type Value,
  type View,
  wholeView,
  zeroValue,
} from "./value.js";

/** Computes the results of one call. Throws `NotModelled` for arguments that it has no rule for. */
export type Model = (call: Call) => readonly Value[];

const self = (call: Call): Value => call.tensor("self");

export const copied: Model = (call) => [self(call)];

/** The shape in which -1 stands for the size that is left. */
function completed(sizes: readonly number[], count: number): Shape {
  const rest = sizes.reduce((product, size) => (size === -1 ? product : product * size), 1);
  return sizes.map((size) => (size === -1 ? count / Math.max(rest, 1) : size));
}

export const viewed: Model = (call) => {
  const x = self(call);
  if (call.get("dtype") !== undefined) throw new NotModelled("a view as another element type");
  return [reshaped(x, completed(call.integers("size"), elementCount(x.shape)))];
};

export const expanded: Model = (call) => {
  const x = self(call);
  const sizes = call.integers("size");
  const missing = sizes.length - x.shape.length;
  return [
    broadcast(
      x,
      sizes.map((size, dim) => (size === -1 ? (x.shape[dim - missing] ?? -1) : size)),
    ),
  ];
};

/** A copy whose dimensions are those of `self` in another order. */
function permutation(order: (call: Call, rank: number) => readonly number[]): Model {
  return (call) => {
    const x = self(call);
    const { shape, strides, offset } = wholeView(x);
    const dims = order(call, shape.length);
    if (new Set(dims).size !== shape.length || !dims.every((dim) => shape[dim] !== undefined))
      throw new ShapeError(`dimensions ${dims} of [${shape}]`);
    const pick = (list: readonly number[]): readonly number[] => dims.map((dim) => list[dim] as number);
    return [gathered(x, { shape: pick(shape), strides: pick(strides), offset })];
  };
}

export const permuted = permutation((call, rank) =>
  call.integers("dims").map((dim) => (dim < 0 ? dim + rank : dim)),
);

export const exchanged = permutation((call, rank) => {
  const shape = self(call).shape;
  const [a, b] = [call.dimension("dim0", shape), call.dimension("dim1", shape)];
  return Array.from({ length: rank }, (_, dim) => (dim === a ? b : dim === b ? a : dim));
});

export const turned = permutation((_, rank) => {
  if (rank > 2) throw new ShapeError(`t takes at most two dimensions; there are ${rank}`);
  return Array.from({ length: rank }, (_, dim) => rank - 1 - dim);
});

export const unsqueezed: Model = (call) => {
  const x = self(call);
  const dim = call.integer("dim");
  const at = dim < 0 ? dim + x.shape.length + 1 : dim;
  if (at < 0 || at > x.shape.length) throw new ShapeError(`dimension ${dim} of [${x.shape}]`);
  return [reshaped(x, x.shape.toSpliced(at, 0, 1))];
};

export const squeezed: Model = (call) => {
  const x = self(call);
  const dim = call.get("dim");
  const list =
    dim === undefined
      ? x.shape.map((_, i) => i)
      : Array.isArray(dim)
        ? call.integers("dim")
        : [call.integer("dim")];
  const dims = new Set(list.map((each) => (each < 0 ? each + x.shape.length : each)));
  return [
    reshaped(
      x,
      x.shape.filter((size, i) => size !== 1 || !dims.has(i)),
    ),
  ];
};

/** The part [start, end) of a view along a dimension, every `step` elements. */
function part(view: View, dim: number, start: number, end: number, step = 1): View {
  const stride = view.strides[dim] as number;
  const size = Math.max(0, Math.ceil((end - start) / step));
  return {
    shape: view.shape.with(dim, size),
    strides: view.strides.with(dim, stride * step),
    offset: view.offset + start * stride,
  };
}

/** The index of a slice counted from the front, and within the dimension. */
function clamped(index: number, size: number): number {
  if (!Number.isInteger(index)) throw new ArgumentError(`a slice ends at ${index}; an integer is needed`);
  return Math.min(Math.max(index < 0 ? index + size : index, 0), size);
}

/** The view that slice.Tensor and slice_backward select from a tensor of that shape. */
function sliceOf(call: Call, shape: Shape): View {
  const dim = call.dimension("dim", shape, 0);
  const size = shape[dim];
  const step = call.integer("step", 1);
  if (size === undefined || step < 1) throw new ShapeError(`a slice of [${shape}] in steps of ${step}`);
  // PyTorch's end is the largest integer of 64 bits if there is none
  const start = clamped(call.number("start", 0), size);
  const end = clamped(call.number("end", size), size);
  return part({ shape, strides: stridesOf(shape), offset: 0 }, dim, start, Math.max(start, end), step);
}

/** The view that select.int and select_backward select from a tensor of that shape: one index of a dimension. */
function selectOf(call: Call, shape: Shape): View {
  const dim = call.dimension("dim", shape);
  const size = shape[dim] ?? 0;
  const index = call.integer("index");
  const front = index < 0 ? index + size : index;
  if (!(front >= 0 && front < size)) throw new ShapeError(`index ${index} of dimension ${dim} of [${shape}]`);
  const view = part({ shape, strides: stridesOf(shape), offset: 0 }, dim, front, front + 1);
  return { ...view, shape: view.shape.toSpliced(dim, 1), strides: view.strides.toSpliced(dim, 1) };
}

export const sliced: Model = (call) => [gathered(self(call), sliceOf(call, self(call).shape))];
export const selected: Model = (call) => [gathered(self(call), selectOf(call, self(call).shape))];

/** Zeros in which the gradient is where the forward operator selected. */
function backward(viewOf: (call: Call, shape: Shape) => View): Model {
  return (call) => {
    const grad = call.tensor("grad_output");
    const base = zeroValue(grad.dtype, call.integers("input_sizes"));
    const view = viewOf(call, base.shape);
    return [scattered(base, view, reshaped(grad, view.shape))];
  };
}

export const sliceBackward = backward(sliceOf);
export const selectBackward = backward(selectOf);

/** The parts of a tensor along a dimension, each of the given sizes. */
function parts(call: Call, sizesOf: (size: number) => readonly number[]): readonly Value[] {
  const x = self(call);
  const dim = call.dimension("dim", x.shape, 0);
  const size = x.shape[dim] ?? 0;
  const sizes = sizesOf(size);
  if (
    sizes.length > 65_536 ||
    sizes.reduce((sum, each) => sum + each, 0) !== size ||
    sizes.some((each) => each < 0)
  )
    throw new ShapeError(`parts of ${sizes.slice(0, 8)} of dimension ${dim} of [${x.shape}]`);
  let start = 0;
  return sizes.map((each) => {
    const view = part(wholeView(x), dim, start, start + each);
    start += each;
    return gathered(x, view);
  });
}

export const split: Model = (call) =>
  parts(call, (size) => {
    const each = call.integer("split_size");
    if (each < 1) throw new ArgumentError(`split_size is ${each}; it must be at least 1`);
    const count = Math.min(Math.max(1, Math.ceil(size / each)), 65_537);
    return Array.from({ length: count }, (_, i) => Math.min(each, size - i * each));
  });

export const splitWithSizes: Model = (call) => parts(call, () => call.integers("split_sizes"));

export const unbound: Model = (call) => {
  const { shape } = self(call);
  const dim = call.dimension("dim", shape, 0);
  const all = parts(call, (size) => Array.from({ length: Math.min(size, 65_537) }, () => 1));
  return all.map((each) => reshaped(each, each.shape.toSpliced(dim, 1)));
};

/** The values one after the other along a dimension. */
function joined(values: readonly Value[], dim: number): Value {
  const [first] = values;
  if (!first) throw new ArgumentError("an empty list of tensors");
  const likeFirst = ({ dtype, shape }: Value): boolean =>
    shape.length === first.shape.length &&
    shape.every((size, i) => i === dim || size === first.shape[i]) &&
    dtype === first.dtype;
  if (!values.every(likeFirst)) throw new NotModelled("tensors of different dtypes or ranks");
  const total = values.reduce((sum, { shape }) => sum + (shape[dim] ?? 0), 0);
  const out = zeroValue(first.dtype, first.shape.with(dim, total));
  let start = 0;
  const size = itemSize(first.dtype);
  for (const value of values) {
    const length = value.shape[dim] ?? 0;
    const target = part(wholeView(out), dim, start, start + length);
    eachOf(target, (index, place) => copyElement(value.bytes, index, out.bytes, place, size));
    start += length;
  }
  return out;
}

export const concatenated: Model = (call) => {
  const values = call.tensors("tensors");
  return [joined(values, call.dimension("dim", values[0]?.shape ?? [], 0))];
};

export const stacked: Model = (call) => {
  const values = call.tensors("tensors");
  const dim = call.dimension("dim", [...(values[0]?.shape ?? []), 1], 0);
  return [
    joined(
      values.map((each) => reshaped(each, each.shape.toSpliced(dim, 0, 1))),
      dim,
    ),
  ];
};

/** The elements along some dimensions in the other order. */
export const flipped: Model = (call) => {
  const x = self(call);
  let view = wholeView(x);
  for (const dim of call.integers("dims").map((each) => (each < 0 ? each + x.shape.length : each))) {
    const [size, stride] = [x.shape[dim], view.strides[dim]];
    if (size === undefined || stride === undefined) throw new ShapeError(`dimension ${dim} of [${x.shape}]`);
    const offset = view.offset + Math.max(size - 1, 0) * stride;
    view = { ...view, offset, strides: view.strides.with(dim, -stride) };
  }
  return [gathered(x, view)];
};
