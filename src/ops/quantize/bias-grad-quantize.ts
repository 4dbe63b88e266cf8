/** The quantization of a gradient and the sums of its columns, as one operation. */
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { orDispose } from "../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";
import { type QuantizeInputs, requireInputs } from "./quantize.js";
import { allocateQuantized, type QuantizedLayout } from "./target.js";

const OP = "biasGradQuantize";

/** A gradient's codes, and the gradient of a bias that was added to each row. */
export interface BiasGradQuantizeResult {
  /** The gradient, quantized. */
  readonly out: QuantizedTensor;
  /** Its column sums, [K]. */
  readonly biasGrad: Tensor<WideDType>;
}

/**
 * `grad` [..., K] quantized into a new tensor, and its `columnSum`, [K], in `dtype`, by default that of `grad`. Throws as
 * `quantize` and `columnSum` do.
 */
export function biasGradQuantize(
  grad: Tensor,
  dtype: WideDType | undefined,
  layout: QuantizedLayout,
  inputs: Omit<QuantizeInputs, "noop">,
): BiasGradQuantizeResult {
  const x = requireWide(OP, "grad", grad);
  if (dtype !== undefined) wideDType(OP, "dtype", dtype);
  const given = requireInputs(OP, x, layout, inputs);
  const { backend, shape } = x;
  return orDispose((made) => {
    const out = allocateQuantized(backend, shape, x.dtype, layout, made);
    const biasGrad = new Tensor(backend, dtype ?? x.dtype, [asMatrix(shape)[1]]);
    made.push(biasGrad);
    const { rowwise, columnwise } = out;
    execute(backend, OP, { x, ...given, rowwise, columnwise, biasGrad });
    return { out, biasGrad };
  });
}
