/** The quantized weight of one call of a linear layer. Each rank may store only some of its rows. */
import { gatherQuantized } from "../../collectives/quantized.js";
import { isDirectionless } from "../../formats/block.js";
import type { PendingGather, Sharding } from "../../tape/sharding.js";
import {
  COLUMNWISE,
  QuantizedTensor,
  type QuantizerOps,
  ROWWISE,
  type Usage,
} from "../../tensor/quantized.js";
import type { LinearParts } from "./parts.js";
import { PendingQuantizedWeight, PendingWeight } from "./pending-weight.js";
import type { WeightUse } from "./weight-cache.js";

/** A quantized weight. If this rank stores only some of its rows, all rows are gathered for each product. */
export class WeightOperand {
  /** The tensor that is kept for the backward pass: the full weight, or this rank's rows. */
  readonly local: QuantizedTensor;
  /** Whether this call created `local`. Otherwise the parameter or the cache owns it. */
  readonly isTemporary: boolean;
  /** Set if each rank quantizes its rows and the codes are gathered. */
  readonly #sharded: { readonly sharding: Sharding; readonly quantizer: QuantizerOps } | undefined;
  /** The full weight with the copy that the forward product reads, if it was prefetched. */
  #prefetched: QuantizedTensor | undefined;

  /** `columnwise` says whether the backward pass needs the columnwise copy. */
  constructor(layer: LinearParts, use: WeightUse, columnwise: boolean) {
    const { weight, quantization } = layer;
    const { localValue, sharding } = weight;
    const gathersCodes = sharding !== undefined && quantization.quantizesRows(weight);
    const isStored = localValue instanceof QuantizedTensor;
    const prefetched =
      gathersCodes && !isStored ? takePrefetched(layer, sharding, use, columnwise) : undefined;
    // the copy is derived after the all-gather, if rowwise and columnwise codes are the same
    if (isStored) {
      const derivesLater = gathersCodes && isDirectionless(localValue.spec);
      this.local = columnwise && !derivesLater ? withColumnwise(localValue) : localValue;
    } else if (prefetched) {
      this.local = prefetched.local;
      this.#prefetched = prefetched.fullWeight;
    } else {
      // if rowwise and columnwise codes are the same, the columnwise copy is derived after the all-gather
      const derives = gathersCodes && isDirectionless(quantization.weightQuantizer(weight).spec);
      this.local = quantization.weight(weight, {
        ...use,
        columnwise,
        derivesColumnwise: derives,
        gathersCodes,
      });
    }
    this.isTemporary = this.local !== localValue;
    if (!gathersCodes) return;
    const quantizer = quantization.weightQuantizer(weight);
    this.#sharded = { sharding, quantizer };
    const startGather = (usage: Usage) => () => new PendingWeight(this.local, usage, sharding, quantizer);
    if (!this.isTemporary) sharding.registerGather(startGather(ROWWISE), "operation");
    if (columnwise) sharding.registerGather(startGather(COLUMNWISE), "backward");
  }

  /**
   * Returns all rows, in the copies of `usage`: `local`, or a new tensor if rows were gathered. The caller disposes of a new
   * one.
   */
  allRows(usage: Usage): QuantizedTensor {
    const { local } = this;
    const { sharding, quantizer } = this.#sharded ?? {};
    if (!sharding || !quantizer) return local;
    const prefetched = usage.rowwise ? this.#prefetched : undefined;
    this.#prefetched = undefined;
    if (prefetched) return prefetched;
    const matches = (gather: PendingGather): gather is PendingWeight =>
      gather instanceof PendingWeight && gather.local === local && gather.usage.rowwise === usage.rowwise;
    return (
      sharding.takePrefetched(matches)?.take() ??
      gatherQuantized(sharding.group, local, usage, quantizer, sharding.rowsPerRank)
    );
  }

  /** Frees the rowwise copy, which the backward pass does not read. It is kept if the columnwise copy is derived from it. */
  keepColumnwise(): void {
    if (this.isTemporary && this.local.columnwise) this.local.updateUsage({ rowwise: false });
  }
}

/**
 * Returns a stored weight with both copies. If it has only rowwise codes, the result is a new handle that shares them, and has a
 * columnwise copy that is derived from them. The open scope owns that handle.
 */
export function withColumnwise(stored: QuantizedTensor): QuantizedTensor {
  return stored.columnwise ? stored : stored.share().updateUsage({ columnwise: true });
}

/**
 * Takes the prefetched quantized weight, if there is one and this call would quantize the weight in the same way. Registers the
 * weight for prefetch before the next run.
 */
function takePrefetched(
  { weight, quantization }: LinearParts,
  sharding: Sharding,
  use: WeightUse,
  columnwise: boolean,
): ReturnType<PendingQuantizedWeight["take"]> | undefined {
  const canPrefetch = quantization.canPrefetchWeight(use);
  if (canPrefetch)
    sharding.registerGather(() => quantization.startQuantizing(weight, columnwise), "operation");
  const pendingWeight = sharding.takePrefetched(
    (gather): gather is PendingQuantizedWeight =>
      gather instanceof PendingQuantizedWeight && gather.quantization === quantization,
  );
  if (!pendingWeight) return undefined;
  if (!canPrefetch || !quantization.matchesCall(pendingWeight, weight, columnwise)) {
    pendingWeight.dispose();
    return undefined;
  }
  quantization.recordAmax(pendingWeight);
  return pendingWeight.take();
}
