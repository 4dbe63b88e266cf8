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
const plain = (dtype: PlainTensor["dtype"], { elements, shape }: oracle.Elements) =>
  fromCodes(dtype, shape, elements);

/** A tensor and an upstream gradient of one dtype. */
const drawn = (shape: Shape, gradShape: Shape) =>
  wideType().chain((dtype) => fc.tuple(wideTensor(shape, { dtype }), wideTensor(gradShape, { dtype })));

it("slice: the gradient is that of the slices, and +0 elsewhere", () => {
  const ranges = fc.tuple(fc.nat({ max: 2 }), fc.boolean()).chain(([dim, isNegative]) => {
    const size = SHAPE[dim] as number;
    return fc.tuple(fc.nat({ max: size - 1 }), fc.nat({ max: size })).map(([one, other]) => {
      const [start, end] = [Math.min(one, other), Math.max(one, other)];
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
    return fc.tuple(fc.constant(range), drawn(SHAPE, shape));
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
      const parts = [zeros(start), elementsOf(upstream), zeros((SHAPE[dim] as number) - end)];
      expect(gradOf(source)).toEqual(plain(x.dtype, oracle.concatenate(parts, dim)));
      source.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("split: the parts are slices; the gradient has those of the parts in order, and +0 for a part without one", () => {
  const cases = fc
    .tuple(
      fc.nat({ max: 2 }),
      fc.nat({ max: 5 }),
      fc.nat({ max: 5 }),
      fc.subarray([0, 1, 2], { minLength: 1 }),
    )
    .chain(([dim, one, other, used]) => {
      const size = SHAPE[dim] as number;
      const cuts = [Math.min(one, other, size), Math.min(Math.max(one, other), size)] as const;
      const sizes = [cuts[0], cuts[1] - cuts[0], size - cuts[1]];
      const shapes = sizes.map((each) => SHAPE.map((extent, axis) => (axis === dim ? each : extent)));
      return wideType().chain((dtype) =>
        fc.tuple(
          fc.constant({ dim, sizes, used }),
          wideTensor(SHAPE, { dtype }),
          fc.tuple(...shapes.map((shape) => wideTensor(shape, { dtype }))),
        ),
      );
    });
  fc.assert(
    fc.property(cases, ([{ dim, sizes, used }, x, upstream]) => {
      using _scope = new Scope();
      const source = leaf(x);
      const parts = split(source, sizes, dim - 3);
      let start = 0;
      for (const [i, size] of sizes.entries()) {
        const expected = plain(x.dtype, oracle.slice(elementsOf(x), dim, start, start + size));
        expect(download((parts[i] as Variable).tensor)).toEqual(expected);
        start += size;
      }
      const zeroed = upstream.map((each, i) =>
        used.includes(i) ? each : plain(x.dtype, { ...elementsOf(each), elements: each.codes.map(() => 0) }),
      );
      const seen = oracle.concatenate(
        used.map((i) => elementsOf(upstream[i] as PlainTensor)),
        dim,
      );
      concatenate(
        used.map((i) => parts[i] as Variable),
        dim,
      ).backward(upload(backend(), plain(x.dtype, seen)));
      expect(gradOf(source)).toEqual(plain(x.dtype, oracle.concatenate(zeroed.map(elementsOf), dim)));
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
    const total = SHAPE.map((size, axis) => (axis === dim ? 2 * size + 1 : size));
    const other = SHAPE.map((size, axis) => (axis === dim ? 1 : size));
    return wideType().chain((dtype) => {
      const tensor = (shape: Shape) => wideTensor(shape, { dtype });
      return fc.tuple(fc.constant(dim), tensor(SHAPE), tensor(other), tensor(SHAPE), tensor(total));
    });
  });
  fc.assert(
    fc.property(cases, ([dim, first, constant, last, upstream]) => {
      using _scope = new Scope();
      const [one, two] = [leaf(first), leaf(last)];
      const result = concatenate([one, upload(backend(), constant), two], dim - 3);
      result.backward(upload(backend(), upstream));
      const size = SHAPE[dim] as number;
      const part = (start: number) =>
        plain(first.dtype, oracle.slice(elementsOf(upstream), dim, start, start + size));
      expect(gradOf(one)).toEqual(part(0));
      expect(gradOf(two)).toEqual(part(size + 1));
      for (const each of [one, two]) each.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("transpose and permute: the gradient is moved back", () => {
  const cases = fc
    .tuple(fc.nat({ max: 2 }), fc.nat({ max: 2 }))
    .chain((axes) => fc.tuple(fc.constant(axes), drawn(SHAPE, SHAPE)));
  fc.assert(
    fc.property(cases, ([[one, other], [x, upstream]]) => {
      using _scope = new Scope();
      const moved = swapAxes(upstream.codes, SHAPE, one, other);
      const dims = [0, 1, 2].map((dim) => (dim === one ? other : dim === other ? one : dim));
      for (const run of [
        (source: Variable) => transpose(source, one, other - 3),
        (source: Variable) => permute(source, dims),
      ]) {
        const source = leaf(x);
        run(source).backward(upload(backend(), plain(x.dtype, moved)));
        expect(gradOf(source)).toEqual(upstream);
        source.zeroGrad();
      }
    }),
    PARAMETERS,
  );
});

it("permute: a rotation of three dimensions is inverted by the gradient", () => {
  using _scope = new Scope();
  const [x, upstream] = fc.sample(drawn(SHAPE, SHAPE), 1)[0] as [PlainTensor, PlainTensor];
  const source = leaf(x);
  const result = permute(source, [2, 0, 1]);
  expect(result.shape).toEqual([4, 3, 5]);
  const rotated = permute(upload(backend(), upstream), [2, 0, 1]);
  result.backward(rotated.tensor);
  expect(gradOf(source)).toEqual(upstream);
  source.zeroGrad();
});
