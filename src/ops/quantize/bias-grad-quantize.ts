/** The fused operation of the quantization of a gradient and the sums of its columns, which are the gradient of a bias. */
import { ShapeError } from "../../errors.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, sameShape, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";
import { type QuantizeInputs, quantization } from "./quantize.js";

const OP = "biasGradQuantize";

/** The results of `Quantizer.biasGradQuantize`. */
export interface BiasGradQuantizeResult {
  /** The quantized gradient. */
  readonly out: QuantizedTensor;
  /** The gradient of the bias: the column sums of the gradient, [K]. */
  readonly biasGrad: Tensor<WideDType>;
}

/**
 * Quantizes `grad` [..., K] into all copies of `target`, which has its shape. Returns the column sums of `grad`, [K], as
 * `columnSum` computes them, rounded to `dtype` (default: the dtype of `grad`). Throws as `quantizeInto` and `columnSum` do.
 */
export function biasGradQuantize(
  grad: Tensor,
  target: QuantizedTensor,
  dtype?: WideDType,
  inputs: Omit<QuantizeInputs, "noop"> = {},
): Tensor<WideDType> {
  const x = requireWide(OP, "grad", grad);
  if (dtype !== undefined) wideDType(OP, "dtype", dtype);
  if (!sameShape(x.shape, target.shape)) {
    throw new ShapeError(`${OP}: grad is [${x.shape}], the target [${target.shape}]; they must be equal`);
  }
  using scope = new Scope();
  const args = quantization(OP, [x], x.dtype, target, inputs);
  const biasGrad = new Tensor(x.backend, dtype ?? x.dtype, [asMatrix(x.shape)[1]]);
  execute(x.backend, "biasGradQuantize", { ...args, x, biasGrad });
  return scope.keep(biasGrad);
}
