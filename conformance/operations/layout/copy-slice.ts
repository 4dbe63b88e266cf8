/** The operation `copySlice`, by the functions that are made of it: slices, concatenations and expansions. */
import * as fc from "fast-check";
import { concatenate, expand, slice } from "../../../src/ops/layout/copy-slice.js";
import { type DType, elementCount, type Shape } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import * as oracle from "../../oracle/layout/copy-slice.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import type { Operation } from "../operation.js";

export type CopySliceCase =
  | {
      readonly use: "slice";
      readonly x: PlainTensor;
      readonly dim: number;
      readonly start: number;
      readonly end: number;
    }
  | { readonly use: "concatenate"; readonly tensors: readonly PlainTensor[]; readonly dim: number }
  | { readonly use: "expand"; readonly x: PlainTensor; readonly shape: Shape };

const dtypes = fc.constantFrom<DType>("u8", "e4m3", "bf16", "u16", "f32", "u32", "i32", "e3m2");

const randomTensor = (dtype: DType, shape: Shape, seed: number): PlainTensor =>
  fromCodes(dtype, shape, words(seed, elementCount(shape)));

/** Shapes of one to four dimensions. A slice may have any number of bytes, and is sometimes a multiple of 16. */
const boxes: fc.Arbitrary<Shape> = fc
  .tuple(
    fc.array(fc.oneof(fc.integer({ min: 1, max: 6 }), fc.constantFrom(0, 1, 9, 17)), { maxLength: 3 }),
    fc.constantFrom(1, 2, 3, 4, 7, 8, 16, 20, 32, 64),
  )
  .map(([outer, last]) => [...outer, last]);

const withSize = (shape: Shape, dim: number, size: number): Shape => [...shape].fill(size, dim, dim + 1);

function sliceCase(shape: Shape): fc.Arbitrary<CopySliceCase> {
  return fc
    .record({
      dtype: dtypes,
      seed: fc.nat(),
      dim: fc.nat({ max: shape.length - 1 }),
      isNegative: fc.boolean(),
    })
    .chain(({ dtype, seed, dim, isNegative }) => {
      const length = shape[dim] as number;
      const index = fc.nat({ max: length });
      return fc.tuple(index, index).map(([one, other]) => {
        const [start, end] = [Math.min(one, other), Math.max(one, other)];
        const x = randomTensor(dtype, shape, seed);
        const axis = isNegative ? dim - shape.length : dim;
        // an index of 0 or the length has no negative form that means the same
        const back = (i: number): number => (isNegative && i < length ? i - length : i);
        return { use: "slice" as const, x, dim: axis, start: back(start), end: back(end) };
      });
    });
}

function concatenateCase(shape: Shape): fc.Arbitrary<CopySliceCase> {
  const sizes = fc.array(fc.constantFrom(0, 1, 2, 3, 8, 16), { minLength: 1, maxLength: 4 });
  return fc
    .record({ dtype: dtypes, seed: fc.nat(), dim: fc.nat({ max: shape.length - 1 }), sizes })
    .map(({ dtype, seed, dim, sizes }) => ({
      use: "concatenate" as const,
      tensors: sizes.map((size, i) => randomTensor(dtype, withSize(shape, dim, size), seed + i)),
      dim,
    }));
}

function expandCase(shape: Shape): fc.Arbitrary<CopySliceCase> {
  const ones = fc.array(fc.boolean(), { minLength: shape.length, maxLength: shape.length });
  const front = fc.array(fc.constantFrom(0, 1, 2, 3), { maxLength: 2 });
  return fc.record({ dtype: dtypes, seed: fc.nat(), ones, front }).map(({ dtype, seed, ones, front }) => ({
    use: "expand" as const,
    x: randomTensor(
      dtype,
      shape.map((size, axis) => (ones[axis] ? 1 : size)),
      seed,
    ),
    shape: [...front, ...shape],
  }));
}

/** Slices, concatenations and expansions of tensors of these shapes. */
export function copySliceCase(shapes: fc.Arbitrary<Shape>): fc.Arbitrary<CopySliceCase> {
  return shapes.chain((shape) => fc.oneof(sliceCase(shape), concatenateCase(shape), expandCase(shape)));
}

const elementsOf = ({ codes, shape }: PlainTensor): oracle.Elements => ({ elements: codes, shape });

function expected(input: CopySliceCase): oracle.Elements {
  if (input.use === "slice") return oracle.slice(elementsOf(input.x), input.dim, input.start, input.end);
  if (input.use === "expand") return oracle.expand(elementsOf(input.x), input.shape);
  return oracle.concatenate(input.tensors.map(elementsOf), input.dim);
}

export const copySliceOperation: Operation<CopySliceCase> = {
  arbitrary: copySliceCase(boxes),
  run(backend, input) {
    if (input.use === "slice")
      return { out: download(slice(upload(backend, input.x), input.dim, input.start, input.end)) };
    if (input.use === "expand") return { out: download(expand(upload(backend, input.x), input.shape)) };
    const tensors = input.tensors.map((each) => upload(backend, each));
    return { out: download(concatenate(tensors, input.dim)) };
  },
  oracle(input) {
    const { elements, shape } = expected(input);
    const { dtype } = input.use === "concatenate" ? (input.tensors[0] as PlainTensor) : input.x;
    return { out: fromCodes(dtype, shape, elements) };
  },
};
