/** Differentiable elementwise functions. */
import type { ActivationName, SwigluClamp } from "../backends/ops.js";
import { castTo } from "../ops/cast/cast.js";
import { zeros } from "../ops/create.js";
import {
  activation as act,
  activationBackward,
  GATED_OPTIONS,
  gated as gate,
  gatedBackward,
} from "../ops/elementwise/activation.js";
import {
  exp as exponential,
  sigmoid as logistic,
  multiply as product,
  divide as quotient,
  rsqrt as reciprocalRoot,
  sqrtSoftplus as rootOfSoftplus,
  scaled,
  where as selected,
  sqrtSoftplusDerivative,
  add as sum,
} from "../ops/elementwise/operators.gen.js";
import { expand, isExpandable } from "../ops/layout/copy-slice.js";
import { optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { wideDType } from "../tensor/require.js";
import { sameShape, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { sumTo } from "./sum.js";

/**
 * Returns x + y. y is expanded to the shape of x; the result has the dtype of x. See the operations `add` and `expand`. The
 * gradient of y is summed over the dimensions that were repeated.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for a shape of y that cannot be expanded to the shape of x,
 * `ArgumentError` for an argument that is not a tensor or for tensors on different backends, `DisposedError` for a disposed
 * tensor.
 */
export function add(x: VariableLike, y: VariableLike): Variable {
  return binary("add", x, y, {
    compute: sum,
    keepsY: false,
    gradients: (grad) => [() => grad, (dtype) => castTo(grad, dtype)],
  });
}

/**
 * Returns x * y. y is expanded to the shape of x; the result has the dtype of x. See the operations `multiply` and `expand`. The
 * gradient of each factor is the gradient of the result times the other factor: one f32 multiplication, rounded once to the dtype
 * of the factor. If y was expanded, these products are summed in f32 over the dimensions that were repeated.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for a shape of y that cannot be expanded to the shape of x,
 * `ArgumentError` for an argument that is not a tensor or for tensors on different backends, `DisposedError` for a disposed
 * tensor.
 */
export function multiply(x: VariableLike, y: VariableLike): Variable {
  return binary("multiply", x, y, {
    compute: product,
    keepsY: true,
    gradients: (grad, a, b) => [
      (outDtype) => product(grad, b, { outDtype }),
      (outDtype) => product(grad, a, { outDtype }),
    ],
  });
}

/**
 * Returns x / y. y is expanded to the shape of x; the result has the dtype of x. See the operations `divide` and `expand`. The
 * gradient of x is the gradient of the result divided by y. The gradient of y is -(grad * ((x / y) / y)), each operation rounded
 * to f32, then summed over the dimensions that were repeated (numerics.md §7.10).
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for a shape of y that cannot be expanded to the shape of x,
 * `ArgumentError` for an argument that is not a tensor or for tensors on different backends, `DisposedError` for a disposed
 * tensor.
 */
export function divide(x: VariableLike, y: VariableLike): Variable {
  return binary("divide", x, y, {
    compute: quotient,
    keepsY: true,
    gradients: (grad, a, b) => [
      (outDtype) => quotient(grad, b, { outDtype }),
      (outDtype) => {
        const derivative = quotient(quotient(a, b, { outDtype: "f32" }), b);
        return scaled(product(grad, derivative, { outDtype: "f32" }), -1, { outDtype });
      },
    ],
  });
}

/** A function of two tensors of one shape. */
interface Binary {
  readonly compute: (x: Tensor<WideDType>, y: Tensor<WideDType>) => Tensor<WideDType>;
  /** Whether `gradients` reads y. */
  readonly keepsY: boolean;
  /** Returns two functions that compute the gradients of x and y in a dtype. */
  readonly gradients: (
    grad: Tensor<WideDType>,
    x: Tensor<WideDType>,
    y: Tensor<WideDType>,
  ) => readonly [x: Gradient, y: Gradient];
}

type Gradient = (dtype: WideDType) => Tensor<WideDType>;

/** Applies a function of two tensors. y is expanded to the shape of x. */
function binary(caller: string, x: VariableLike, y: VariableLike, f: Binary): Variable {
  const [xVariable, yVariable] = [variableOf(caller, "x", x), variableOf(caller, "y", y)];
  return differentiableOne([xVariable, yVariable], () => {
    const [a, b] = [wideOf(`${caller}: x`, xVariable.value), wideOf(`${caller}: y`, yVariable.value)];
    const isExpanded = !sameShape(a.shape, b.shape) && isExpandable(b.shape, a.shape);
    const { shape, dtype } = b;
    const expanded = isExpanded ? expand(b, a.shape) : b;
    return {
      result: f.compute(a, expanded),
      saved: [isExpanded && f.keepsY ? expanded : undefined],
      backward: (grad) => {
        const [ofX, ofY] = f.gradients(wideOf(`${caller}: the gradient`, grad), a, expanded);
        return [
          xVariable.requiresGrad ? ofX(a.dtype) : undefined,
          yVariable.requiresGrad ? sumTo(shape, dtype, ofY(isExpanded ? "f32" : dtype)) : undefined,
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
 * Returns e^x for each element, in the dtype of x. See the operation `exp`. The gradient is the gradient of the result times the
 * result, as rounded to the dtype of x.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an argument that is not a tensor,
 * `DisposedError` for a disposed tensor.
 */
export function exp(x: VariableLike): Variable {
  return unary("exp", x, exponential, (grad, y) => product(grad, y));
}

/**
 * Returns 1 / sqrt(x) for each element, in the dtype of x. See the operation `rsqrt`. With the result y, as rounded to the dtype
 * of x, the gradient is (grad * ((y * y) * y)) * -1/2, each operation rounded to f32, then to the dtype of x.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an argument that is not a tensor,
 * `DisposedError` for a disposed tensor.
 */
export function rsqrt(x: VariableLike): Variable {
  return unary("rsqrt", x, reciprocalRoot, (grad, y) => {
    const cube = product(product(y, y, { outDtype: "f32" }), y);
    return scaled(product(grad, cube, { outDtype: "f32" }), -1 / 2, { outDtype: y.dtype });
  });
}

/**
 * Returns sqrt(log(1 + e^x)) for each element, in the dtype of x. See the operation `sqrtSoftplus`. The gradient is
 * `sqrtSoftplusDerivative`, rounded to f32, times the gradient of the result.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an argument that is not a tensor,
 * `DisposedError` for a disposed tensor.
 */
export function sqrtSoftplus(x: VariableLike): Variable {
  const source = variableOf("sqrtSoftplus", "x", x);
  return differentiableOne([source], () => {
    const value = wideOf("sqrtSoftplus: x", source.value);
    return {
      result: rootOfSoftplus(value),
      backward: (grad) => {
        const derivative = sqrtSoftplusDerivative(value, { outDtype: "f32" });
        return [product(wideOf("sqrtSoftplus: the gradient", grad), derivative)];
      },
    };
  });
}

/**
 * Applies a function of one tensor. `gradient` computes the gradient of x from y and the gradient of y, where y is the result.
 */
function unary(
  caller: string,
  x: VariableLike,
  compute: (x: Tensor<WideDType>) => Tensor<WideDType>,
  gradient: (grad: Tensor<WideDType>, y: Tensor<WideDType>) => Tensor<WideDType>,
): Variable {
  const source = variableOf(caller, "x", x);
  return differentiableOne([source], () => {
    const result = compute(wideOf(`${caller}: x`, source.value));
    // a handle that lives until the backward pass, whatever happens to the result
    const y = result.reshape(result.shape);
    return {
      result,
      saved: [y],
      backward: (grad) => [gradient(wideOf(`${caller}: the gradient`, grad), y)],
    };
  });
}

/**
 * Returns, for each element, x where `condition` is not 0, else y, in the dtype of x. All have the same shape. See the operation
 * `where`. The gradient of x is the gradient of the result where `condition` is not 0, else +0; the gradient of y is the
 * opposite. There is no gradient of `condition`.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for different shapes, `ArgumentError` for an
 * argument that is not a tensor or for tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function where(condition: VariableLike, x: VariableLike, y: VariableLike): Variable {
  const [flags, left, right] = [
    variableOf("where", "condition", condition),
    variableOf("where", "x", x),
    variableOf("where", "y", y),
  ];
  return differentiableOne([flags, left, right], () => {
    const mask = wideOf("where: condition", flags.value);
    const [a, b] = [wideOf("where: x", left.value), wideOf("where: y", right.value)];
    return {
      result: selected(mask, a, b),
      backward: (grad) => {
        const gradOutput = wideOf("where: the gradient", grad);
        const zero = zeros(gradOutput.backend, gradOutput.dtype, gradOutput.shape);
        return [
          undefined,
          left.requiresGrad ? selected(mask, gradOutput, zero) : undefined,
          right.requiresGrad ? selected(mask, zero, gradOutput, { outDtype: b.dtype }) : undefined,
        ];
      },
    };
  });
}

/**
 * Returns x rounded to `dtype`, to nearest even, with overflow to infinity. The gradient is rounded to the dtype of x in the same
 * way.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for another `dtype` than these, and for an
 * argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function cast(x: VariableLike, dtype: WideDType): Variable {
  wideDType("cast", "dtype", dtype);
  const source = variableOf("cast", "x", x);
  return differentiableOne([source], () => {
    const value = wideOf("cast: x", source.value);
    return {
      result: value.dtype === dtype ? value.reshape(value.shape) : castTo(value, dtype),
      backward: (grad) => [castTo(wideOf("cast: the gradient", grad), value.dtype)],
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

/** Options of `functional.gated`. */
export interface GatedForm {
  /**
   * Computes the clamped form, with these constants. Allowed only for the kind `silu`. Missing fields have the values of
   * `DEFAULT_CLAMP`. Default: not clamped.
   */
  readonly clamp?: Partial<SwigluClamp> | undefined;
}

const checkForm = optionsOf<GatedForm>({ clamp: GATED_OPTIONS.clamp });

/**
 * Returns act(a) * g, where a is the first half and g the second half of the last dimension of x [..., 2n]. See the operation
 * `gated`, also for the clamped form.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for an odd last dimension, `ArgumentError` for an unknown
 * activation, an invalid option, a clamp of another activation than `silu`, or an argument that is not a tensor, `DisposedError`
 * for a disposed tensor.
 */
export function gated(x: VariableLike, kind: ActivationName, options: GatedForm = {}): Variable {
  const { clamp } = checkForm("gated", options);
  const source = variableOf("gated", "x", x);
  return differentiableOne([source], () => {
    const value = wideOf("gated: x", source.value);
    return {
      result: gate(value, { kind, clamp }),
      backward: (grad) => [gatedBackward(wideOf("gated: the gradient", grad), value, { kind, clamp })],
    };
  });
}
