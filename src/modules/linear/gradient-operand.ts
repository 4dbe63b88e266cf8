/** The gradient of the result of one call of a linear layer under a recipe. */
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { Gradient } from "../../tape/value.js";
import { QuantizedTensor, type Usage } from "../../tensor/quantized.js";
import type { Shape, WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type QuantizerOf, RowOperand, withUsage } from "../tensor-parallel/row-operand.js";
import { isArriving } from "../tensor-parallel/rows.js";
import type { GivenGradient, LinearParts } from "./parts.js";
import { wideGrad } from "./products.js";

/** How a gradient is quantized. */
interface GradientQuantization {
  readonly quantizerOf: QuantizerOf;
  readonly usage: Usage;
  /** Whether the bias gradient is summed in the pass that quantizes. */
  readonly isFused: boolean;
  /** Sums the bias gradient in a pass of its own. */
  readonly biasGrad: () => Tensor<WideDType> | undefined;
  readonly given: GivenGradient;
  readonly dtype: WideDType;
}

/** The quantized gradient: dgrad reads it rowwise, wgrad columnwise. */
export class GradientOperand {
  /** The shape of this rank's part. */
  readonly shape: Shape;
  /** The gradient of the bias, if it is wanted. */
  readonly bias: Tensor<WideDType> | undefined;
  readonly #rows: RowOperand;
  readonly #usage: Usage;
  /** Whether the quantized gradient is freed as soon as it has been read. */
  readonly #isTemporary: boolean;
  #arriving: ReturnType<RowOperand["arrivals"]> | undefined;
  #columns: QuantizedTensor | undefined;

  constructor({ bias, parallel }: LinearParts, grad: Gradient, how: GradientQuantization) {
    const { quantizerOf, usage, isFused, biasGrad, given, dtype } = how;
    let sums: Tensor<WideDType> | undefined;
    const quantize = (quantizer: Quantizer): QuantizedTensor => {
      if (grad instanceof QuantizedTensor) return withUsage(grad, quantizer.usage);
      if (!isFused || !bias?.requiresGrad) return quantizer.quantize(grad);
      const { out, biasGrad } = quantizer.biasGradQuantize(
        grad,
        parallel?.biasSumType(bias.dtype) ?? bias.dtype,
      );
      sums = parallel?.gradBias(biasGrad, bias.dtype) ?? biasGrad;
      return out;
    };
    const wide = (): Tensor<WideDType> => wideGrad(grad, dtype);
    const { shape } = grad;
    const source = { shape, quantize, wide };
    this.#rows = new RowOperand(parallel?.gathers("gradOutput"), quantizerOf, usage, source);
    this.shape = shape;
    this.#usage = usage;
    this.bias = sums ?? biasGrad();
    const isOther = this.own !== grad;
    this.#isTemporary = isOther || given.temporary === true;
    if (!given.temporary) return;
    given.summed?.dispose();
    if (isOther) grad.dispose();
  }

  /** This rank's part, or all rows. */
  get own(): QuantizedTensor {
    return this.#rows.own;
  }

  /** Starts the exchange of rows in chunks, and returns what dgrad reads. */
  arrivals(chunks: number): ReturnType<RowOperand["arrivals"]> {
    this.#arriving = this.#rows.arrivals(chunks, this.#usage);
    return this.#arriving;
  }

  /** Frees what dgrad alone reads, and returns all rows columnwise, if wgrad reads them. */
  columns(): QuantizedTensor | undefined {
    const arriving = this.#arriving ?? this.#rows.copies(this.#usage);
    const whole = isArriving(arriving) ? this.#rows.arrived(this.#usage) : arriving;
    if (whole !== this.own) this.own.dispose();
    if (this.#isTemporary) whole?.updateUsage({ rowwise: false });
    this.#columns = whole;
    return whole;
  }

  /** Frees what `columns` has returned, if it is this operand's. */
  free(): void {
    if (this.#isTemporary) this.#columns?.dispose();
  }
}
