/** The quantized weight that a linear layer caches over the microbatches of a step. */
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import type { Tensor } from "../../tensor/tensor.js";
import { persistent } from "../parameter.js";

/** How one forward pass uses the cached quantized weight. The names are TransformerEngine's. */
export interface WeightUse {
  /**
   * If true, the weight is quantized and cached. If false, the cached weight is used. If undefined, the weight is quantized for
   * this call only, unless `skipFp8WeightUpdate` is given.
   */
  readonly isFirstMicrobatch?: boolean | undefined;
  /** An f32 [1] tensor, read on the device. The cached weight is quantized again unless the element is exactly 1. */
  readonly skipFp8WeightUpdate?: Tensor<"f32"> | undefined;
}

/** Whether a call takes the quantized weight from the cache, which it may update first. */
export function isCached({ isFirstMicrobatch, skipFp8WeightUpdate }: WeightUse): boolean {
  return isFirstMicrobatch !== undefined || skipFp8WeightUpdate !== undefined;
}

/** The data of the quantized weight that one call needs. Rowwise data is always needed. */
export interface WeightRequest extends WeightUse {
  /** Whether dgrad will run. dgrad reads the columnwise data. */
  readonly columnwise: boolean;
  /** Whether the columnwise data is derived from the rowwise data, which then serves both. Default false. */
  readonly derivesColumnwise?: boolean | undefined;
  /** Whether only the columnwise copy is made. Default false. */
  readonly onlyColumnwise?: boolean | undefined;
  /** Whether this rank quantizes only its own rows, whose codes are gathered later. Default false. */
  readonly gathersCodes?: boolean | undefined;
}

/** Calls `run` with the quantizer and the unquantized values of a weight, and records the amax of the full weight. */
export type QuantizeWeight = <R>(run: (quantizer: Quantizer, values: Tensor) => R) => R;

/** Quantizes a weight with the copies that a call needs. */
export function quantizedWeight(
  { columnwise, derivesColumnwise = false, onlyColumnwise = false }: WeightRequest,
  quantize: QuantizeWeight,
): QuantizedTensor {
  const usage = { rowwise: !onlyColumnwise, columnwise: columnwise && !derivesColumnwise };
  return quantize((quantizer, values) => quantizer.setUsage(usage).quantize(values));
}

/** The cached weight of one layer. */
export class WeightCache {
  #weight: QuantizedTensor | undefined;
  /** Whether the call that cached the weight needed columnwise data. */
  #servesDgrad = false;

  /** Returns the cached weight after creating or updating it as `request` says. */
  update(request: WeightRequest, quantize: QuantizeWeight): QuantizedTensor {
    const { isFirstMicrobatch, skipFp8WeightUpdate, columnwise } = request;
    const cachedWeight = this.#weight;
    // A later call that needs columnwise data quantizes the weight again, even if the data could be derived from the cached
    // weight: a weight that ranks share and one of a single process must be quantized at the same times.
    if (cachedWeight && (this.#servesDgrad || !columnwise)) {
      const noop = isFirstMicrobatch ? undefined : skipFp8WeightUpdate;
      if (isFirstMicrobatch || noop)
        quantize((quantizer, values) =>
          quantizer.updateQuantized(values, cachedWeight, noop ? { noop } : {}),
        );
      return cachedWeight;
    }
    const weight = quantizedWeight(request, quantize);
    this.clear();
    this.#weight = persistent(weight);
    this.#servesDgrad = columnwise;
    return weight;
  }

  /** Frees the cached weight. */
  clear(): void {
    this.#weight?.dispose();
    this.#weight = undefined;
  }
}
