/** A norm and the quantization of its result, as one operation. */
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { orDispose } from "../../tensor/scope.js";
import type { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";
import { allocateStatistics, type NormParameters, type NormStatistics, normSource } from "../rows/norm.js";
import { type QuantizeInputs, requireInputs } from "./quantize.js";
import { allocateQuantized, type QuantizedLayout } from "./target.js";

const OP = "normQuantize";

/** The codes of a norm, and what its backward pass takes. */
export interface NormQuantizeResult extends NormStatistics {
  /** The norm of x, quantized. */
  readonly out: QuantizedTensor;
}

/**
 * The norm of the rows of x, quantized into a new tensor. What is rounded before the codes is the quantizer's choice
 * (numerics.md §7.3). Throws as the norm and `quantize` do.
 */
export function normQuantize(
  x: Tensor,
  norm: NormParameters,
  layout: QuantizedLayout,
  inputs: Omit<QuantizeInputs, "noop">,
): NormQuantizeResult {
  const source = normSource(OP, x, norm);
  const { x: rows, gamma, beta, eps, zeroCenteredGamma } = source;
  const { spec, random, scale, amaxRecord, amax, amaxColumnwise } = requireInputs(OP, rows, layout, inputs);
  const { backend, shape, dtype } = rows;
  return orDispose((made) => {
    const out = allocateQuantized(backend, shape, dtype, layout, made);
    const { rstd, mean } = allocateStatistics(source, made);
    const { rowwise, columnwise } = out;
    const norm = { x: rows, gamma, beta, eps, zeroCenteredGamma, rstd, mean };
    execute(backend, OP, {
      ...norm,
      spec,
      random,
      rowwise,
      columnwise,
      scale,
      amaxRecord,
      amax,
      amaxColumnwise,
    });
    return mean ? { out, rstd, mean } : { out, rstd };
  });
}
