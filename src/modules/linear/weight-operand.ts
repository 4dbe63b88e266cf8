/** The quantized weight of one call of a linear layer. Each rank may store only some of its rows. */
import { gatherQuantized } from "../../collectives/quantized.js";
import { isDirectionless } from "../../formats/block.js";
import {
  COLUMNWISE,
  QuantizedTensor,
  type QuantizerOps,
  ROWWISE,
  type Usage,
} from "../../tensor/quantized.js";
import type { WeightUse } from "../quantization.js";
import type { Bringing, Sharding } from "../sharding.js";
import { EarlyWeight, WholeWeight } from "../tensor-parallel/weight-ahead.js";
import type { LinearParts } from "./parts.js";

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
  /** All rows as the forward product reads them, if they were brought before this call. */
  #brought: QuantizedTensor | undefined;

  /** `columnwise` says whether the backward pass needs that copy. */
  constructor(parts: LinearParts, use: WeightUse, columnwise: boolean) {
    const { weight, quantization } = parts;
    const { own, sharding } = weight;
    const gathers = sharding !== undefined && quantization.quantizesRows(weight);
    this.made = !(own instanceof QuantizedTensor);
    const early = gathers && this.made ? earlyOf(parts, sharding, use, columnwise) : undefined;
    if (own instanceof QuantizedTensor) this.own = own;
    else if (early) {
      this.own = early.own;
      this.#brought = early.whole;
    } else {
      // if the codes are the same in both directions, only one copy of the rows is kept
      const derives = gathers && isDirectionless(quantization.weightQuantizer(weight).spec);
      this.own = quantization.weight(weight, { ...use, columnwise: columnwise && !derives, gathers });
    }
    if (!gathers) return;
    const gathering = { sharding, ops: quantization.weightQuantizer(weight) };
    this.#gathering = gathering;
    const whole = (usage: Usage) => () => new WholeWeight(this.own, usage, sharding, gathering.ops);
    if (!this.made) sharding.needs(whole(ROWWISE), "here");
    if (columnwise) sharding.needs(whole(COLUMNWISE), "backward");
  }

  /**
   * Returns all rows, with the copies of `usage`. If rows were gathered, the result is a new tensor, which the caller disposes
   * of.
   */
  copies(usage: Usage): QuantizedTensor {
    const { sharding, ops } = this.#gathering ?? {};
    if (!sharding || !ops) return this.own;
    const brought = usage.rowwise ? this.#brought : undefined;
    this.#brought = undefined;
    if (brought) return brought;
    const found = sharding.take((each): each is WholeWeight => isOf(each, this.own, usage));
    return found?.whole() ?? gatherQuantized(sharding.group, this.own, usage, ops, sharding.rows);
  }

  /** Frees the rowwise copy, which the backward pass does not read, unless the columnwise one is derived from it. */
  keepColumnwise(): void {
    if (this.made && this.own.columnwise) this.own.updateUsage({ rowwise: false });
  }
}

function isOf(each: Bringing, own: QuantizedTensor, usage: Usage): boolean {
  return each instanceof WholeWeight && each.own === own && each.usage.rowwise === usage.rowwise;
}

/** The weight, if it was quantized and gathered for this call before; next time it will be. */
function earlyOf(
  { weight, quantization }: LinearParts,
  sharding: Sharding,
  use: WeightUse,
  columnwise: boolean,
): ReturnType<EarlyWeight["taken"]> | undefined {
  if (quantization.quantizesAnew(use)) sharding.needs(() => quantization.early(weight, columnwise), "here");
  const early = sharding.take(
    (each): each is EarlyWeight => each instanceof EarlyWeight && each.of === quantization,
  );
  if (!early) return undefined;
  if (!quantization.quantizesAnew(use) || !quantization.agrees(early, weight, columnwise)) {
    early.dispose();
    return undefined;
  }
  quantization.recordEarly(early);
  return early.taken();
}
