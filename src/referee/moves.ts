/** Models of operators that only move bytes: views, copies, selections. Their results do not depend on the chip. */
import { ArgumentError, ShapeError } from "../errors.js";
import { elementCount, type Shape } from "../tensor/shape.js";
import type { Call, Model } from "./call.js";
import { NotModelled } from "./not-modelled.js";
import {
  broadcast,
  copyElement,
  copyView,
  forEachElement,
  fullView,
  itemSize,
  replaceView,
  reshape,
  stridesOf,
  type Value,
  type View,
  zeroValue,
} from "./value.js";

const self = (call: Call): Value => call.tensor("self");

export const copy: Model = (call) => [self(call)];

/** Returns the shape `sizes` of `count` elements. A size of -1 is inferred from the other sizes. */
function completeShape(sizes: readonly number[], count: number): Shape {
  const knownProduct = sizes.reduce((product, size) => (size === -1 ? product : product * size), 1);
  return sizes.map((size) => (size === -1 ? count / Math.max(knownProduct, 1) : size));
}

/** The model of the elements of `self` in the shape that an argument gives. */
export function viewModel(shape: string): Model {
  return (call) => {
    const x = self(call);
    if (call.get("dtype") !== undefined) throw new NotModelled("a view as another element type");
    return [reshape(x, completeShape(call.integers(shape), elementCount(x.shape)))];
  };
}

/** Copies of `self` side by side along each dimension, as many as `repeats` says. Missing dimensions of `self` have size 1. */
export const repeat: Model = (call) => {
  const x = self(call);
  const repeats = call.integers("repeats");
  if (repeats.length < x.shape.length || repeats.some((count) => count < 0))
    throw new ShapeError(`[${x.shape}] repeated ${repeats} times`);
  const sizes = [...repeats.slice(x.shape.length).map(() => 1), ...x.shape];
  const spaced = sizes.flatMap((size) => [1, size]);
  const copies = sizes.flatMap((size, dim) => [repeats[dim] as number, size]);
  return [
    reshape(
      broadcast(reshape(x, spaced), copies),
      sizes.map((size, dim) => size * (repeats[dim] as number)),
    ),
  ];
};

export const expand: Model = (call) => {
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
function permutationModel(order: (call: Call, rank: number) => readonly number[]): Model {
  return (call) => {
    const x = self(call);
    const { shape, strides, offset } = fullView(x);
    const dims = order(call, shape.length);
    if (new Set(dims).size !== shape.length || !dims.every((dim) => shape[dim] !== undefined))
      throw new ShapeError(`dimensions ${dims} of [${shape}]`);
    const reorder = (list: readonly number[]): readonly number[] => dims.map((dim) => list[dim] as number);
    return [copyView(x, { shape: reorder(shape), strides: reorder(strides), offset })];
  };
}

export const permute = permutationModel((call, rank) =>
  call.integers("dims").map((dim) => (dim < 0 ? dim + rank : dim)),
);

export const transpose = permutationModel((call, rank) => {
  const shape = self(call).shape;
  const [a, b] = [call.dimension("dim0", shape), call.dimension("dim1", shape)];
  return Array.from({ length: rank }, (_, dim) => (dim === a ? b : dim === b ? a : dim));
});

export const reverseDims = permutationModel((_, rank) => {
  if (rank > 2) throw new ShapeError(`t takes at most two dimensions; there are ${rank}`);
  return Array.from({ length: rank }, (_, dim) => rank - 1 - dim);
});

export const unsqueeze: Model = (call) => {
  const x = self(call);
  const dim = call.integer("dim");
  const insertionDim = dim < 0 ? dim + x.shape.length + 1 : dim;
  if (insertionDim < 0 || insertionDim > x.shape.length)
    throw new ShapeError(`dimension ${dim} of [${x.shape}]`);
  return [reshape(x, x.shape.toSpliced(insertionDim, 0, 1))];
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
    reshape(
      x,
      x.shape.filter((size, i) => size !== 1 || !dims.has(i)),
    ),
  ];
};

/** The part [start, end) of a view along a dimension, with every `step`-th element. */
function narrowView(view: View, dim: number, start: number, end: number, step = 1): View {
  const stride = view.strides[dim] as number;
  const size = Math.max(0, Math.ceil((end - start) / step));
  return {
    shape: view.shape.with(dim, size),
    strides: view.strides.with(dim, stride * step),
    offset: view.offset + start * stride,
  };
}

/** The elements [start, end) of `x` along a dimension. */
export function narrow(x: Value, dim: number, start: number, end: number): Value {
  return copyView(x, narrowView(fullView(x), dim, start, end));
}

/** Returns the bound of a slice, counted from the front and clamped to the dimension. */
function clampBound(index: number, size: number): number {
  if (!Number.isInteger(index))
    throw new ArgumentError(`a slice has the bound ${index}; an integer is needed`);
  return Math.min(Math.max(index < 0 ? index + size : index, 0), size);
}

/** The view that slice.Tensor selects from a tensor of this shape. */
function sliceView(call: Call, shape: Shape): View {
  const dim = call.dimension("dim", shape, 0);
  const size = shape[dim];
  const step = call.integer("step", 1);
  if (size === undefined || step < 1) throw new ShapeError(`a slice of [${shape}] in steps of ${step}`);
  // PyTorch passes 2^63 - 1 as the end of a slice without one
  const start = clampBound(call.number("start", 0), size);
  const end = clampBound(call.number("end", size), size);
  return narrowView({ shape, strides: stridesOf(shape), offset: 0 }, dim, start, Math.max(start, end), step);
}

/** The view that select.int selects from a tensor of this shape: one index of a dimension. */
function selectView(call: Call, shape: Shape): View {
  const dim = call.dimension("dim", shape);
  const size = shape[dim] ?? 0;
  const index = call.integer("index");
  const position = index < 0 ? index + size : index;
  if (!(position >= 0 && position < size))
    throw new ShapeError(`index ${index} of dimension ${dim} of [${shape}]`);
  const view = narrowView({ shape, strides: stridesOf(shape), offset: 0 }, dim, position, position + 1);
  return { ...view, shape: view.shape.toSpliced(dim, 1), strides: view.strides.toSpliced(dim, 1) };
}

export const slice: Model = (call) => [copyView(self(call), sliceView(call, self(call).shape))];
export const select: Model = (call) => [copyView(self(call), selectView(call, self(call).shape))];

/** The model of the gradient of slice or select: zeros, with `grad_output` in the view that the forward operator selected. */
function backwardModel(forwardView: (call: Call, shape: Shape) => View): Model {
  return (call) => {
    const grad = call.tensor("grad_output");
    const base = zeroValue(grad.dtype, call.integers("input_sizes"));
    const view = forwardView(call, base.shape);
    return [replaceView(base, view, reshape(grad, view.shape))];
  };
}

export const sliceBackward = backwardModel(sliceView);
export const selectBackward = backwardModel(selectView);

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
    return narrow(x, dim, start - length, start);
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

export const unbind: Model = (call) => {
  const { shape } = self(call);
  const dim = call.dimension("dim", shape, 0);
  const slices = splitAlong(call, (size) => Array.from({ length: Math.min(size, 65_537) }, () => 1));
  return slices.map((each) => reshape(each, each.shape.toSpliced(dim, 1)));
};

/** Concatenates values along a dimension. */
function concatenateAlong(values: readonly Value[], dim: number): Value {
  const [first] = values;
  if (!first) throw new ArgumentError("an empty list of tensors");
  const matchesFirst = ({ dtype, shape }: Value): boolean =>
    shape.length === first.shape.length &&
    shape.every((size, i) => i === dim || size === first.shape[i]) &&
    dtype === first.dtype;
  if (!values.every(matchesFirst)) throw new NotModelled("tensors of different dtypes or ranks");
  const total = values.reduce((sum, { shape }) => sum + (shape[dim] ?? 0), 0);
  const out = zeroValue(first.dtype, first.shape.with(dim, total));
  let start = 0;
  const size = itemSize(first.dtype);
  for (const value of values) {
    const length = value.shape[dim] ?? 0;
    const target = narrowView(fullView(out), dim, start, start + length);
    forEachElement(target, (index, targetIndex) =>
      copyElement(value.bytes, index, out.bytes, targetIndex, size),
    );
    start += length;
  }
  return out;
}

export const concatenate: Model = (call) => {
  const values = call.tensors("tensors");
  return [concatenateAlong(values, call.dimension("dim", values[0]?.shape ?? [], 0))];
};

export const stack: Model = (call) => {
  const values = call.tensors("tensors");
  const dim = call.dimension("dim", [...(values[0]?.shape ?? []), 1], 0);
  return [
    concatenateAlong(
      values.map((value) => reshape(value, value.shape.toSpliced(dim, 0, 1))),
      dim,
    ),
  ];
};

/** Reverses the order of elements along some dimensions. */
export const flip: Model = (call) => {
  const x = self(call);
  let view = fullView(x);
  for (const dim of call
    .integers("dims")
    .map((integer) => (integer < 0 ? integer + x.shape.length : integer))) {
    const [size, stride] = [x.shape[dim], view.strides[dim]];
    if (size === undefined || stride === undefined) throw new ShapeError(`dimension ${dim} of [${x.shape}]`);
    const offset = view.offset + Math.max(size - 1, 0) * stride;
    view = { ...view, offset, strides: view.strides.with(dim, -stride) };
  }
  return [copyView(x, view)];
};
