/** A quantized operand of products whose rows may be distributed over ranks. */

import { chunksOf } from "../../collectives/by-chunks.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { gatherQuantized, gatherRowsAside, wholeOfCodes } from "../../collectives/quantized.js";
import { ArgumentError } from "../../errors.js";
import { blockFormat, isDirectionless, isTensorWide, tileSize, usesTensorAmax } from "../../formats/block.js";
import { onSideStream } from "../../ops/side-stream.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import {
  COLUMNWISE,
  type QuantizedTensor,
  type QuantizeSpec,
  ROWWISE,
  type Usage,
} from "../../tensor/quantized.js";
import { asMatrix, type Shape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type ArrivingChunk, assembled } from "./rows.js";

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
  readonly #gathered: { readonly group: ProcessGroup; readonly quantizer: Quantizer } | undefined;
  #arriving: readonly ArrivingChunk<QuantizedTensor>[] | undefined;
  #columnwise: QuantizedTensor | undefined;

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
    const sent = isDirectionless(quantizer.spec) ? ROWWISE : usage;
    this.own = from.quantize(quantizer.setUsage(sent));
    this.#gathered = { group, quantizer };
  }

  /** Whether `arrivals` has cut the rows into chunks. */
  get isCut(): boolean {
    return this.#arriving !== undefined;
  }

  /** Returns all rows, with the copies of `usage`. The result is a new tensor if rows were gathered, else the kept one. */
  copies(usage: Usage): QuantizedTensor {
    if (!this.#gathered) return this.own;
    const { group, quantizer } = this.#gathered;
    return gatherQuantized(group, this.own, usage, quantizer);
  }

  /**
   * Starts the exchange of rows and returns the chunks of the rowwise copy. `arrived` must be called when they have been used. If
   * there is one chunk only, or if rows would be sent again for the columnwise copy, it returns what `copies` does instead.
   */
  arrivals(chunks: number, usage: Usage): readonly ArrivingChunk<QuantizedTensor>[] | QuantizedTensor {
    const { own } = this;
    const isSentOnce = isTensorWide(own.spec.tile) || !isDirectionless(own.spec);
    if (!this.#gathered || chunks === 1 || (usage.columnwise && !isSentOnce)) return this.copies(usage);
    const { group } = this.#gathered;
    const [rows] = asMatrix(own.shape);
    const arriving = chunksOf(rows, chunks).map((place) => ({
      place,
      rows: gatherRowsAside(group, own, place),
    }));
    this.#arriving = arriving;
    if (usage.columnwise && !isTensorWide(own.spec.tile))
      this.#columnwise = onSideStream(group.backend, () => this.copies(COLUMNWISE));
    return arriving;
  }

  /** Frees what `arrivals` has brought, and returns all rows in the columnwise copy, if its `usage` has it. */
  arrived(usage: Usage): QuantizedTensor | undefined {
    const chunks = this.#arriving ?? [];
    const whole = usage.columnwise ? (this.#columnwise ?? this.#transposed(chunks)) : undefined;
    for (const { rows } of chunks) rows.dispose();
    return whole;
  }

  #transposed(chunks: readonly ArrivingChunk<QuantizedTensor>[]): QuantizedTensor {
    using codes = assembled(
      chunks.map(({ place, rows }) => ({ place, rows: rows.copy("rowwise").data })),
      this.#gathered?.group.size ?? 1,
    );
    return wholeOfCodes(this.own, codes, COLUMNWISE);
  }

  /** Frees everything that is not needed for the columnwise copy. */
  keepColumnwise(): void {
    if (!this.#gathered || this.own.columnwise) this.own.updateUsage({ rowwise: false });
  }
}

/** Returns a tensor that was given quantized. It can only gain the columnwise copy, derived from the rowwise one. */
export function withUsage(x: QuantizedTensor, { columnwise }: Usage): QuantizedTensor {
  return columnwise ? x.updateUsage({ columnwise }) : x;
}

/**
 * Whether no block along M crosses the boundary between two ranks. Otherwise rows are gathered before they are quantized, as in
 * TransformerEngine.
 */
export function areWholeBlocks({ tile, rowScaled }: QuantizeSpec, shape: Shape): boolean {
  // the amaxes of columns are those of all rows
  return !rowScaled && (isTensorWide(tile) || asMatrix(shape)[0] % tileSize(tile)[1] === 0);
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
