/** The quantized weight of one call of a linear layer. Each rank may store only some of its rows. */
import { gatherQuantized } from "../distributed/quantized.js";
import { isDirectionless } from "../formats/block.js";
import { QuantizedTensor, type QuantizerOps, type Usage } from "../tensor/quantized.js";
import type { LinearParts } from "./linear-parts.js";
import type { WeightUse } from "./quantization.js";
import type { Sharding } from "./sharding.js";

/** Describes a weight that is quantized as rows of each rank and then gathered. */
interface Gathering {
  readonly sharding: Sharding;
  readonly ops: QuantizerOps;
}

/** A quantized weight whose rows are gathered for each product, if this rank stores only some of them. */
export class WeightOperand {
  /** The tensor that is kept for the backward pass: the whole weight, or this rank's rows. */
  readonly own: QuantizedTensor;
  /** Whether this call created `own`. Otherwise the parameter or the cache owns it. */
  readonly made: boolean;
  readonly #gathering: Gathering | undefined;

  /** `columnwise` says whether the backward pass needs that copy. */
  constructor({ weight, quantization }: LinearParts, use: WeightUse, columnwise: boolean) {
    const { own, sharding } = weight;
    const gathers = sharding !== undefined && quantization.quantizesRows(weight);
    this.made = !(own instanceof QuantizedTensor);
    if (own instanceof QuantizedTensor) this.own = own;
    else {
      // if the codes are the same in both directions, only one copy of the rows is kept
      const derives = gathers && isDirectionless(quantization.weightQuantizer(weight).spec);
      this.own = quantization.weight(weight, { ...use, columnwise: columnwise && !derives, gathers });
    }
    if (gathers) this.#gathering = { sharding, ops: quantization.weightQuantizer(weight) };
  }

  /**
   * Returns all rows, with the copies of `usage`. If rows were gathered, the result is a new tensor, which the caller disposes
   * of.
   */
  copies(usage: Usage): QuantizedTensor {
    const { sharding, ops } = this.#gathering ?? {};
    return sharding && ops ? gatherQuantized(sharding.group, this.own, usage, ops, sharding.rows) : this.own;
  }

  /** Frees everything that the columnwise copy does not need, if the weight is gathered again in the backward pass. */
  keepColumnwise(): void {
    if (!this.#gathering || !this.made || isDirectionless(this.own.spec)) return;
    if (this.own.columnwise) this.own.updateUsage({ rowwise: false });
  }
}
