/** The fused operation of a norm and the quantization of its result. */
import { ShapeError } from "../../errors.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { sameShape } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";
import { keptStatistics, type NormParameters, type NormStatistics, normCall } from "../rows/norm.js";
import { type QuantizeInputs, quantization } from "./quantize.js";

const OP = "normQuantize";

/** The results of `Quantizer.normQuantize`: the quantized norm, and the statistics that its backward pass needs. */
export interface NormQuantizeResult extends NormStatistics {
  /** The quantized norm of x. */
  readonly out: QuantizedTensor;
}

/**
 * Computes the norm of the rows of x and quantizes it into all copies of `target`, which has the shape of x. Returns the
 * statistics of the norm. The quantizer decides whether the f32 values or rounded ones are quantized (numerics.md §7.3). Throws
 * as the norm and `quantizeInto` do.
 */
export function normQuantize(
  x: Tensor,
  target: QuantizedTensor,
  norm: NormParameters,
  inputs: Omit<QuantizeInputs, "noop"> = {},
): NormStatistics {
  requireWide(OP, "x", x);
  if (!sameShape(x.shape, target.shape)) {
    throw new ShapeError(`${OP}: x is [${x.shape}], the target [${target.shape}]; they must be equal`);
  }
  using scope = new Scope();
  const source = normCall(OP, x, norm);
  const { gamma, beta } = source;
  const args = quantization(OP, [source.x, gamma, beta], source.x.dtype, target, inputs);
  execute(x.backend, "normQuantize", { ...args, ...source });
  return keptStatistics(scope, source);
}
