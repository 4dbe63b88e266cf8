/** Differentiable sums, products and activations. */
import type { ActivationName } from "../backends/ops.js";
import { castTo } from "../ops/cast/cast.js";
import {
  activation as act,
  activationBackward,
  gated as gate,
  gatedBackward,
} from "../ops/elementwise/activation.js";
import { sigmoid as logistic, multiply as product, add as sum } from "../ops/elementwise/operators.gen.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";

/**
 * Returns x + y. Both have the same shape; the result has the dtype of x. See the operation `add`.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for different shapes, `ArgumentError` for an argument that is not
 * a tensor or for tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function add(x: VariableLike, y: VariableLike): Variable {
  const [left, right] = [variableOf("add", "x", x), variableOf("add", "y", y)];
  return differentiableOne([left, right], () => {
    const [a, b] = [wideOf("add: x", left.value), wideOf("add: y", right.value)];
    return {
      result: sum(a, b),
      backward: (grad) => [grad, castTo(wideOf("add: the gradient", grad), b.dtype)],
    };
  });
}

/**
 * Returns x * y. Both have the same shape; the result has the dtype of x. See the operation `multiply`. The gradient of each
 * factor is the gradient of the result times the other factor: one f32 multiplication, rounded once to the dtype of the factor.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for different shapes, `ArgumentError` for an argument that is not
 * a tensor or for tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function multiply(x: VariableLike, y: VariableLike): Variable {
  const [left, right] = [variableOf("multiply", "x", x), variableOf("multiply", "y", y)];
  return differentiableOne([left, right], () => {
    const [a, b] = [wideOf("multiply: x", left.value), wideOf("multiply: y", right.value)];
    return {
      result: product(a, b),
      backward: (grad) => {
        const gradOutput = wideOf("multiply: the gradient", grad);
        return [
          left.requiresGrad ? product(gradOutput, b, { outDtype: a.dtype }) : undefined,
          right.requiresGrad ? product(gradOutput, a, { outDtype: b.dtype }) : undefined,
        ];
      },
    };
  });
}

/**
 * Returns 1 / (1 + e^-x) for each element, in the dtype of x. See the operation `sigmoid`. The gradient is `activationBackward`
 * of kind `sigmoid` (numerics.md §7.2): the derivative, rounded to f32, times the gradient of the result.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an argument that is not a tensor,
 * `DisposedError` for a disposed tensor.
 */
export function sigmoid(x: VariableLike): Variable {
  const source = variableOf("sigmoid", "x", x);
  return differentiableOne([source], () => {
    const value = wideOf("sigmoid: x", source.value);
    return {
      result: logistic(value),
      backward: (grad) => [
        activationBackward(wideOf("sigmoid: the gradient", grad), value, { kind: "sigmoid" }),
      ],
    };
  });
}

/**
 * Applies the activation function `kind` to each element of x. See the operation `activation`.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an unknown activation or an argument that
 * is not a tensor, `DisposedError` for a disposed tensor.
 */
export function activation(x: VariableLike, kind: ActivationName): Variable {
  const source = variableOf("activation", "x", x);
  return differentiableOne([source], () => {
    const value = wideOf("activation: x", source.value);
    return {
      result: act(value, { kind }),
      backward: (grad) => [activationBackward(wideOf("activation: the gradient", grad), value, { kind })],
    };
  });
}

/**
 * Returns act(a) * g, where a is the first half and g the second half of the last dimension of x [..., 2n]. See the operation
 * `gated`.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for an odd last dimension, `ArgumentError` for an unknown
 * activation or an argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function gated(x: VariableLike, kind: ActivationName): Variable {
  const source = variableOf("gated", "x", x);
  return differentiableOne([source], () => {
    const value = wideOf("gated: x", source.value);
    return {
      result: gate(value, { kind }),
      backward: (grad) => [gatedBackward(wideOf("gated: the gradient", grad), value, { kind })],
    };
  });
}
