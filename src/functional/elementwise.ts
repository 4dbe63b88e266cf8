/** Differentiable sums, reshapes and activations. */

import type { ActivationName } from "../backends/ops.js";
import { castTo } from "../ops/cast/cast.js";
import {
  activation as act,
  activationBackward,
  gated as gate,
  gatedBackward,
} from "../ops/elementwise/activation.js";
import { add as sum } from "../ops/elementwise/add.js";
import { differentiableOne, type VariableLike, variable } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { ownShape, type Shape } from "../tensor/shape.js";

/**
 * x + y, of one shape; the type of x. See the operation `add`.
 *
 * @throws `DTypeError` for a type that it does not take, `ShapeError` for shapes that do not fit each other, `ArgumentError`
 * for anything but a tensor, an option outside its domain or tensors on different backends, `DisposedError` for a tensor that
 * was disposed of.
 */
export function add(x: VariableLike, y: VariableLike): Variable {
  const [left, right] = [variable(x), variable(y)];
  return differentiableOne([left, right], () => {
    const [a, b] = [wideOf("add: x", left.value), wideOf("add: y", right.value)];
    return {
      result: sum(a, b),
      backward: (grad) => [grad, castTo(wideOf("add: the gradient", grad), b.dtype)],
    };
  });
}

/**
 * The same elements in another shape.
 *
 * @throws `ShapeError` for a shape of another number of elements, `DTypeError` for a tensor that is not of a wide type,
 * `ArgumentError` for anything but a tensor, `DisposedError` for a tensor that was disposed of.
 */
export function reshape(x: VariableLike, shape: Shape): Variable {
  const own = ownShape(shape);
  const source = variable(x);
  return differentiableOne([source], () => ({
    result: wideOf("reshape: x", source.value).reshape(own),
    backward: (grad) => [wideOf("reshape: the gradient", grad).reshape(source.shape)],
  }));
}

/**
 * act(x), element by element. See the operation `activation`.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ArgumentError` for an unknown activation and for anything but
 * a tensor, `DisposedError` for a tensor that was disposed of.
 */
export function activation(x: VariableLike, kind: ActivationName): Variable {
  const source = variable(x);
  return differentiableOne([source], () => {
    const value = wideOf("activation: x", source.value);
    return {
      result: act(value, { kind }),
      backward: (grad) => [activationBackward(wideOf("activation: the gradient", grad), value, { kind })],
    };
  });
}

/**
 * act(a) * g of x [..., 2n] = a | g. See the operation `gated`.
 *
 * @throws `DTypeError` for a type that it does not take, `ShapeError` for shapes that do not fit each other, `ArgumentError`
 * for anything but a tensor, an option outside its domain or tensors on different backends, `DisposedError` for a tensor that
 * was disposed of.
 */
export function gated(x: VariableLike, kind: ActivationName): Variable {
  const source = variable(x);
  return differentiableOne([source], () => {
    const value = wideOf("gated: x", source.value);
    return {
      result: gate(value, { kind }),
      backward: (grad) => [gatedBackward(wideOf("gated: the gradient", grad), value, { kind })],
    };
  });
}
