/** Gradients of products and of the logistic function have the bits of their definition, in every type. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { multiply, sigmoid } from "../../../src/functional/index.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { laneShape, wideTensor } from "../../arbitraries/wide.js";
import { mul } from "../../oracle/core/rational.js";
import { RULES } from "../../oracle/elementwise/activation.js";
import { OPERATORS } from "../../oracle/elementwise/operators.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
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
