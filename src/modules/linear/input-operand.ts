/** The input of one call of a linear layer under a recipe. */
import type { Backend } from "../../backends/backend.js";
import { dequantize } from "../../ops/quantize/dequantize.js";
import { onSideStream } from "../../ops/side-stream.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import { type Value, wideOf } from "../../tape/value.js";
import { COLUMNWISE, QuantizedTensor, ROWWISE, type Usage } from "../../tensor/quantized.js";
import type { Shape, WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { areWholeBlocks, RowOperand, withUsage } from "../tensor-parallel/row-operand.js";
import { WideRows } from "../tensor-parallel/rows.js";
import type { LinearInput, LinearParts } from "./parts.js";

/** The form of the input that wgrad reads: the columnwise copy, the unquantized input, or the values of the rowwise copy. */
export type WgradSource = "columnwise" | "original" | "rowwise";

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
  /** The form of the input that wgrad reads. Undefined if the backward pass does not compute wgrad. */
  readonly #source: WgradSource | undefined;
  /** Returns the unquantized input: all rows, in the activation type. */
  readonly #allWideRows: () => Tensor<WideDType>;

  /**
   * Quantizes the input. `value` is the input; it is undefined if the input is computed and quantized in one pass. `source` is
   * the form that wgrad reads, or undefined if the backward pass does not compute wgrad.
   */
  constructor(
    { quantization, parallel, saveOriginalInput }: LinearParts,
    input: LinearInput,
    value: Value | undefined,
    source: WgradSource | undefined,
  ) {
    const { shape, createsValue } = input;
    const group = parallel?.gathers("input");
    // quantizers are read here and not in the backward pass, because a call in between may replace them
    const localQuantizer = quantization.quantizer("input");
    const gatheredQuantizer = group && quantization.quantizer("input", true);
    // an input whose rows are gathered before quantization is quantized only once, so its codes are kept
    const gathersWide = group !== undefined && !areWholeBlocks(localQuantizer.spec, shape);
    // a quantized input has no other values than its codes
    const isQuantized = value instanceof QuantizedTensor;
    this.#source = source === "original" && isQuantized ? "rowwise" : source;
    this.#requantizes = source === "columnwise" && saveOriginalInput && !isQuantized && !gathersWide;
    this.#isKept = source !== undefined && this.#source !== "original" && !this.#requantizes;
    const readWide = (): Tensor<WideDType> => wideOf("linear: the input", value ?? input.value());
    const quantize = (quantizer: Quantizer): QuantizedTensor => {
      if (value instanceof QuantizedTensor) return withUsage(value, quantizer.usage);
      return input.quantize?.(quantizer) ?? quantizer.quantize(readWide());
    };
    const quantizerOf = (gathered: boolean): Quantizer => (gathered && gatheredQuantizer) || localQuantizer;
    this.#quantize = (usage) =>
      new RowOperand(group, quantizerOf, usage, { shape, quantize, wide: readWide });
    this.shape = shape;
    this.rows = this.#quantize({ rowwise: true, columnwise: this.#isKept && source === "columnwise" });
    this.#isTemporary = this.rows.local !== value;
    this.#backend = input.backend;
    this.#allWideRows = () =>
      this.#source === "original"
        ? new WideRows(group, readWide()).allRows()
        : dequantize(this.rows.allRows(ROWWISE), input.dtype);
    const keepsOriginal = this.#requantizes || this.#source === "original";
    this.#original = createsValue && keepsOriginal ? value : undefined;
    if (createsValue && !keepsOriginal && this.#isTemporary) value?.dispose();
  }

  /** Frees all tensors that wgrad does not read. Call it after the forward product. */
  keepForBackward(): void {
    if (!this.#isTemporary) return;
    if (!this.#isKept) this.rows.local.dispose();
    else if (this.#source === "columnwise") this.rows.keepColumnwise();
  }

  /** The tensors that were created for the backward pass only. */
  get saved(): readonly Value[] {
    if (this.#original) return [this.#original];
    return this.#isTemporary && this.#isKept ? [this.rows.local] : [];
  }

  /** Returns all rows in the activation type: the unquantized input, or the values of its rowwise copy. */
  wide(): Tensor<WideDType> {
    return this.#allWideRows();
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
