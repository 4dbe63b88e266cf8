/** The fused operation of a norm and the quantization of its result. */
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { orDispose } from "../../tensor/scope.js";
import type { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";
import { allocateStatistics, type NormParameters, type NormStatistics, normSource } from "../rows/norm.js";
import { type QuantizeInputs, requireInputs } from "./quantize.js";
import { allocateQuantized, type QuantizedLayout } from "./target.js";

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
 *
 * @shared
 */
export function normQuantize(
  x: Tensor,
  norm: NormParameters,
  layout: QuantizedLayout,
  inputs: Omit<QuantizeInputs, "noop">,
): NormQuantizeResult {
  const source = normSource(OP, x, norm);
  const { x: rows, gamma, beta, eps, zeroCenteredGamma } = source;
  const checkedInputs = requireInputs(OP, rows, layout, inputs);
  const { backend, shape, dtype } = rows;
  return orDispose((allocated) => {
    const out = allocateQuantized(backend, shape, dtype, layout, allocated);
    const { rstd, mean } = allocateStatistics(source, allocated);
    const { rowwise, columnwise } = out;
    const norm = { x: rows, gamma, beta, eps, zeroCenteredGamma, rstd, mean };
    execute(backend, OP, { ...norm, ...checkedInputs, rowwise, columnwise });
    return mean ? { out, rstd, mean } : { out, rstd };
  });
}
