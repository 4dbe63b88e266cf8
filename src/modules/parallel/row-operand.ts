/** A quantized operand of products whose rows may be distributed over ranks. */

import { piecesOf, type RowRange } from "../../distributed/by-pieces.js";
import type { ProcessGroup } from "../../distributed/group.js";
import { gatherQuantized, gatherRowsAside, wholeOfCodes } from "../../distributed/quantized.js";
import { ArgumentError } from "../../errors.js";
import { blockFormat, isDirectionless, isTensorWide, tileSize, usesTensorAmax } from "../../formats/block.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { QuantizedTensor, QuantizeSpec, Usage } from "../../tensor/quantized.js";
import { asMatrix, type Shape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type ArrivingPiece, assembled } from "./rows.js";

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

interface QuantizedPiece {
  readonly place: RowRange;
  readonly rows: QuantizedTensor;
}

const COLUMNWISE: Usage = { rowwise: false, columnwise: true };

/** An operand of which this rank keeps its own rows, and whose rows are gathered for each product. */
export class RowOperand {
  /** The quantized tensor that is kept for the backward pass. */
  readonly own: QuantizedTensor;
  readonly #gathered: { readonly group: ProcessGroup; readonly quantizer: Quantizer } | undefined;
  #arriving: readonly QuantizedPiece[] | undefined;

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
    this.#gathered = { group, quantizer };
  }

  /** Whether this rank has its own rows alone. */
  get isDivided(): boolean {
    return this.#gathered !== undefined;
  }

  /** Returns all rows, with the copies of `usage`. The result is a new tensor if rows were gathered, else the kept one. */
  copies(usage: Usage): QuantizedTensor {
    if (!this.#gathered) return this.own;
    const { group, quantizer } = this.#gathered;
    return gatherQuantized(group, this.own, usage, quantizer);
  }

  /** Starts the exchange of the rowwise copy in pieces. Then `arrived` gives all rows for other uses. */
  arrivals(pieces: number): readonly ArrivingPiece[] | QuantizedTensor {
    if (!this.#gathered) return this.own;
    const { group } = this.#gathered;
    const [rows] = asMatrix(this.own.shape);
    const arriving = piecesOf(rows, pieces).map((place) => ({
      place,
      rows: gatherRowsAside(group, this.own, place),
    }));
    this.#arriving = arriving;
    return arriving;
  }

  /** Frees what `arrivals` has brought, and returns all rows in the columnwise copy, if they are wanted. */
  arrived(wanted: boolean): QuantizedTensor | undefined {
    const pieces = this.#arriving ?? [];
    const whole = wanted ? this.#columnwise(pieces) : undefined;
    for (const { rows } of pieces) rows.dispose();
    return whole;
  }

  #columnwise(pieces: readonly QuantizedPiece[]): QuantizedTensor {
    if (!this.#gathered || !isTensorWide(this.own.spec.tile)) return this.copies(COLUMNWISE);
    const codes = pieces.map(({ place, rows }) => ({ place, rows: rows.copy("rowwise").data }));
    return wholeOfCodes(this.own, assembled(codes, this.#gathered.group.size), COLUMNWISE);
  }

  /** Frees everything that is not needed for the columnwise copy. */
  keepColumnwise(): void {
    if (!this.isDivided || this.own.columnwise) this.own.updateUsage({ rowwise: false });
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
