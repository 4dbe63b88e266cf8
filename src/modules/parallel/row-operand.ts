/** A quantized operand of products whose rows may be distributed over ranks. */

import type { ProcessGroup } from "../../distributed/group.js";
import { gatherQuantized } from "../../distributed/quantized.js";
import { ArgumentError } from "../../errors.js";
import { blockFormat, isDirectionless, isTensorWide, tileSize, usesTensorAmax } from "../../formats/block.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { QuantizedTensor, QuantizeSpec, Usage } from "../../tensor/quantized.js";
import { asMatrix, type Shape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";

/** The source of an operand. */
export interface OperandSource {
  /** The shape of this rank's part. */
  readonly shape: Shape;
  /** Quantizes this rank's part. */
  readonly quantize: (quantizer: Quantizer) => QuantizedTensor;
  /** Returns this rank's part as f32, bf16 or f16. It is called if rows are gathered before they are quantized. */
  readonly wide: () => Tensor<WideDType>;
}

/** Returns the quantizer of a role: for this rank's part, or for the whole tensor. */
export type QuantizerOf = (whole: boolean) => Quantizer;

/** An operand of which this rank keeps its own rows, and whose rows are gathered for each product. */
export class RowOperand {
  /** The quantized tensor that is kept for the backward pass. */
  readonly own: QuantizedTensor;
  readonly #gather: ((usage: Usage) => QuantizedTensor) | undefined;

  /** `group` has the ranks whose rows form the operand. It is undefined if this rank has all rows. */
  constructor(group: ProcessGroup | undefined, quantizerOf: QuantizerOf, usage: Usage, from: OperandSource) {
    if (!group) {
      this.own = from.quantize(quantizerOf(false).setUsage(usage));
      return;
    }
    const quantizer = quantizerOf(false);
    if (!areWholeBlocks(quantizer.spec, from.shape)) {
      this.own = quantizerOf(true).setUsage(usage).quantize(group.allGather(from.wide()));
      return;
    }
    requireShared(quantizer);
    const sent = isDirectionless(quantizer.spec) ? { rowwise: true, columnwise: false } : usage;
    this.own = from.quantize(quantizer.setUsage(sent));
    this.#gather = (wanted) => gatherQuantized(group, this.own, wanted, quantizer);
  }

  /** Returns all rows, with the copies of `usage`. The result is a new tensor if rows were gathered, else the kept one. */
  copies(usage: Usage): QuantizedTensor {
    return this.#gather?.(usage) ?? this.own;
  }

  /** Frees everything that is not needed for the columnwise copy. */
  keepColumnwise(): void {
    if (!this.#gather || this.own.columnwise) this.own.updateUsage({ rowwise: false });
  }
}

/**
 * Whether no block along M crosses the boundary between two ranks. Otherwise rows are gathered before they are quantized, as in
 * TransformerEngine.
 */
export function areWholeBlocks({ tile }: QuantizeSpec, shape: Shape): boolean {
  return isTensorWide(tile) || asMatrix(shape)[0] % tileSize(tile)[1] === 0;
}

/** Whether no block along M crosses the boundary between two ranks, given the number of rows of each rank. */
export function areWholeBlocksOf({ quantizer, tile }: QuantizeSpec, rows: readonly number[]): boolean {
  if (isTensorWide(tile)) return true;
  const unit = Math.max(tileSize(tile)[1], blockFormat(quantizer).multiple);
  const last = rows.findLastIndex((count) => count > 0);
  return rows.every((count, rank) => rank >= last || count % unit === 0);
}

/** Throws `ArgumentError` for a custom quantizer with which each rank would scale by its own amax. */
function requireShared({ spec, shard }: Quantizer): void {
  if (shard || !usesTensorAmax(spec)) return;
  throw new ArgumentError(
    `linear: sequenceParallel gathers ${spec.quantizer} codes, which need one amax on all ranks; give the custom quantizer { shard: { group, dimension: "rows" } }`,
  );
}
