/** A quantizer that reports its quantizations. */
import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import { hasGivenScale } from "../formats/block.js";
import { castTo } from "../ops/cast/cast.js";
import type { ActivationQuantizeOptions } from "../ops/quantize/activation-quantize.js";
import type { BiasGradQuantizeResult } from "../ops/quantize/bias-grad-quantize.js";
import type { NormQuantizeResult } from "../ops/quantize/norm-quantize.js";
import { layerNorm, type NormParameters, rmsNorm } from "../ops/rows/norm.js";
import type {
  GivenRandomBits,
  QuantizeCall,
  QuantizedCopy,
  QuantizedTensor,
  Usage,
} from "../tensor/quantized.js";
import { requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { activated, Quantizer } from "./quantizer.js";

/** @shared Receives the quantizations of an `ObservedQuantizer`. */
export interface QuantizationObserver {
  /** Whether the next quantization is to be reported. */
  isActive(): boolean;
  /** `source` has the values that were quantized. Both tensors belong to the caller. */
  record(quantized: QuantizedTensor, source: Tensor<WideDType>): void;
}

/**
 * Quantizes by another quantizer, with the same bits, and reports each quantization to an observer. The values that a fused
 * operation quantizes are computed a second time for the observer.
 *
 * @shared
 */
export class ObservedQuantizer extends Quantizer {
  static {
    guardReceivers(this);
  }

  readonly #quantizer: Quantizer;
  readonly #observer: QuantizationObserver;

  constructor(quantizer: Quantizer, observer: QuantizationObserver) {
    super(quantizer.spec, { shard: quantizer.shard });
    this.#quantizer = quantizer;
    this.#observer = observer;
  }

  override get usage(): Usage {
    return this.#quantizer.usage;
  }

  override setUsage(usage: Partial<Usage>): this {
    this.#quantizer.setUsage(usage);
    return this;
  }

  override makeEmpty(backend: Backend, shape: Shape, dtype?: WideDType): QuantizedTensor {
    return this.#quantizer.makeEmpty(backend, shape, dtype);
  }

  override quantize(x: Tensor, call?: GivenRandomBits): QuantizedTensor {
    return this.#reported(this.#quantizer.quantize(x, call), () => x);
  }

  override amaxesOf(x: Tensor): readonly Tensor<"f32">[] {
    return this.#quantizer.amaxesOf(x);
  }

  override quantizeBy(x: Tensor, amaxes: readonly Tensor<"f32">[]): QuantizedTensor {
    return this.#reported(this.#quantizer.quantizeBy(x, amaxes), () => x);
  }

  override activationQuantize(x: Tensor, options: ActivationQuantizeOptions): QuantizedTensor {
    const result = this.#quantizer.activationQuantize(x, options);
    return this.#reported(result, () => this.#unrounded(activated(x, options), options.grad ?? x));
  }

  override normQuantize(x: Tensor, norm: NormParameters): NormQuantizeResult {
    const result = this.#quantizer.normQuantize(x, norm);
    this.#reported(result.out, () => this.#unrounded(normValues(x, norm), x));
    return result;
  }

  override biasGradQuantize(grad: Tensor, dtype?: WideDType): BiasGradQuantizeResult {
    const result = this.#quantizer.biasGradQuantize(grad, dtype);
    this.#reported(result.out, () => grad);
    return result;
  }

  override updateQuantized(source: Tensor, target: QuantizedTensor, call: QuantizeCall = {}): void {
    this.#quantizer.updateQuantized(source, target, call);
    const { noop } = call;
    if (this.#observer.isActive() && noop?.dataSync()[0] !== 1) this.#report(target, () => source);
  }

  override dequantize(t: QuantizedTensor, dtype?: WideDType): Tensor<WideDType> {
    return this.#quantizer.dequantize(t, dtype);
  }

  override deriveColumnwise(t: QuantizedTensor): QuantizedCopy {
    return this.#quantizer.deriveColumnwise(t);
  }

  /** Reports a quantization and returns its result. */
  #reported(quantized: QuantizedTensor, source: () => Tensor): QuantizedTensor {
    if (!this.#observer.isActive()) return quantized;
    try {
      this.#report(quantized, source);
      return quantized;
    } catch (error) {
      quantized.dispose();
      throw error;
    }
  }

  #report(quantized: QuantizedTensor, source: () => Tensor): void {
    using _ = new Scope();
    this.#observer.record(quantized, requireWide("quantize", "x", source()));
  }

  /**
   * Returns the values that a fused operation quantizes: the f32 values under a given scale, else values rounded to the dtype of
   * `like`.
   */
  #unrounded(values: Tensor<WideDType>, like: Tensor): Tensor<WideDType> {
    return hasGivenScale(this.spec) ? values : castTo(values, requireWide("quantize", "x", like).dtype);
  }
}

/** The f32 values of a norm. */
function normValues(x: Tensor, { gamma, beta, ...options }: NormParameters): Tensor<WideDType> {
  const form = { ...options, outDtype: "f32" } as const;
  return (beta ? layerNorm(x, gamma, beta, form) : rmsNorm(x, gamma, form)).out;
}
