/** Models of operators that only move bytes: views, copies, selections. Their results do not depend on the chip. */
import { ArgumentError, ShapeError } from "../errors.js";
import { elementCount, type Shape } from "../tensor/shape.js";
import type { Call, Model } from "./call.js";
import { NotModelled } from "./not-modelled.js";
import {
  broadcast,
  copyElement,
  copyOfView,
  eachOf,
  itemSize,
  reshaped,
  stridesOf,
  type Value,
  type View,
  wholeView,
  withView,
  zeroValue,
} from "./value.js";

const self = (call: Call): Value => call.tensor("self");

export const copied: Model = (call) => [self(call)];

/** Returns the shape `sizes` of `count` elements. A size of -1 is inferred from the other sizes. */
function completeShape(sizes: readonly number[], count: number): Shape {
  const knownProduct = sizes.reduce((product, size) => (size === -1 ? product : product * size), 1);
  return sizes.map((size) => (size === -1 ? count / Math.max(knownProduct, 1) : size));
}

export const viewed: Model = (call) => {
  const x = self(call);
  if (call.get("dtype") !== undefined) throw new NotModelled("a view as another element type");
  return [reshaped(x, completeShape(call.integers("size"), elementCount(x.shape)))];
};

export const expanded: Model = (call) => {
  const x = self(call);
  const sizes = call.integers("size");
  const missingDims = sizes.length - x.shape.length;
  return [
    broadcast(
      x,
      sizes.map((size, dim) => (size === -1 ? (x.shape[dim - missingDims] ?? -1) : size)),
    ),
  ];
};

/** The model that copies `self` with its dimensions in another order. */
function permutation(order: (call: Call, rank: number) => readonly number[]): Model {
  return (call) => {
    const x = self(call);
    const { shape, strides, offset } = wholeView(x);
    const dims = order(call, shape.length);
    if (new Set(dims).size !== shape.length || !dims.every((dim) => shape[dim] !== undefined))
      throw new ShapeError(`dimensions ${dims} of [${shape}]`);
    const pick = (list: readonly number[]): readonly number[] => dims.map((dim) => list[dim] as number);
    return [copyOfView(x, { shape: pick(shape), strides: pick(strides), offset })];
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

export const reversedDims = permutation((_, rank) => {
  if (rank > 2) throw new ShapeError(`t takes at most two dimensions; there are ${rank}`);
  return Array.from({ length: rank }, (_, dim) => rank - 1 - dim);
});

export const unsqueeze: Model = (call) => {
  const x = self(call);
  const dim = call.integer("dim");
  const insertionDim = dim < 0 ? dim + x.shape.length + 1 : dim;
  if (insertionDim < 0 || insertionDim > x.shape.length)
    throw new ShapeError(`dimension ${dim} of [${x.shape}]`);
  return [reshaped(x, x.shape.toSpliced(insertionDim, 0, 1))];
};

export const squeeze: Model = (call) => {
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

/** The part [start, end) of a view along a dimension, with every `step`-th element. */
function part(view: View, dim: number, start: number, end: number, step = 1): View {
  const stride = view.strides[dim] as number;
  const size = Math.max(0, Math.ceil((end - start) / step));
  return {
    shape: view.shape.with(dim, size),
    strides: view.strides.with(dim, stride * step),
    offset: view.offset + start * stride,
  };
}

/** The elements [start, end) of `x` along a dimension. */
export function partOf(x: Value, dim: number, start: number, end: number): Value {
  return copyOfView(x, part(wholeView(x), dim, start, end));
}

/** Returns the bound of a slice, counted from the front and clamped to the dimension. */
function clamped(index: number, size: number): number {
  if (!Number.isInteger(index))
    throw new ArgumentError(`a slice has the bound ${index}; an integer is needed`);
  return Math.min(Math.max(index < 0 ? index + size : index, 0), size);
}

/** The view that slice.Tensor selects from a tensor of this shape. */
function sliceOf(call: Call, shape: Shape): View {
  const dim = call.dimension("dim", shape, 0);
  const size = shape[dim];
  const step = call.integer("step", 1);
  if (size === undefined || step < 1) throw new ShapeError(`a slice of [${shape}] in steps of ${step}`);
  // PyTorch passes 2^63 - 1 as the end of a slice without one
  const start = clamped(call.number("start", 0), size);
  const end = clamped(call.number("end", size), size);
  return part({ shape, strides: stridesOf(shape), offset: 0 }, dim, start, Math.max(start, end), step);
}

/** The view that select.int selects from a tensor of this shape: one index of a dimension. */
function selectOf(call: Call, shape: Shape): View {
  const dim = call.dimension("dim", shape);
  const size = shape[dim] ?? 0;
  const index = call.integer("index");
  const position = index < 0 ? index + size : index;
  if (!(position >= 0 && position < size))
    throw new ShapeError(`index ${index} of dimension ${dim} of [${shape}]`);
  const view = part({ shape, strides: stridesOf(shape), offset: 0 }, dim, position, position + 1);
  return { ...view, shape: view.shape.toSpliced(dim, 1), strides: view.strides.toSpliced(dim, 1) };
}

export const sliced: Model = (call) => [copyOfView(self(call), sliceOf(call, self(call).shape))];
export const selected: Model = (call) => [copyOfView(self(call), selectOf(call, self(call).shape))];

/** The model of the gradient of slice or select: zeros, with `grad_output` in the view that the forward operator selected. */
function backward(viewOf: (call: Call, shape: Shape) => View): Model {
  return (call) => {
    const grad = call.tensor("grad_output");
    const base = zeroValue(grad.dtype, call.integers("input_sizes"));
    const view = viewOf(call, base.shape);
    return [withView(base, view, reshaped(grad, view.shape))];
  };
}

export const sliceBackward = backward(sliceOf);
export const selectBackward = backward(selectOf);

/** Divides `self` along a dimension into parts of the sizes that `sizesOf` returns for the size of the dimension. */
function splitAlong(call: Call, sizesOf: (size: number) => readonly number[]): readonly Value[] {
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
  return sizes.map((length) => {
    start += length;
    return partOf(x, dim, start - length, start);
  });
}

export const split: Model = (call) =>
  splitAlong(call, (size) => {
    const splitSize = call.integer("split_size");
    if (splitSize < 1) throw new ArgumentError(`split_size is ${splitSize}; it must be at least 1`);
    const count = Math.min(Math.max(1, Math.ceil(size / splitSize)), 65_537);
    return Array.from({ length: count }, (_, i) => Math.min(splitSize, size - i * splitSize));
  });

export const splitWithSizes: Model = (call) => splitAlong(call, () => call.integers("split_sizes"));

export const unbound: Model = (call) => {
  const { shape } = self(call);
  const dim = call.dimension("dim", shape, 0);
  const slices = splitAlong(call, (size) => Array.from({ length: Math.min(size, 65_537) }, () => 1));
  return slices.map((each) => reshaped(each, each.shape.toSpliced(dim, 1)));
};

/** Concatenates values along a dimension. */
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
    eachOf(target, (index, to) => copyElement(value.bytes, index, out.bytes, to, size));
    start += length;
  }
  return out;
}

export const concatenated: Model = (call) => {
  const values = call.tensors("tensors");
  return [joined(values, call.dimension("dim", values[0]?.shape ?? [], 0))];
};

export const stack: Model = (call) => {
  const values = call.tensors("tensors");
  const dim = call.dimension("dim", [...(values[0]?.shape ?? []), 1], 0);
  return [
    joined(
      values.map((each) => reshaped(each, each.shape.toSpliced(dim, 0, 1))),
      dim,
    ),
  ];
};

/** Reverses the order of elements along some dimensions. */
export const flip: Model = (call) => {
  const x = self(call);
  let view = wholeView(x);
  for (const dim of call.integers("dims").map((each) => (each < 0 ? each + x.shape.length : each))) {
    const [size, stride] = [x.shape[dim], view.strides[dim]];
    if (size === undefined || stride === undefined) throw new ShapeError(`dimension ${dim} of [${x.shape}]`);
    const offset = view.offset + Math.max(size - 1, 0) * stride;
    view = { ...view, offset, strides: view.strides.with(dim, -stride) };
  }
  return [copyOfView(x, view)];
};
