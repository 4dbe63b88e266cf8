/** A quantized operand of products, of which ranks may have rows. */

import type { ProcessGroup } from "../../distributed/group.js";
import { gatherQuantized } from "../../distributed/quantized.js";
import { ArgumentError } from "../../errors.js";
import { blockFormat, isDirectionless, isTensorWide, tileSize } from "../../formats/block.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import { usesTensorAmax } from "../../quantizers/shard.js";
import type { QuantizedTensor, QuantizeSpec, Usage } from "../../tensor/quantized.js";
import { asMatrix, type Shape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";

/** Where an operand comes from. */
export interface OperandSource {
  /** Of what this rank has. */
  readonly shape: Shape;
  /** Quantizes what this rank has. */
  readonly quantize: (quantizer: Quantizer) => QuantizedTensor;
  /** What this rank has, in its wide type; asked for where rows are gathered before they are quantized. */
  readonly wide: () => Tensor<WideDType>;
}

/** The quantizers of a role: of what this rank has, or of the whole. */
export type QuantizerOf = (whole: boolean) => Quantizer;

/** An operand as products read it. */
export class RowOperand {
  /** What is kept for the backward pass. */
  readonly own: QuantizedTensor;
  readonly #gather: ((usage: Usage) => QuantizedTensor) | undefined;

  /** `group`: the ranks whose rows make the operand; undefined where this rank has all of them. */
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

  /** All rows, with those copies. A new tensor where ranks have rows of it, else what is kept. */
  copies(usage: Usage): QuantizedTensor {
    return this.#gather?.(usage) ?? this.own;
  }

  /** Drops what the columnwise copy does not need. */
  keepColumnwise(): void {
    if (!this.#gather || this.own.columnwise) this.own.updateUsage({ rowwise: false });
  }
}

/** Whether blocks along M do not straddle ranks; otherwise rows are gathered in high precision, as in TransformerEngine. */
export function areWholeBlocks({ tile }: QuantizeSpec, shape: Shape): boolean {
  return isTensorWide(tile) || asMatrix(shape)[0] % tileSize(tile)[1] === 0;
}

/** Whether blocks along M do not straddle ranks that have as many rows as `rows` says, one behind the other. */
export function areWholeBlocksOf({ quantizer, tile }: QuantizeSpec, rows: readonly number[]): boolean {
  if (isTensorWide(tile)) return true;
  const unit = Math.max(tileSize(tile)[1], blockFormat(quantizer).multiple);
  const last = rows.findLastIndex((count) => count > 0);
  return rows.every((count, rank) => rank >= last || count % unit === 0);
}

/** Throws `ArgumentError` for a custom quantizer by which each rank would scale by an amax of its own. */
function requireShared({ spec, shard }: Quantizer): void {
  if (shard || !usesTensorAmax(spec)) return;
  throw new ArgumentError(
    `linear: sequenceParallel gathers ${spec.quantizer} codes, which need one amax on all ranks; give the custom quantizer { shard: { group, dimension: "rows" } }`,
  );
}
