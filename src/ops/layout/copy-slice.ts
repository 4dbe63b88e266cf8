/** Operations that copy ranges of a dimension: slices, concatenations and expansions. */
import { ArgumentError, DTypeError, ShapeError } from "../../errors.js";
import { describe, ownList } from "../../options.js";
import { requireTensor } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import {
  around,
  dimensionOf,
  ownShape,
  type Shape,
  sameShape,
  storageBits,
  withSize,
} from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { zeros } from "../create.js";
import { commonBackend, compute, execute } from "../execute.js";

/**
 * Returns a copy of the slices `start` to `end` - 1 of dimension `dim` of x, as `narrow` of PyTorch does. Negative values of all
 * three count from the end. The default of `end` is the size of the dimension. All dtypes of at least 8 bits are allowed.
 *
 * @throws `DTypeError` for FP4, whose codes share bytes, and for an argument that is not a tensor, `ArgumentError` for a
 * dimension that x does not have, and for a range that is not within the dimension, `DisposedError` for a disposed tensor.
 */
export function slice<X extends Tensor>(
  x: X,
  dim: number,
  start: number,
  end?: number | undefined,
): Tensor<X["dtype"]> {
  const { backend, shape } = requireBytes("slice", "x", x);
  const axis = dimensionOf("slice", "dim", shape, dim);
  const range = rangeOf("slice", "x", shape, axis, start, end);
  const { outer, length, inner } = around(shape, axis);
  const count = range.end - range.start;
  const out = new Tensor(backend, x.dtype, withSize(shape, axis, count));
  const sizes = { xLength: length, xFirst: range.start, outLength: count, outFirst: 0, count, outer, inner };
  return compute("copySlice", { x, ...sizes, out });
}

/**
 * Returns a tensor of shape `shape` that is 0 except for its slices `start` to `start` + n - 1 of dimension `dim`, which are
 * copied from x. This is the gradient of `slice`.
 *
 * @shared
 */
export function placeSlice<X extends Tensor>(
  x: X,
  shape: Shape,
  dim: number,
  start: number,
): Tensor<X["dtype"]> {
  const { outer, length, inner } = around(shape, dim);
  const count = x.shape[dim] as number;
  using scope = new Scope();
  const out = zeros(x.backend, x.dtype, shape);
  if (count > 0)
    execute(x.backend, "copySlice", {
      ...{ x, xLength: count, xFirst: 0, count },
      ...{ out, outLength: length, outFirst: start, outer, inner },
    });
  return scope.keep(out);
}

/**
 * Returns the tensors one after the other along dimension `dim`, as `cat` of PyTorch does. They have one dtype of at least 8
 * bits, and the same sizes in all other dimensions. A negative `dim` counts from the end.
 *
 * @throws `DTypeError` for tensors of different dtypes, for FP4, whose codes share bytes, and for an element that is not a
 * tensor, `ShapeError` for tensors whose other dimensions differ, `ArgumentError` for an empty list, a dimension that they do not
 * have and tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function concatenate<X extends Tensor>(tensors: readonly X[], dim = 0): Tensor<X["dtype"]> {
  const [first, ...others] = listOfTensors(tensors);
  const axis = dimensionOf("concatenate", "dim", first.shape, dim);
  for (const [i, each] of others.entries()) requireLike(`tensors[${i + 1}]`, each, first, axis);
  const backend = commonBackend("concatenate", first, ...others);
  const all = [first, ...others];
  const total = all.reduce((sum, { shape }) => sum + (shape[axis] as number), 0);
  using scope = new Scope();
  const out = new Tensor(backend, first.dtype as X["dtype"], withSize(first.shape, axis, total));
  let outFirst = 0;
  for (const x of all) {
    const { outer, length, inner } = around(x.shape, axis);
    const sizes = { xLength: length, xFirst: 0, outLength: total, outFirst, count: length, outer, inner };
    if (x.size > 0) execute(backend, "copySlice", { x, ...sizes, out });
    outFirst += length;
  }
  return scope.keep(out);
}

/**
 * Returns x with the shape `shape`, in which dimensions of size 1 are repeated, as a copy. Shapes are aligned at their last
 * dimensions, as in broadcasting of PyTorch: `shape` may have further dimensions in front.
 *
 * @throws `DTypeError` for FP4, whose codes share bytes, and for an argument that is not a tensor, `ShapeError` for a shape to
 * which the shape of x cannot be expanded, `DisposedError` for a disposed tensor.
 */
export function expand<X extends Tensor>(x: X, shape: Shape): Tensor<X["dtype"]> {
  const source = requireBytes("expand", "x", x);
  const target = ownShape(shape);
  requireExpandable(source.shape, target);
  using scope = new Scope();
  let result: Tensor<X["dtype"]> = x.reshape([...target.slice(x.shape.length).map(() => 1), ...x.shape]);
  // the last dimensions first: the fewest bytes are copied in short runs
  for (let axis = target.length - 1; axis >= 0; axis--) {
    const count = target[axis] as number;
    if (result.shape[axis] === count) continue;
    const { outer, inner } = around(result.shape, axis);
    const out = new Tensor(x.backend, x.dtype as X["dtype"], withSize(result.shape, axis, count));
    const sizes = { xLength: 1, xFirst: 0, outLength: count, outFirst: 0, count, outer, inner };
    execute(x.backend, "copySlice", { x: result, ...sizes, out });
    result = out;
  }
  return scope.keep(sameShape(x.shape, target) ? result.clone() : result);
}

/** Throws `DTypeError` unless x is a tensor whose elements are whole bytes. */
function requireBytes(op: string, name: string, x: Tensor): Tensor {
  const tensor = requireTensor(op, name, x);
  if (storageBits(tensor.dtype) < 8)
    throw new DTypeError(`${op}: ${name} is ${tensor.dtype}, whose codes share bytes; dequantize it`);
  return tensor;
}

/**
 * Returns the range with both ends counted from the front. Throws `ArgumentError` for one that is not within the dimension.
 *
 * @shared
 */
export function rangeOf(
  op: string,
  tensorName: string,
  shape: Shape,
  axis: number,
  start: number,
  end: number | undefined,
): { readonly start: number; readonly end: number } {
  const size = shape[axis] as number;
  const fromFront = (name: string, index: number): number => {
    const front = Number.isInteger(index) && index < 0 ? index + size : index;
    if (Number.isInteger(front) && front >= 0 && front <= size) return front + 0;
    throw new ArgumentError(
      `${op}: ${name} is ${describe(index)}; dimension ${axis} of ${tensorName} [${shape}] has ${size} slices; give an integer from ${-size} to ${size}`,
    );
  };
  const range = { start: fromFront("start", start), end: end === undefined ? size : fromFront("end", end) };
  if (range.start <= range.end) return range;
  throw new ArgumentError(
    `${op}: start ${start} is after end ${end}; a slice has an end at or after its start`,
  );
}

/** Returns the tensors. Throws unless they are an array of at least one tensor with whole bytes. */
function listOfTensors<X extends Tensor>(tensors: readonly X[]): readonly [X, ...X[]] {
  const list = ownList(
    "concatenate",
    "tensors",
    tensors,
    (each, i) => {
      requireBytes("concatenate", `tensors[${i}]`, each as Tensor);
      return each as X;
    },
    "an array of tensors",
  );
  const [first, ...others] = list;
  if (first === undefined)
    throw new ArgumentError("concatenate: tensors is an empty array; give at least one tensor");
  return [first, ...others];
}

function requireLike(name: string, x: Tensor, first: Tensor, axis: number): void {
  if (x.dtype !== first.dtype)
    throw new DTypeError(
      `concatenate: ${name} is ${x.dtype} and the first ${first.dtype}; convert one of them`,
    );
  if (
    x.shape.length === first.shape.length &&
    sameShape(withSize(x.shape, axis, 0), withSize(first.shape, axis, 0))
  )
    return;
  throw new ShapeError(
    `concatenate: ${name} is [${x.shape}] and the first [${first.shape}]; they may differ only in dimension ${axis}`,
  );
}

/** Throws `ShapeError` unless `shape` can be expanded to `target`. */
function requireExpandable(shape: Shape, target: Shape): void {
  if (isExpandable(shape, target)) return;
  throw new ShapeError(
    `expand: x is [${shape}], which cannot become [${target}]; dimensions of size 1 are repeated, and the others must be equal`,
  );
}

/**
 * Whether `shape` can be expanded to `target`.
 *
 * @shared
 */
export function isExpandable(shape: Shape, target: Shape): boolean {
  const missing = target.length - shape.length;
  return missing >= 0 && shape.every((size, axis) => size === 1 || size === target[missing + axis]);
}
