/** A quantized operand of products whose rows may be distributed over ranks. */

import { chunksOf } from "../../collectives/by-chunks.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { gatherQuantized, gatherRowsOnSideStream, quantizedFromCodes } from "../../collectives/quantized.js";
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
import { assembleRows, type GatheredChunk } from "./rows.js";

/** The source of an operand. */
export interface OperandSource {
  /** The shape of this rank's part. */
  readonly shape: Shape;
  /** Quantizes this rank's part. */
  readonly quantize: (quantizer: Quantizer) => QuantizedTensor;
  /** Returns this rank's part as f32, bf16 or f16. It is called if rows are gathered before they are quantized. */
  readonly wide: () => Tensor<WideDType>;
}

/** Returns the quantizer of a role. `gathered` says that the tensor consists of the rows of all ranks. */
export type QuantizerOf = (gathered: boolean) => Quantizer;

/** A quantized operand. If its rows are divided among ranks, each rank keeps its own rows and gathers all rows for a product. */
export class RowOperand {
  /** The quantized tensor that is kept for the backward pass: this rank's rows, or all rows. */
  readonly local: QuantizedTensor;
  /** The ranks that have the other rows. Undefined if `local` has all rows. */
  readonly #sharded: { readonly group: ProcessGroup; readonly quantizer: Quantizer } | undefined;
  #chunks: readonly GatheredChunk<QuantizedTensor>[] | undefined;
  #columnwise: QuantizedTensor | undefined;

  /** `group` has the ranks whose rows form the operand. It is undefined if this rank has all rows. */
  constructor(
    group: ProcessGroup | undefined,
    quantizerOf: QuantizerOf,
    usage: Usage,
    source: OperandSource,
  ) {
    if (!group) {
      this.local = source.quantize(quantizerOf(false).setUsage(usage));
      return;
    }
    const quantizer = quantizerOf(false);
    if (!areWholeBlocks(quantizer.spec, source.shape)) {
      this.local = quantizerOf(true).setUsage(usage).quantize(group.allGather(source.wide()));
      return;
    }
    requireSharedAmax(quantizer);
    const sentUsage = isDirectionless(quantizer.spec) ? ROWWISE : usage;
    this.local = source.quantize(quantizer.setUsage(sentUsage));
    this.#sharded = { group, quantizer };
  }

  /** Whether `gatherInChunks` has divided the rows into chunks. */
  get isChunked(): boolean {
    return this.#chunks !== undefined;
  }

  /** Returns all rows, in the copies of `usage`: `local`, or a new tensor if rows were gathered. */
  allRows(usage: Usage): QuantizedTensor {
    if (!this.#sharded) return this.local;
    const { group, quantizer } = this.#sharded;
    return gatherQuantized(group, this.local, usage, quantizer);
  }

  /**
   * Starts to gather the rows and returns the chunks of the rowwise copy. Call `releaseChunks` when they have been used. Returns
   * `allRows(usage)` instead for one chunk, or if rows would be sent a second time for the columnwise copy.
   */
  gatherInChunks(chunks: number, usage: Usage): readonly GatheredChunk<QuantizedTensor>[] | QuantizedTensor {
    const { local } = this;
    const isTensorScaled = isTensorWide(local.spec.tile);
    const sendsTwice = usage.columnwise && !isTensorScaled && isDirectionless(local.spec);
    if (!this.#sharded || chunks === 1 || sendsTwice) return this.allRows(usage);
    const { group } = this.#sharded;
    const [rows] = asMatrix(local.shape);
    const gatheredChunks = chunksOf(rows, chunks).map((range) => ({
      range,
      rows: gatherRowsOnSideStream(group, local, range),
    }));
    this.#chunks = gatheredChunks;
    if (usage.columnwise && !isTensorScaled)
      this.#columnwise = onSideStream(group.backend, () => this.allRows(COLUMNWISE));
    return gatheredChunks;
  }

  /** Frees the chunks of `gatherInChunks`. Returns all rows in the columnwise copy if `usage` has it. */
  releaseChunks(usage: Usage): QuantizedTensor | undefined {
    const chunks = this.#chunks ?? [];
    const columnwise = usage.columnwise ? (this.#columnwise ?? this.#transposeChunks(chunks)) : undefined;
    for (const { rows } of chunks) rows.dispose();
    return columnwise;
  }

  /** Derives the columnwise copy of all rows from the chunks of the rowwise copy. */
  #transposeChunks(chunks: readonly GatheredChunk<QuantizedTensor>[]): QuantizedTensor {
    using codes = assembleRows(
      chunks.map(({ range, rows }) => ({ range, rows: rows.copy("rowwise").data })),
      this.#sharded?.group.size ?? 1,
    );
    return quantizedFromCodes(this.local, codes, COLUMNWISE);
  }

  /** Frees the data that the columnwise copy of all rows does not need. */
  keepColumnwise(): void {
    if (!this.#sharded || this.local.columnwise) this.local.updateUsage({ rowwise: false });
  }
}

/** Returns a quantized input with the copies of a usage. The columnwise copy must follow from the rowwise one. */
export function withUsage(x: QuantizedTensor, { columnwise }: Usage): QuantizedTensor {
  return columnwise ? x.updateUsage({ columnwise }) : x;
}

/**
 * Whether no block along M crosses the boundary between two ranks that have matrices of this shape. Otherwise rows are gathered
 * before they are quantized, as in TransformerEngine.
 */
export function areWholeBlocks({ tile, rowScaled }: QuantizeSpec, shape: Shape): boolean {
  // with rowScaled, the amax of a column depends on the rows of all ranks
  return !rowScaled && (isTensorWide(tile) || asMatrix(shape)[0] % tileSize(tile)[1] === 0);
}

/** As `areWholeBlocks`, for ranks with these numbers of rows. */
export function areCompleteBlocks({ quantizer, tile }: QuantizeSpec, rows: readonly number[]): boolean {
  if (isTensorWide(tile)) return true;
  const blockRows = Math.max(tileSize(tile)[1], blockFormat(quantizer).multiple);
  const last = rows.findLastIndex((count) => count > 0);
  return rows.every((count, rank) => rank >= last || count % blockRows === 0);
}

/** Throws `ArgumentError` for a custom quantizer with which each rank would scale by the amax of its own rows. */
function requireSharedAmax({ spec, shard }: Quantizer): void {
  if (shard || !usesTensorAmax(spec)) return;
  throw new ArgumentError(
    `linear: sequenceParallel gathers ${spec.quantizer} codes, which need one amax on all ranks; give the custom quantizer { shard: { group, dimension: "rows" } }`,
  );
}
