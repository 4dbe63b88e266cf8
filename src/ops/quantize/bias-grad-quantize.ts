/** The quantization of a gradient and the sums of its columns, as one operation. */
import { ShapeError } from "../../errors.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, sameShape, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";
import { type QuantizeInputs, quantization } from "./quantize.js";

const OP = "biasGradQuantize";

/** A gradient's codes, and the gradient of a bias that was added to each row. */
export interface BiasGradQuantizeResult {
  /** The gradient, quantized. */
  readonly out: QuantizedTensor;
  /** Its column sums, [K]. */
  readonly biasGrad: Tensor<WideDType>;
}

/**
 * Quantizes `grad` [..., K] into all copies of `target`, which has its shape, and gives its `columnSum`, [K], in `dtype`, by
 * default that of `grad`. Throws as `quantizeInto` and `columnSum` do.
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
