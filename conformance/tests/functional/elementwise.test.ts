/** Gradients of elementwise functions are bitwise equal to their definition, in every type. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { add, cast, divide, exp, multiply, rsqrt, sigmoid, where } from "../../../src/functional/index.js";
import { expand } from "../../../src/ops/layout/copy-slice.js";
import { sum } from "../../../src/ops/rows/sum.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { type Shape, WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { laneShape, wideTensor, wideType } from "../../arbitraries/wide.js";
import { div, mul } from "../../oracle/core/rational.js";
import { RULES } from "../../oracle/elementwise/activation.js";
import { OPERATORS } from "../../oracle/elementwise/operators.js";
import { download, fromCodes, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { derivedSeed, drawsOr } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 2 });
const { multiply: product, sigmoid: logistic } = OPERATORS;
const PARAMETERS = { numRuns: drawsOr(200), seed: derivedSeed(47) };

/**
 * Three tensors of each type, with values from 0.5 to 4.5. Most products of these values need more bits than bf16 and f16 have,
 * so that gradients show whether an intermediate result was rounded to f32 or to another type.
 */
const ORDINARY = WIDE_DTYPES.map((dtype) =>
  [1, 2, 3].map((seed) =>
    rounded<WideDType>(
      dtype,
      [128],
      Array.from(words(seed, 128), (word) => 0.5 + word / 2 ** 30),
    ),
  ),
) as [PlainTensor<WideDType>, PlainTensor<WideDType>, PlainTensor<WideDType>][];

/** The parameters of a property that also tests examples. */
const withExamples = <T>(examples: T[]) => ({
  ...PARAMETERS,
  examples,
  numRuns: PARAMETERS.numRuns + examples.length,
});

/** The tensor of dtype `dtype` whose elements are `value` applied to the elements of the other tensors. */
function mapElements(
  dtype: WideDType,
  tensors: readonly PlainTensor<WideDType>[],
  value: (...values: readonly number[]) => number,
): PlainTensor<WideDType> {
  const [firstValues, ...otherValues] = tensors.map(wideValues) as [Float32Array, ...Float32Array[]];
  const values = Array.from(firstValues, (x, i) =>
    value(x, ...otherValues.map((column) => column[i] as number)),
  );
  return rounded(dtype, (tensors[0] as PlainTensor).shape, values);
}

const leaf = (x: PlainTensor<WideDType>) => new Variable(upload(backend(), x), true);
const gradOf = (x: Variable) => download(x.grad as Tensor);

it("multiply: the gradient of each factor is the gradient times the other factor, rounded to its type", () => {
  const edges = { edges: product.edges };
  const cases = laneShape().chain((shape) =>
    fc.tuple(wideTensor(shape, edges), wideTensor(shape, edges), wideTensor(shape), fc.boolean()),
  );
  fc.assert(
    fc.property(cases, ([x, y, upstream, isConstant]) => {
      using _scope = new Scope();
      const [xLeaf, yLeaf] = [leaf(x), leaf(y)];
      const grad = mapElements(x.dtype, [upstream], (value) => value);
      const result = multiply(xLeaf, isConstant ? yLeaf.value : yLeaf);
      result.backward(upload(backend(), grad));
      expect(download(result.tensor)).toEqual(mapElements(x.dtype, [x, y], product.value));
      expect(gradOf(xLeaf)).toEqual(mapElements(x.dtype, [grad, y], mul));
      if (isConstant) expect(yLeaf.grad).toBeUndefined();
      else expect(gradOf(yLeaf)).toEqual(mapElements(y.dtype, [grad, x], mul));
      xLeaf.zeroGrad();
      yLeaf.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("sigmoid: the gradient is the derivative, rounded to f32, times the gradient of the result", () => {
  const cases = laneShape().chain((shape) =>
    fc.tuple(wideTensor(shape, { edges: logistic.edges }), wideTensor(shape)),
  );
  fc.assert(
    fc.property(cases, ([x, upstream]) => {
      using _scope = new Scope();
      const variable = leaf(x);
      const grad = mapElements(x.dtype, [upstream], (value) => value);
      const result = sigmoid(variable);
      result.backward(upload(backend(), grad));
      const derivative = (value: number) => Math.fround(RULES.sigmoid.derivative(value));
      expect(download(result.tensor)).toEqual(mapElements(x.dtype, [x], logistic.value));
      expect(gradOf(variable)).toEqual(
        mapElements(x.dtype, [grad, x], (g = 0, value = 0) => mul(derivative(value), g)),
      );
      variable.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("divide: the gradients are grad / y and -(grad * ((x / y) / y)), each operation rounded to f32", () => {
  const edges = { edges: OPERATORS.divide.edges };
  const cases = laneShape().chain((shape) =>
    fc.tuple(wideTensor(shape, edges), wideTensor(shape, edges), wideTensor(shape)),
  );
  fc.assert(
    fc.property(cases, ([x, y, upstream]) => {
      using _scope = new Scope();
      const [xLeaf, yLeaf] = [leaf(x), leaf(y)];
      const grad = mapElements(x.dtype, [upstream], (value) => value);
      const result = divide(xLeaf, yLeaf);
      result.backward(upload(backend(), grad));
      const gradientOfY = (g = 0, a = 0, b = 0) => mul(mul(g, div(div(a, b), b)), -1);
      expect(download(result.tensor)).toEqual(mapElements(x.dtype, [x, y], div));
      expect(gradOf(xLeaf)).toEqual(mapElements(x.dtype, [grad, y], div));
      expect(gradOf(yLeaf)).toEqual(mapElements(y.dtype, [grad, x, y], gradientOfY));
      for (const leafToClear of [xLeaf, yLeaf]) leafToClear.zeroGrad();
    }),
    withExamples<[(typeof ORDINARY)[number]]>(ORDINARY.map((example) => [example])),
  );
});

/** Functions that expand y, and the gradient of an element of y from the gradient of the result, x and y, in f32. */
const EXPANDING = {
  add: { run: add, gradient: (g = 0) => g },
  multiply: { run: multiply, gradient: (g = 0, x = 0) => mul(g, x) },
  divide: { run: divide, gradient: (g = 0, x = 0, y = 0) => mul(mul(g, div(div(x, y), y)), -1) },
} as const;

/** A shape, and a shape that is expanded to it: with 1 in place of some dimensions, and without some of the first dimensions. */
const expandable: fc.Arbitrary<readonly [shape: Shape, small: Shape]> = fc
  .array(fc.tuple(fc.integer({ min: 1, max: 9 }), fc.boolean()), { minLength: 1, maxLength: 3 })
  .chain((dims) =>
    fc.nat(dims.length).map((numMissing) => {
      return [
        dims.map(([size]) => size),
        dims.slice(numMissing).map(([size, isOne]) => (isOne ? 1 : size)),
      ] as const;
    }),
  )
  .filter(([shape, smallShape]) => String(shape) !== String(smallShape));

interface ExpandedOperation {
  readonly x: PlainTensor<WideDType>;
  readonly y: PlainTensor<WideDType>;
  readonly upstream: PlainTensor<WideDType>;
}

/** The gradients 1 + 2^-8 + 2^-10 and -2^-9. Their sum rounds to 1 in bf16, and the sum of the rounded gradients to 1 + 2^-7. */
const ROUNDED_UP: ExpandedOperation = {
  x: fromCodes("f32", [2], [0x3f800000, 0x3f800000]),
  y: fromCodes("bf16", [1], [0x3f80]),
  upstream: fromCodes("f32", [2], [0x3f80a000, 0xbb000000]),
};

it.each(Object.keys(EXPANDING) as (keyof typeof EXPANDING)[])(
  "%s: the gradient of an expanded y is the sum of f32 values over the repeated dimensions, rounded once",
  (name) => {
    const { run, gradient } = EXPANDING[name];
    const cases = expandable.chain(([shape, smallShape]) =>
      fc.record({ x: wideTensor(shape), y: wideTensor(smallShape), upstream: wideTensor(shape) }),
    );
    fc.assert(
      fc.property(cases, ({ x, y, upstream }) => {
        using _scope = new Scope();
        const [xLeaf, yLeaf] = [leaf(x), leaf(y)];
        const grad = mapElements(x.dtype, [upstream], (value) => value);
        run(xLeaf, yLeaf).backward(upload(backend(), grad));
        const expanded = download(expand(upload(backend(), y), x.shape)) as PlainTensor<WideDType>;
        const values = mapElements("f32", [grad, x, expanded], gradient);
        const numMissing = x.shape.length - y.shape.length;
        const dim = [...x.shape.keys()].filter(
          (i) => i < numMissing || y.shape[i - numMissing] !== x.shape[i],
        );
        const expected = sum(upload(backend(), values), { dim, outDtype: y.dtype }).reshape(y.shape);
        expect(gradOf(yLeaf)).toEqual(download(expected));
        for (const leafToClear of [xLeaf, yLeaf]) leafToClear.zeroGrad();
      }),
      { ...PARAMETERS, examples: [[ROUNDED_UP]] },
    );
  },
);

const OF_RESULTS = {
  exp: { run: exp, gradient: (g = 0, y = 0) => mul(g, y) },
  rsqrt: { run: rsqrt, gradient: (g = 0, y = 0) => mul(mul(g, mul(mul(y, y), y)), -0.5) },
} as const;

it.each(Object.keys(OF_RESULTS) as (keyof typeof OF_RESULTS)[])(
  "%s: the gradient is computed from the result, as rounded",
  (name) => {
    const { run, gradient } = OF_RESULTS[name];
    const { value, edges } = OPERATORS[name];
    const cases = laneShape().chain((shape) => fc.tuple(wideTensor(shape, { edges }), wideTensor(shape)));
    fc.assert(
      fc.property(cases, ([x, upstream]) => {
        using _scope = new Scope();
        const variable = leaf(x);
        const grad = mapElements(x.dtype, [upstream], (element) => element);
        const result = run(variable);
        const expected = mapElements(x.dtype, [x], value);
        expect(download(result.tensor)).toEqual(expected);
        // the backward pass does not need the result
        const root = cast(result, x.dtype);
        result.tensor.dispose();
        root.backward(upload(backend(), grad));
        expect(gradOf(variable)).toEqual(mapElements(x.dtype, [grad, expected], gradient));
        variable.zeroGrad();
      }),
      withExamples<[[PlainTensor<WideDType>, PlainTensor<WideDType>]]>(
        ORDINARY.map(([x, upstream]) => [[x, upstream]]),
      ),
    );
  },
);

it("where: the gradient goes to the tensor that was selected, and the other has +0", () => {
  const cases = laneShape().chain((shape) =>
    fc.tuple(
      wideTensor(shape),
      wideTensor(shape),
      wideTensor(shape),
      fc.array(fc.constantFrom(0, 0x80000000, 1, 0x7fc00000), { minLength: 7, maxLength: 7 }),
    ),
  );
  fc.assert(
    fc.property(cases, ([x, y, upstream, bits]) => {
      using _scope = new Scope();
      const [xLeaf, yLeaf] = [leaf(x), leaf(y)];
      const grad = mapElements(x.dtype, [upstream], (value) => value);
      const flags = Array.from(x.codes, (_, i) => bits[i % 7] as number);
      const condition = fromCodes("f32", x.shape, flags) as PlainTensor<WideDType>;
      const result = where(upload(backend(), condition), xLeaf, yLeaf);
      result.backward(upload(backend(), grad));
      expect(download(result.tensor)).toEqual(mapElements(x.dtype, [condition, x, y], OPERATORS.where.value));
      expect(gradOf(xLeaf)).toEqual(
        mapElements(x.dtype, [condition, grad], (c = 0, g = 0) => (c === 0 ? 0 : g)),
      );
      expect(gradOf(yLeaf)).toEqual(
        mapElements(y.dtype, [condition, grad], (c = 0, g = 0) => (c === 0 ? g : 0)),
      );
      for (const leafToClear of [xLeaf, yLeaf]) leafToClear.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("cast: the value and its gradient are rounded once", () => {
  const cases = laneShape().chain((shape) => fc.tuple(wideTensor(shape), wideTensor(shape), wideType()));
  fc.assert(
    fc.property(cases, ([x, upstream, dtype]) => {
      using _scope = new Scope();
      const variable = leaf(x);
      const grad = mapElements(dtype, [upstream], (value) => value);
      const result = cast(variable, dtype);
      result.backward(upload(backend(), grad));
      // a NaN is converted to another dtype, and kept in the same
      const expected = x.dtype === dtype ? x : mapElements(dtype, [x], (value) => value);
      expect(download(result.tensor)).toEqual(expected);
      expect(gradOf(variable)).toEqual(mapElements(x.dtype, [grad], (value) => value));
      variable.zeroGrad();
    }),
    PARAMETERS,
  );
});
