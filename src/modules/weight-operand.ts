/** The quantized weight of one call of a linear layer, all of whose rows may not be on this rank. */
import { gatherQuantized } from "../distributed/quantized.js";
import { isDirectionless } from "../formats/block.js";
import { QuantizedTensor, type QuantizerOps, type Usage } from "../tensor/quantized.js";
import type { LinearParts } from "./linear-parts.js";
import type { WeightUse } from "./quantization.js";
import type { Sharding } from "./sharding.js";

/** What has to be gathered: of a weight that all ranks have rows of, quantized as such. */
interface Gathering {
  readonly sharding: Sharding;
  readonly ops: QuantizerOps;
}

/** The weight as products read it. */
export class WeightOperand {
  /** What is kept for the backward pass: all of the weight, or the rows of this rank. */
  readonly own: QuantizedTensor;
  /** Whether this call has made `own`, rather than the parameter. */
  readonly made: boolean;
  readonly #gathering: Gathering | undefined;

  /** `columnwise`: whether a backward pass will ask for that copy. */
  constructor({ weight, quantization }: LinearParts, use: WeightUse, columnwise: boolean) {
    const { own, sharding } = weight;
    const gathers = sharding !== undefined && quantization.quantizesRows(weight);
    this.made = !(own instanceof QuantizedTensor);
    if (own instanceof QuantizedTensor) this.own = own;
    else {
      // of codes that are the same in both directions, rows are kept once
      const derives = gathers && isDirectionless(quantization.weightQuantizer(weight).spec);
      this.own = quantization.weight(weight, { ...use, columnwise: columnwise && !derives, gathers });
    }
    if (gathers) this.#gathering = { sharding, ops: quantization.weightQuantizer(weight) };
  }

  /** All rows, with those copies; a new tensor where ranks have rows of it, which the caller disposes of. */
  copies(usage: Usage): QuantizedTensor {
    const { sharding, ops } = this.#gathering ?? {};
    return sharding && ops ? gatherQuantized(sharding.group, this.own, usage, ops, sharding.rows) : this.own;
  }

  /** Drops what the columnwise copy does not need, if that is gathered once more. */
  keepColumnwise(): void {
    if (!this.#gathering || !this.made || isDirectionless(this.own.spec)) return;
    if (this.own.columnwise) this.own.updateUsage({ rowwise: false });
  }
}
