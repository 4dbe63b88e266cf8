/** The fused operation of the quantization of a gradient and the sums of its columns, which are the gradient of a bias. */
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { orDispose } from "../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";
import { type QuantizeInputs, requireInputs } from "./quantize.js";
import { allocateQuantized, type QuantizedLayout } from "./target.js";

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
 *
 * @shared
 */
export function biasGradQuantize(
  grad: Tensor,
  dtype: WideDType | undefined,
  layout: QuantizedLayout,
  inputs: Omit<QuantizeInputs, "noop">,
): BiasGradQuantizeResult {
  const x = requireWide(OP, "grad", grad);
  if (dtype !== undefined) wideDType(OP, "dtype", dtype);
  const checkedInputs = requireInputs(OP, x, layout, inputs);
  const { backend, shape } = x;
  return orDispose((allocated) => {
    const out = allocateQuantized(backend, shape, x.dtype, layout, allocated);
    const biasGrad = new Tensor(backend, dtype ?? x.dtype, [asMatrix(shape)[1]]);
    allocated.push(biasGrad);
    const { rowwise, columnwise } = out;
    execute(backend, OP, { x, ...checkedInputs, rowwise, columnwise, biasGrad });
    return { out, biasGrad };
  });
}
