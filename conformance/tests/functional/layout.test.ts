/** Gradients of functions that move elements are bitwise equal to their definition, in every type. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { concatenate, permute, slice, split, transpose } from "../../../src/functional/index.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/layout/copy-slice.js";
import { swapAxes } from "../../oracle/layout/layout.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { derivedSeed, drawsOr } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 2 });
const PARAMETERS = { numRuns: drawsOr(200), seed: derivedSeed(143) };
const SHAPE: Shape = [3, 5, 4];

const leaf = (x: PlainTensor) => new Variable(upload(backend(), x), true);
const gradOf = (x: Variable) => download(x.grad as Tensor);
const elementsOf = ({ codes, shape }: PlainTensor): oracle.Elements => ({ elements: codes, shape });
const plainTensor = (dtype: PlainTensor["dtype"], { elements, shape }: oracle.Elements) =>
  fromCodes(dtype, shape, elements);

/** A tensor and an upstream gradient of one dtype. */
const drawTensors = (shape: Shape, gradShape: Shape) =>
  wideType().chain((dtype) => fc.tuple(wideTensor(shape, { dtype }), wideTensor(gradShape, { dtype })));

it("slice: the gradient equals the slices' gradients, and +0 elsewhere", () => {
  const ranges = fc.tuple(fc.nat({ max: 2 }), fc.boolean()).chain(([dim, isNegative]) => {
    const size = SHAPE[dim] as number;
    return fc.tuple(fc.nat({ max: size - 1 }), fc.nat({ max: size })).map(([firstBound, secondBound]) => {
      const [start, end] = [Math.min(firstBound, secondBound), Math.max(firstBound, secondBound)];
      return {
        dim,
        start,
        end,
        call: isNegative ? ([dim - 3, start - size] as const) : ([dim, start] as const),
      };
    });
  });
  const cases = ranges.chain((range) => {
    const count = range.end - range.start;
    const shape = SHAPE.map((size, axis) => (axis === range.dim ? count : size));
    return fc.tuple(fc.constant(range), drawTensors(SHAPE, shape));
  });
  fc.assert(
    fc.property(cases, ([{ dim, start, end, call }, [x, upstream]]) => {
      using _scope = new Scope();
      const source = leaf(x);
      slice(source, call[0], call[1], end).backward(upload(backend(), upstream));
      const zeros = (count: number): oracle.Elements => {
        const shape = SHAPE.map((size, axis) => (axis === dim ? count : size));
        return { elements: new Array<number>(elementCount(shape)).fill(0), shape };
      };
      const pieces = [zeros(start), elementsOf(upstream), zeros((SHAPE[dim] as number) - end)];
      expect(gradOf(source)).toEqual(plainTensor(x.dtype, oracle.concatenate(pieces, dim)));
      source.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("split: the parts are slices; the gradient concatenates the parts' gradients, and +0 for a part without a gradient", () => {
  const cases = fc
    .tuple(
      fc.nat({ max: 2 }),
      fc.nat({ max: 5 }),
      fc.nat({ max: 5 }),
      fc.subarray([0, 1, 2], { minLength: 1 }),
    )
    .chain(([dim, firstCut, secondCut, usedPieces]) => {
      const size = SHAPE[dim] as number;
      const sortedCuts = [
        Math.min(firstCut, secondCut, size),
        Math.min(Math.max(firstCut, secondCut), size),
      ] as const;
      const sizes = [sortedCuts[0], sortedCuts[1] - sortedCuts[0], size - sortedCuts[1]];
      const shapes = sizes.map((length) => SHAPE.map((extent, axis) => (axis === dim ? length : extent)));
      return wideType().chain((dtype) =>
        fc.tuple(
          fc.constant({ dim, sizes, usedPieces }),
          wideTensor(SHAPE, { dtype }),
          fc.tuple(...shapes.map((shape) => wideTensor(shape, { dtype }))),
        ),
      );
    });
  fc.assert(
    fc.property(cases, ([{ dim, sizes, usedPieces }, x, upstream]) => {
      using _scope = new Scope();
      const source = leaf(x);
      const pieces = split(source, sizes, dim - 3);
      let start = 0;
      for (const [i, size] of sizes.entries()) {
        const expected = plainTensor(x.dtype, oracle.slice(elementsOf(x), dim, start, start + size));
        expect(download((pieces[i] as Variable).tensor)).toEqual(expected);
        start += size;
      }
      const gradsOrZeros = upstream.map((grad, i) =>
        usedPieces.includes(i)
          ? grad
          : plainTensor(x.dtype, { ...elementsOf(grad), elements: grad.codes.map(() => 0) }),
      );
      const expectedGrad = oracle.concatenate(
        usedPieces.map((i) => elementsOf(upstream[i] as PlainTensor)),
        dim,
      );
      concatenate(
        usedPieces.map((i) => pieces[i] as Variable),
        dim,
      ).backward(upload(backend(), plainTensor(x.dtype, expectedGrad)));
      expect(gradOf(source)).toEqual(
        plainTensor(x.dtype, oracle.concatenate(gradsOrZeros.map(elementsOf), dim)),
      );
      source.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("split refuses sizes that do not add up", () => {
  using _scope = new Scope();
  const x = upload(backend(), fromCodes("f32", [4], [0, 0, 0, 0]));
  expect(() => split(x, [1, 2])).toThrow("split: splitSizes add up to 3; dimension 0 of x, [4], has size 4");
  expect(() => split(x, [5, -1])).toThrow("splitSizes[1]");
  expect(() => split(x, [])).toThrow("split");
});

it("concatenate: the gradient of each tensor is its slice of the gradient; a constant has none", () => {
  const cases = fc.nat({ max: 2 }).chain((dim) => {
    const totalShape = SHAPE.map((size, axis) => (axis === dim ? 2 * size + 1 : size));
    const constantShape = SHAPE.map((size, axis) => (axis === dim ? 1 : size));
    return wideType().chain((dtype) => {
      const tensor = (shape: Shape) => wideTensor(shape, { dtype });
      return fc.tuple(
        fc.constant(dim),
        tensor(SHAPE),
        tensor(constantShape),
        tensor(SHAPE),
        tensor(totalShape),
      );
    });
  });
  fc.assert(
    fc.property(cases, ([dim, firstPiece, constant, lastPiece, upstream]) => {
      using _scope = new Scope();
      const [firstLeaf, lastLeaf] = [leaf(firstPiece), leaf(lastPiece)];
      const result = concatenate([firstLeaf, upload(backend(), constant), lastLeaf], dim - 3);
      result.backward(upload(backend(), upstream));
      const size = SHAPE[dim] as number;
      const part = (start: number) =>
        plainTensor(firstPiece.dtype, oracle.slice(elementsOf(upstream), dim, start, start + size));
      expect(gradOf(firstLeaf)).toEqual(part(0));
      expect(gradOf(lastLeaf)).toEqual(part(size + 1));
      for (const leafToClear of [firstLeaf, lastLeaf]) leafToClear.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("transpose and permute: the gradient is moved back", () => {
  const cases = fc
    .tuple(fc.nat({ max: 2 }), fc.nat({ max: 2 }))
    .chain((axes) => fc.tuple(fc.constant(axes), drawTensors(SHAPE, SHAPE)));
  fc.assert(
    fc.property(cases, ([[firstAxis, secondAxis], [x, upstream]]) => {
      using _scope = new Scope();
      const swappedGrad = swapAxes(upstream.codes, SHAPE, firstAxis, secondAxis);
      const dims = [0, 1, 2].map((dim) =>
        dim === firstAxis ? secondAxis : dim === secondAxis ? firstAxis : dim,
      );
      for (const run of [
        (source: Variable) => transpose(source, firstAxis, secondAxis - 3),
        (source: Variable) => permute(source, dims),
      ]) {
        const source = leaf(x);
        run(source).backward(upload(backend(), plainTensor(x.dtype, swappedGrad)));
        expect(gradOf(source)).toEqual(upstream);
        source.zeroGrad();
      }
    }),
    PARAMETERS,
  );
});

it("permute: a rotation of three dimensions is inverted by the gradient", () => {
  using _scope = new Scope();
  const [x, upstream] = fc.sample(drawTensors(SHAPE, SHAPE), 1)[0] as [PlainTensor, PlainTensor];
  const source = leaf(x);
  const result = permute(source, [2, 0, 1]);
  expect(result.shape).toEqual([4, 3, 5]);
  const permutedGrad = permute(upload(backend(), upstream), [2, 0, 1]);
  result.backward(permutedGrad.tensor);
  expect(gradOf(source)).toEqual(upstream);
  source.zeroGrad();
});
