/** Gradients of sums, means and expansions are bitwise equal to their definition, in every type. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { add, divide, expand, mean, multiply, sum } from "../../../src/functional/index.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import { div, mul } from "../../oracle/core/rational.js";
import * as layout from "../../oracle/layout/copy-slice.js";
import { sums } from "../../oracle/training/sums.js";
import { download, fromCodes, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { derivedSeed, drawsOr } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 2 });
const PARAMETERS = { numRuns: drawsOr(200), seed: derivedSeed(152) };
const SHAPE: Shape = [3, 5, 4];

const leaf = (x: PlainTensor) => new Variable(upload(backend(), x), true);
/** The elements of a tensor, every NaN being the canonical one: copies keep payloads, and arithmetic does not. */
const valuesOf = (x: Tensor) => canonical(download(x) as PlainTensor<WideDType>);
const gradOf = (x: Variable) => valuesOf(x.grad as Tensor);

/** Shapes that can be expanded to SHAPE, with the dimensions of SHAPE that are repeated. */
const expandable = fc
  .tuple(fc.nat({ max: 3 }), fc.array(fc.boolean(), { minLength: 3, maxLength: 3 }))
  .map(([numMissing, onesAxes]) => ({
    shape: SHAPE.map((size, axis) => (onesAxes[axis] ? 1 : size)).slice(numMissing),
    axes: [0, 1, 2].filter((axis) => axis < numMissing || onesAxes[axis]),
  }));

/** The plain tensor of these f32 values. */
const plainTensor = (dtype: WideDType, shape: Shape, values: readonly number[]) =>
  rounded(dtype, shape, values);

function canonical(x: PlainTensor<WideDType>): PlainTensor<WideDType> {
  return plainTensor(x.dtype, x.shape, Array.from(wideValues(x)));
}

/** The values of a tensor after an expansion to SHAPE. */
function expandedValues(x: PlainTensor<WideDType>): readonly number[] {
  const { elements } = layout.expand({ elements: x.codes, shape: x.shape }, SHAPE);
  return Array.from(wideValues(fromCodes(x.dtype, SHAPE, elements) as PlainTensor<WideDType>));
}

/** The gradient of a tensor that was expanded to SHAPE: the f32 terms, summed and rounded. */
function sumTo(
  dtype: WideDType,
  { shape, axes }: { shape: Shape; axes: number[] },
  terms: readonly number[],
) {
  return plainTensor(dtype, shape, axes.length === 0 ? terms : sums(terms, SHAPE, axes).values);
}

const expansions = expandable.chain((smallTensor) =>
  wideType().chain((dtype) =>
    fc.record({
      smallTensor: fc.constant(smallTensor),
      x: wideTensor(SHAPE, { dtype, edges: [0, 1, 65504, 3.4e38] }),
      y: wideTensor(smallTensor.shape, { edges: [0, 1, 2 ** -126, 3.4e38] }),
      upstream: wideTensor(SHAPE, { dtype }),
    }),
  ),
);

it("expand: the gradient is the sum over the dimensions that were repeated", () => {
  fc.assert(
    fc.property(expansions, ({ smallTensor, y, upstream }) => {
      using _scope = new Scope();
      const source = leaf(y);
      const grad = plainTensor(y.dtype, SHAPE, Array.from(wideValues(upstream)));
      const result = expand(source, SHAPE);
      result.backward(upload(backend(), grad));
      expect(valuesOf(result.tensor)).toEqual(plainTensor(y.dtype, SHAPE, expandedValues(y)));
      // the gradient of a tensor that was not expanded is passed on unchanged, including the sign of zero
      const terms = Array.from(wideValues(grad));
      const isReduced = smallTensor.shape.length === 3 && smallTensor.axes.every((axis) => SHAPE[axis] === 1);
      expect(gradOf(source)).toEqual(isReduced ? grad : sumTo(y.dtype, smallTensor, terms));
      source.zeroGrad();
    }),
    PARAMETERS,
  );
});

const BINARY = {
  add: { run: add, value: (x: number, y: number) => Math.fround(x + y), slope: (g: number) => g },
  multiply: { run: multiply, value: mul, slope: (g: number, x: number) => mul(g, x) },
  divide: {
    run: divide,
    value: div,
    slope: (g: number, x: number, y: number) => -mul(g, div(div(x, y), y)),
  },
};

it.each(Object.entries(BINARY))(
  "%s expands y, and sums the f32 terms of its gradient",
  (_, { run, value, slope }) => {
    fc.assert(
      fc.property(expansions, ({ smallTensor, x, y, upstream }) => {
        using _scope = new Scope();
        const [xLeaf, yLeaf] = [leaf(x), leaf(y)];
        const result = run(xLeaf, yLeaf);
        result.backward(upload(backend(), upstream));
        const [xs, ys, gs] = [wideValues(x), expandedValues(y), wideValues(upstream)];
        const values = Array.from(xs, (xValue, i) => value(xValue, ys[i] as number));
        const terms = Array.from(gs, (g, i) => slope(g, xs[i] as number, ys[i] as number));
        expect(valuesOf(result.tensor)).toEqual(plainTensor(x.dtype, SHAPE, values));
        expect(gradOf(yLeaf)).toEqual(sumTo(y.dtype, smallTensor, terms));
        for (const leafToClear of [xLeaf, yLeaf]) leafToClear.zeroGrad();
      }),
      PARAMETERS,
    );
  },
);

const reductions = fc.option(fc.subarray([0, 1, 2], { minLength: 1 }), { nil: undefined }).chain((dim) => {
  const axes = dim ?? [0, 1, 2];
  const keptShape = SHAPE.map((size, axis) => (axes.includes(axis) ? 1 : size));
  return wideType().chain((dtype) =>
    fc.record({
      dim: fc.constant(dim),
      axes: fc.constant(axes),
      keepdim: fc.boolean(),
      x: wideTensor(SHAPE, { dtype }),
      upstream: wideTensor(keptShape, { dtype }),
    }),
  );
});

it("sum and mean: the gradient is repeated, for mean after a multiplication by 1 / n", () => {
  fc.assert(
    fc.property(reductions, ({ dim, axes, keepdim, x, upstream }) => {
      using _scope = new Scope();
      const shape = keepdim ? upstream.shape : SHAPE.filter((_, axis) => !axes.includes(axis));
      const share = Math.fround(1 / axes.reduce((count, axis) => count * (SHAPE[axis] as number), 1));
      for (const [run, factor] of [
        [sum, 1],
        [mean, share],
      ] as const) {
        const source = leaf(x);
        run(source, { dim, keepdim }).backward(upload(backend(), upstream).reshape(shape));
        const scaledGrad = plainTensor(
          x.dtype,
          upstream.shape,
          Array.from(wideValues(upstream), (g) => mul(g, factor)),
        );
        expect(gradOf(source)).toEqual(plainTensor(x.dtype, SHAPE, expandedValues(scaledGrad)));
        source.zeroGrad();
      }
    }),
    PARAMETERS,
  );
});

testInScope("the mean of a matrix begins a backward pass", () => {
  const [x] = fc.sample(wideTensor([2, 4], { dtype: "f32" }), 1) as [PlainTensor<"f32">];
  const source = leaf(x);
  mean(source).backward();
  expect([...(source.grad as Tensor).dataSync()]).toEqual(new Array(8).fill(1 / 8));
  source.zeroGrad();
});
