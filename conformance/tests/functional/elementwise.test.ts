/** Gradients of elementwise functions have the bits of their definition, in every type. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { cast, divide, exp, multiply, rsqrt, sigmoid, where } from "../../../src/functional/index.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { laneShape, wideTensor, wideType } from "../../arbitraries/wide.js";
import { div, mul } from "../../oracle/core/rational.js";
import { RULES } from "../../oracle/elementwise/activation.js";
import { OPERATORS } from "../../oracle/elementwise/operators.js";
import { download, fromCodes, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { drawsOr, seeded } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 2 });
const { multiply: product, sigmoid: logistic } = OPERATORS;
const PARAMETERS = { numRuns: drawsOr(200), seed: seeded(47) };

/** The tensor of dtype `dtype` whose elements are `value` of the elements of the others. */
function mapped(
  dtype: WideDType,
  tensors: readonly PlainTensor<WideDType>[],
  value: (...values: readonly number[]) => number,
): PlainTensor<WideDType> {
  const [first, ...others] = tensors.map(wideValues) as [Float32Array, ...Float32Array[]];
  const values = Array.from(first, (x, i) => value(x, ...others.map((each) => each[i] as number)));
  return rounded(dtype, (tensors[0] as PlainTensor).shape, values);
}

const leaf = (x: PlainTensor<WideDType>) => new Variable(upload(backend(), x), true);
const gradOf = (x: Variable) => download(x.grad as Tensor);

it("multiply: the gradient of each factor is the gradient times the other factor, rounded to its type", () => {
  const edges = { edges: product.edges };
  const drawn = laneShape().chain((shape) =>
    fc.tuple(wideTensor(shape, edges), wideTensor(shape, edges), wideTensor(shape), fc.boolean()),
  );
  fc.assert(
    fc.property(drawn, ([x, y, upstream, isConstant]) => {
      using _scope = new Scope();
      const [left, right] = [leaf(x), leaf(y)];
      const grad = mapped(x.dtype, [upstream], (value) => value);
      const result = multiply(left, isConstant ? right.value : right);
      result.backward(upload(backend(), grad));
      expect(download(result.tensor)).toEqual(mapped(x.dtype, [x, y], product.value));
      expect(gradOf(left)).toEqual(mapped(x.dtype, [grad, y], mul));
      if (isConstant) expect(right.grad).toBeUndefined();
      else expect(gradOf(right)).toEqual(mapped(y.dtype, [grad, x], mul));
      left.zeroGrad();
      right.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("sigmoid: the gradient is the derivative, rounded to f32, times the gradient of the result", () => {
  const drawn = laneShape().chain((shape) =>
    fc.tuple(wideTensor(shape, { edges: logistic.edges }), wideTensor(shape)),
  );
  fc.assert(
    fc.property(drawn, ([x, upstream]) => {
      using _scope = new Scope();
      const variable = leaf(x);
      const grad = mapped(x.dtype, [upstream], (value) => value);
      const result = sigmoid(variable);
      result.backward(upload(backend(), grad));
      const derivative = (value: number) => Math.fround(RULES.sigmoid.derivative(value));
      expect(download(result.tensor)).toEqual(mapped(x.dtype, [x], logistic.value));
      expect(gradOf(variable)).toEqual(
        mapped(x.dtype, [grad, x], (g = 0, value = 0) => mul(derivative(value), g)),
      );
      variable.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("divide: the gradients are grad / y and -(grad * ((x / y) / y)), each operation rounded to f32", () => {
  const edges = { edges: OPERATORS.divide.edges };
  const drawn = laneShape().chain((shape) =>
    fc.tuple(wideTensor(shape, edges), wideTensor(shape, edges), wideTensor(shape)),
  );
  fc.assert(
    fc.property(drawn, ([x, y, upstream]) => {
      using _scope = new Scope();
      const [left, right] = [leaf(x), leaf(y)];
      const grad = mapped(x.dtype, [upstream], (value) => value);
      const result = divide(left, right);
      result.backward(upload(backend(), grad));
      const ofY = (g = 0, a = 0, b = 0) => mul(mul(g, div(div(a, b), b)), -1);
      expect(download(result.tensor)).toEqual(mapped(x.dtype, [x, y], div));
      expect(gradOf(left)).toEqual(mapped(x.dtype, [grad, y], div));
      expect(gradOf(right)).toEqual(mapped(y.dtype, [grad, x, y], ofY));
      for (const each of [left, right]) each.zeroGrad();
    }),
    PARAMETERS,
  );
});

const OF_RESULTS = {
  exp: { run: exp, gradient: (g = 0, y = 0) => mul(g, y) },
  rsqrt: { run: rsqrt, gradient: (g = 0, y = 0) => mul(mul(g, mul(mul(y, y), y)), -0.5) },
} as const;

it.each(Object.keys(OF_RESULTS) as (keyof typeof OF_RESULTS)[])(
  "%s: the gradient is computed from the result, as rounded",
  (name) => {
    const { run, gradient } = OF_RESULTS[name];
    const { value, edges } = OPERATORS[name];
    const drawn = laneShape().chain((shape) => fc.tuple(wideTensor(shape, { edges }), wideTensor(shape)));
    fc.assert(
      fc.property(drawn, ([x, upstream]) => {
        using _scope = new Scope();
        const variable = leaf(x);
        const grad = mapped(x.dtype, [upstream], (each) => each);
        const result = run(variable);
        const expected = mapped(x.dtype, [x], value);
        expect(download(result.tensor)).toEqual(expected);
        // the backward pass does not need the result
        const root = cast(result, x.dtype);
        result.tensor.dispose();
        root.backward(upload(backend(), grad));
        expect(gradOf(variable)).toEqual(mapped(x.dtype, [grad, expected], gradient));
        variable.zeroGrad();
      }),
      PARAMETERS,
    );
  },
);

it("where: the gradient goes to the tensor that was selected, and the other has +0", () => {
  const drawn = laneShape().chain((shape) =>
    fc.tuple(
      wideTensor(shape),
      wideTensor(shape),
      wideTensor(shape),
      fc.array(fc.constantFrom(0, 0x80000000, 1, 0x7fc00000), { minLength: 7, maxLength: 7 }),
    ),
  );
  fc.assert(
    fc.property(drawn, ([x, y, upstream, bits]) => {
      using _scope = new Scope();
      const [left, right] = [leaf(x), leaf(y)];
      const grad = mapped(x.dtype, [upstream], (value) => value);
      const flags = Array.from(x.codes, (_, i) => bits[i % 7] as number);
      const condition = fromCodes("f32", x.shape, flags) as PlainTensor<WideDType>;
      const result = where(upload(backend(), condition), left, right);
      result.backward(upload(backend(), grad));
      expect(download(result.tensor)).toEqual(mapped(x.dtype, [condition, x, y], OPERATORS.where.value));
      expect(gradOf(left)).toEqual(mapped(x.dtype, [condition, grad], (c = 0, g = 0) => (c === 0 ? 0 : g)));
      expect(gradOf(right)).toEqual(mapped(y.dtype, [condition, grad], (c = 0, g = 0) => (c === 0 ? g : 0)));
      for (const each of [left, right]) each.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("cast: the value and its gradient are rounded once", () => {
  const drawn = laneShape().chain((shape) => fc.tuple(wideTensor(shape), wideTensor(shape), wideType()));
  fc.assert(
    fc.property(drawn, ([x, upstream, dtype]) => {
      using _scope = new Scope();
      const variable = leaf(x);
      const grad = mapped(dtype, [upstream], (value) => value);
      const result = cast(variable, dtype);
      result.backward(upload(backend(), grad));
      // a NaN is converted to another dtype, and kept in the same
      const expected = x.dtype === dtype ? x : mapped(dtype, [x], (value) => value);
      expect(download(result.tensor)).toEqual(expected);
      expect(gradOf(variable)).toEqual(mapped(x.dtype, [grad], (value) => value));
      variable.zeroGrad();
    }),
    PARAMETERS,
  );
});
