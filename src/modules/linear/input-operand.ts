/** The input of one call of a linear layer under a recipe. */
import type { Backend } from "../../backends/backend.js";
import { onSideStream } from "../../ops/side-stream.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import { type Value, wideOf } from "../../tape/value.js";
import { COLUMNWISE, QuantizedTensor, type Usage } from "../../tensor/quantized.js";
import type { Shape, WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { areWholeBlocks, RowOperand, withUsage } from "../tensor-parallel/row-operand.js";
import type { LinearInput, LinearParts } from "./parts.js";

/** The columnwise copy of all rows of the input, which wgrad reads. */
export interface ColumnwiseInput {
  readonly copy: QuantizedTensor;
  /** Frees all tensors that were created for the copy. */
  readonly free: () => void;
}

/** The quantized input: the forward product reads it rowwise, wgrad columnwise. */
export class InputOperand {
  /** The shape of this rank's rows. */
  readonly shape: Shape;
  readonly rows: RowOperand;
  readonly #backend: Backend;
  /** The unquantized input, if this call created it and wgrad quantizes it again. */
  readonly #original: Value | undefined;
  /** Whether the backward pass quantizes the input again (`saveOriginalInput`). */
  readonly #requantizes: boolean;
  /** Whether this call created the tensors of `rows`. Otherwise they belong to the caller's quantized input. */
  readonly #isTemporary: boolean;
  /** Whether wgrad reads the tensors of `rows`. */
  readonly #isKept: boolean;
  readonly #quantize: (usage: Usage) => RowOperand;

  /**
   * Quantizes the input. `value` is the input; it is undefined if the input is computed and quantized in one pass. `wgrad` says
   * whether the backward pass computes wgrad.
   */
  constructor(
    { quantization, parallel, saveOriginalInput }: LinearParts,
    input: LinearInput,
    value: Value | undefined,
    wgrad: boolean,
  ) {
    const { shape, createsValue } = input;
    const group = parallel?.gathers("input");
    // quantizers are read here and not in the backward pass, because a call in between may replace them
    const localQuantizer = quantization.quantizer("input");
    const gatheredQuantizer = group && quantization.quantizer("input", true);
    // an input whose rows are gathered before quantization is quantized only once, so its codes are kept
    const gathersWide = group !== undefined && !areWholeBlocks(localQuantizer.spec, shape);
    this.#requantizes = wgrad && saveOriginalInput && !(value instanceof QuantizedTensor) && !gathersWide;
    this.#isKept = wgrad && !this.#requantizes;
    const wide = (): Tensor<WideDType> => wideOf("linear: the input", value ?? input.value());
    const quantize = (quantizer: Quantizer): QuantizedTensor => {
      if (value instanceof QuantizedTensor) return withUsage(value, quantizer.usage);
      return input.quantize?.(quantizer) ?? quantizer.quantize(wide());
    };
    const quantizerOf = (gathered: boolean): Quantizer => (gathered && gatheredQuantizer) || localQuantizer;
    this.#quantize = (usage) => new RowOperand(group, quantizerOf, usage, { shape, quantize, wide });
    this.shape = shape;
    this.rows = this.#quantize({ rowwise: true, columnwise: this.#isKept });
    this.#isTemporary = this.rows.local !== value;
    this.#backend = input.backend;
    this.#original = createsValue && this.#requantizes ? value : undefined;
    if (createsValue && !this.#requantizes && this.#isTemporary) value?.dispose();
  }

  /** Frees all tensors that wgrad does not read. Call it after the forward product. */
  keepForBackward(): void {
    if (!this.#isTemporary) return;
    if (this.#isKept) this.rows.keepColumnwise();
    else this.rows.local.dispose();
  }

  /** The tensors that were created for the backward pass only. */
  get saved(): readonly Value[] {
    if (this.#original) return [this.#original];
    return this.#isTemporary && this.#isKept ? [this.rows.local] : [];
  }

  /** Returns the columnwise copy. `onSide` gathers the rows of other ranks on the side stream. */
  columnwise(onSide: boolean): ColumnwiseInput {
    const operand = this.#requantizes ? this.#quantize(COLUMNWISE) : this.rows;
    const gather = (): QuantizedTensor => operand.allRows(COLUMNWISE);
    const copy = onSide ? onSideStream(this.#backend, gather) : gather();
    const free = (): void => {
      for (const each of new Set([copy, operand.local])) if (each !== this.rows.local) each.dispose();
    };
    return { copy, free };
  }
}
