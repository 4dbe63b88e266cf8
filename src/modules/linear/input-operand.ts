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

/** The columnwise copy of all rows. */
export interface Columns {
  readonly copy: QuantizedTensor;
  /** Frees everything that was made for it. */
  readonly free: () => void;
}

/** The quantized input: the forward product reads it rowwise, wgrad columnwise. */
export class InputOperand {
  /** The shape of this rank's part. */
  readonly shape: Shape;
  readonly rows: RowOperand;
  readonly #backend: Backend;
  /** The unquantized input, if this call made it and wgrad quantizes it again. */
  readonly #original: Value | undefined;
  readonly #requantizes: boolean;
  /** Whether this call created `rows.own`, and whether wgrad reads it. */
  readonly #made: boolean;
  readonly #isKept: boolean;
  readonly #quantized: (usage: Usage) => RowOperand;

  /**
   * Quantizes the input. `given` is the input unless it is computed and quantized in one pass; `wgrad` says whether the backward
   * pass computes that gradient.
   */
  constructor(
    { quantization, parallel, saveOriginalInput }: LinearParts,
    input: LinearInput,
    given: Value | undefined,
    wgrad: boolean,
  ) {
    const { shape, makes } = input;
    const group = parallel?.gathers("input");
    // the quantizers are read here and not in the backward pass, because a call in between may replace them
    const ofRows = quantization.quantizer("input");
    const ofWhole = group && quantization.quantizer("input", true);
    // an input whose rows are gathered before quantization is quantized only once, so its codes are kept
    const isGatheredWide = group !== undefined && !areWholeBlocks(ofRows.spec, shape);
    this.#requantizes = wgrad && saveOriginalInput && !(given instanceof QuantizedTensor) && !isGatheredWide;
    this.#isKept = wgrad && !this.#requantizes;
    const wide = (): Tensor<WideDType> => wideOf("linear: the input", given ?? input.value());
    const quantize = (quantizer: Quantizer): QuantizedTensor => {
      if (given instanceof QuantizedTensor) return withUsage(given, quantizer.usage);
      return input.quantize?.(quantizer) ?? quantizer.quantize(wide());
    };
    this.#quantized = (usage) =>
      new RowOperand(group, (isWhole) => (isWhole && ofWhole) || ofRows, usage, { shape, quantize, wide });
    this.shape = shape;
    this.rows = this.#quantized({ rowwise: true, columnwise: this.#isKept });
    this.#made = this.rows.own !== given;
    this.#backend = input.backend;
    this.#original = makes && this.#requantizes ? given : undefined;
    if (makes && !this.#requantizes && this.#made) given?.dispose();
  }

  /** Frees everything that wgrad does not read. Call it behind the forward product. */
  keepForBackward(): void {
    if (!this.#made) return;
    if (this.#isKept) this.rows.keepColumnwise();
    else this.rows.own.dispose();
  }

  /** The tensors that were created for the backward pass alone. */
  get saved(): readonly Value[] {
    if (this.#original) return [this.#original];
    return this.#made && this.#isKept ? [this.rows.own] : [];
  }

  /** Returns what wgrad reads. `aside` gathers the rows of other ranks on the side stream. */
  columns(aside: boolean): Columns {
    const from = this.#requantizes ? this.#quantized(COLUMNWISE) : this.rows;
    const gathered = (): QuantizedTensor => from.copies(COLUMNWISE);
    const copy = aside ? onSideStream(this.#backend, gathered) : gathered();
    const free = (): void => {
      for (const each of new Set([copy, from.own])) if (each !== this.rows.own) each.dispose();
    };
    return { copy, free };
  }
}
