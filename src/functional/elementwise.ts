/** Sums, shapes and activations of variables. */

import type { ActivationName } from "../backends/ops.js";
import { castTo } from "../ops/cast/cast.js";
import {
  activation as act,
  activationBackward,
  gated as gate,
  gatedBackward,
} from "../ops/elementwise/activation.js";
import { add as sum } from "../ops/elementwise/add.js";
import { wideOf } from "../tape/value.js";
import { differentiableOne, type Variable, type VariableLike, variable } from "../tape/variable.js";
import { ownShape, type Shape } from "../tensor/shape.js";

/** x + y, of one shape; the type of x. See the operation `add`. */
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

/** The same elements in another shape. */
export function reshape(x: VariableLike, shape: Shape): Variable {
  const own = ownShape(shape);
  const source = variable(x);
  return differentiableOne([source], () => ({
    result: wideOf("reshape: x", source.value).reshape(own),
    backward: (grad) => [wideOf("reshape: the gradient", grad).reshape(source.shape)],
  }));
}

/** act(x), element by element. See the operation `activation`. */
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

/** act(a) * g of x [..., 2n] = a | g. See the operation `gated`. */
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
