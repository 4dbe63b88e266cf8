/**
 * The order and merging of dimensions by PyTorch's TensorIterator in a reduction of a contiguous tensor
 * (aten/src/ATen/TensorIterator.cpp).
 */
import type { Shape } from "../../tensor/shape.js";
import { stridesOf } from "../value.js";

/**
 * A dimension of the iteration, with strides of the input and of the output in elements. A reduced dimension has output stride 0.
 */
export interface IterationDim {
  readonly size: number;
  readonly input: number;
  readonly output: number;
}

/** The dimensions over which a reduction iterates. */
export interface ReductionGeometry {
  /** The reduced dimensions. The dimension with the smallest input stride is the first. */
  readonly reducedDims: readonly IterationDim[];
  /** The other dimensions. The dimension with the smallest output stride is the first. */
  readonly keptDims: readonly IterationDim[];
}

/**
 * Returns 1 if `a` comes after `b`, -1 if `a` comes before `b`, 0 if their order is undecided. Reduced dimensions come first;
 * then output and input strides decide.
 */
function compareDims(a: IterationDim, b: IterationDim): number {
  if ((a.output === 0) !== (b.output === 0)) return b.output === 0 ? 1 : -1;
  for (const operand of ["output", "input"] as const) {
    const [x, y] = [a[operand], b[operand]];
    if (x === 0 || y === 0) continue;
    if (x !== y) return x < y ? -1 : 1;
    if (a.size > b.size) return 1;
  }
  return 0;
}

/** Sorts dimensions by insertion, because `compareDims` is not transitive where dimensions of size 1 have equal strides. */
function sortDims(dims: readonly IterationDim[]): readonly IterationDim[] {
  const list = [...dims];
  for (let i = 1; i < list.length; i++) {
    let remainder = i;
    for (let previous = i - 1; previous >= 0; previous--) {
      const [a, b] = [list[previous] as IterationDim, list[remainder] as IterationDim];
      const sign = compareDims(a, b);
      if (sign < 0) break;
      if (sign > 0) {
        list[previous] = b;
        list[remainder] = a;
        remainder = previous;
      }
    }
  }
  return list;
}

/** Merges each dimension with the previous dimension if one of them has size 1, or if their strides continue in both tensors. */
function coalesceDims(dims: readonly IterationDim[]): readonly IterationDim[] {
  const list: IterationDim[] = [];
  for (const dim of dims) {
    const lastDim = list.at(-1);
    const continues =
      lastDim !== undefined &&
      (lastDim.size === 1 ||
        dim.size === 1 ||
        (lastDim.size * lastDim.input === dim.input && lastDim.size * lastDim.output === dim.output));
    if (!continues) list.push(dim);
    else list[list.length - 1] = { ...(lastDim.size === 1 ? dim : lastDim), size: lastDim.size * dim.size };
  }
  return list;
}

/** The geometry of a reduction of a contiguous tensor over `dims`. */
export function reductionGeometry(
  shape: Shape,
  dims: readonly number[],
  keepdim: boolean,
): ReductionGeometry {
  const isReduced = (dim: number) => dims.includes(dim);
  const strides = stridesOf(shape);
  const resultStrides = stridesOf(shape.map((size, dim) => (isReduced(dim) ? 1 : size)));
  const iterationDims = shape.map((size, dim) => {
    // With `keepdim`, a reduced dimension of size 1 has the same stride in the output as a dimension that is not reduced.
    const output = isReduced(dim) && !(keepdim && size === 1) ? 0 : (resultStrides[dim] as number);
    return { size, input: strides[dim] as number, output };
  });
  const mergedDims = coalesceDims(sortDims(iterationDims.toReversed()));
  const count = mergedDims.filter(({ output }) => output === 0).length;
  return { reducedDims: mergedDims.slice(0, count), keptDims: mergedDims.slice(count) };
}
