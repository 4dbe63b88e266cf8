/** The gradient of the result of one call of a linear layer under a recipe. */
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { Gradient } from "../../tape/value.js";
import { QuantizedTensor, type Usage } from "../../tensor/quantized.js";
import type { Shape, WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type QuantizerOf, RowOperand, withUsage } from "../tensor-parallel/row-operand.js";
import { isChunked } from "../tensor-parallel/rows.js";
import type { GradientTraits, LinearParts } from "./parts.js";
import { wideGrad } from "./products.js";

/** How a gradient is quantized. */
interface GradientQuantization {
  readonly quantizerOf: QuantizerOf;
  readonly usage: Usage;
  /** Whether the bias gradient is summed in the pass that quantizes. */
  readonly isFused: boolean;
  /** Sums the bias gradient in a separate pass. Returns undefined if the bias needs no gradient. */
  readonly biasGrad: () => Tensor<WideDType> | undefined;
  readonly traits: GradientTraits;
  readonly dtype: WideDType;
}

/** The quantized gradient: dgrad reads it rowwise, wgrad columnwise. */
export class GradientOperand {
  /** The shape of this rank's rows. */
  readonly shape: Shape;
  /** The gradient of the bias. Undefined if the bias needs none. */
  readonly bias: Tensor<WideDType> | undefined;
  readonly #rows: RowOperand;
  readonly #usage: Usage;
  /** Whether the quantized gradient is freed as soon as it has been read. */
  readonly #isTemporary: boolean;
  /** The rows that dgrad reads, if `gatherInChunks` was called. */
  #dgradRows: ReturnType<RowOperand["gatherInChunks"]> | undefined;
  #columnwise: QuantizedTensor | undefined;

  constructor({ bias, parallel }: LinearParts, grad: Gradient, settings: GradientQuantization) {
    const { quantizerOf, usage, isFused, biasGrad, traits, dtype } = settings;
    let fusedBiasGrad: Tensor<WideDType> | undefined;
    const quantize = (quantizer: Quantizer): QuantizedTensor => {
      if (grad instanceof QuantizedTensor) return withUsage(grad, quantizer.usage);
      if (!isFused || !bias?.requiresGrad) return quantizer.quantize(grad);
      const sumType = parallel?.biasSumType(bias.dtype) ?? bias.dtype;
      const { out, biasGrad: sums } = quantizer.biasGradQuantize(grad, sumType);
      fusedBiasGrad = parallel?.gradBias(sums, bias.dtype) ?? sums;
      return out;
    };
    const wide = (): Tensor<WideDType> => wideGrad(grad, dtype);
    const { shape } = grad;
    const source = { shape, quantize, wide };
    this.#rows = new RowOperand(parallel?.gathers("gradOutput"), quantizerOf, usage, source);
    this.shape = shape;
    this.#usage = usage;
    this.bias = fusedBiasGrad ?? biasGrad();
    const isCreated = this.local !== grad;
    this.#isTemporary = isCreated || traits.temporary === true;
    if (!traits.temporary) return;
    traits.biasSource?.dispose();
    if (isCreated) grad.dispose();
  }

  /** This rank's rows, or all rows if they were gathered before quantization. */
  get local(): QuantizedTensor {
    return this.#rows.local;
  }

  /** Starts to gather the rows in chunks, and returns the rows that dgrad reads. */
  gatherInChunks(chunks: number): ReturnType<RowOperand["gatherInChunks"]> {
    this.#dgradRows = this.#rows.gatherInChunks(chunks, this.#usage);
    return this.#dgradRows;
  }

  /** Frees the tensors that only dgrad reads. Returns all rows columnwise if wgrad reads them. */
  columnwise(): QuantizedTensor | undefined {
    const rows = this.#dgradRows ?? this.#rows.allRows(this.#usage);
    const allRows = isChunked(rows) ? this.#rows.releaseChunks(this.#usage) : rows;
    if (allRows !== this.local) this.local.dispose();
    if (this.#isTemporary) allRows?.updateUsage({ rowwise: false });
    this.#columnwise = allRows;
    return allRows;
  }

  /** Frees the result of `columnwise`, unless it belongs to the caller of the backward pass. */
  free(): void {
    if (this.#isTemporary) this.#columnwise?.dispose();
  }
}
