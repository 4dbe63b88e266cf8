/**
 * Sums and maxima of tensors on several ranks. The ranks exchange their inputs piece by piece, and one kernel combines the inputs
 * of each piece.
 */

import type { Backend } from "../../backends/backend.js";
import type { DeviceRanks } from "../../backends/exchange.js";
import { memoryOf } from "../../tensor/memory.js";
import { storageBits, type WideDType } from "../../tensor/shape.js";
import { withTemporary } from "../../tensor/storage.js";
import { offsetsOf } from "../arguments.js";
import type { Membership } from "../communicator.js";

/** This rank's view of a group: its rank, the group's size, and the communicator and backend of its device. */
export interface DeviceSide extends Pick<Membership, "rank"> {
  readonly size: number;
  readonly devices: DeviceRanks;
  readonly backend: Backend;
}

/** How the inputs of all ranks are combined. */
export interface Combination {
  readonly dtype: WideDType;
  /** The ranks in the order in which their inputs are added. */
  readonly order: readonly number[];
  /** The dtype of all sums except the last. Undefined: a maximum is computed instead. */
  readonly sum: WideDType | undefined;
  /** The factor of the sum, applied after rounding to `dtype`; 1 for sums and maxima. */
  readonly factor: number;
}

/** A reduction. `x` is the address of this rank's inputs for rank 0, rank 1 and so on. This rank's result is written to `out`. */
export interface PartsReduction extends Combination {
  readonly x: number;
  readonly counts: readonly number[];
  readonly out: number;
  /**
   * The number of pieces. A piece is combined while the next piece is exchanged. Default: as few pieces as memory allows, which
   * was fastest on two H200.
   */
  readonly pieces?: number | undefined;
}

const MIB = 2 ** 20;

/** The maximum number of received bytes that are not combined yet. */
const MAX_RECEIVED = 256 * MIB;

/** Piece sizes are multiples of this many elements, so that pieces of any dtype start at cache lines. */
const GRANULE = 256;

/** Bytes of one element. */
export function elementBytes(dtype: WideDType): number {
  return storageBits(dtype) / 8;
}

export function reduceParts(side: DeviceSide, reduction: PartsReduction): void {
  const { rank, size, devices, backend } = side;
  const { x, counts, out, dtype, order, sum, factor } = reduction;
  const bytes = elementBytes(dtype);
  const maxCount = Math.max(...counts);
  if (maxCount === 0) return;
  const largest = MAX_RECEIVED / bytes / (size - 1);
  const piece = Math.ceil(Math.min(maxCount / (reduction.pieces ?? 1), largest) / GRANULE) * GRANULE;
  const ownCount = counts[rank] as number;
  const offsets = offsetsOf(counts);
  const peers = order.filter((each) => each !== rank);
  const stride = Math.min(piece, Math.ceil(Math.max(ownCount, 1) / GRANULE) * GRANULE);
  const slots = (size - 1) * stride;
  const sets = Math.max(1, Math.min(Math.ceil(maxCount / piece), Math.floor(MAX_RECEIVED / (slots * bytes))));
  withTemporary(memoryOf(backend), sets * slots * bytes, (temporary) => {
    for (let i = 0, start = 0; start < maxCount; i++, start += piece) {
      const countInPiece = (count: number): number => Math.max(0, Math.min(piece, count - start));
      const receiveBuffer = temporary + (i % sets) * slots * bytes;
      // from here on receive buffers are reused, so the exchange must wait for the kernel that reads them
      if (i % sets === 0) devices.begin();
      for (const [slot, peer] of peers.entries()) {
        const sent = countInPiece(counts[peer] as number) * bytes;
        if (sent > 0) devices.send(x + ((offsets[peer] as number) + start) * bytes, sent, peer);
        const receivedBytes = countInPiece(ownCount) * bytes;
        if (receivedBytes > 0) devices.receive(receiveBuffer + slot * stride * bytes, receivedBytes, peer);
      }
      devices.exchange();
      devices.end();
      const ownPart = { address: x + ((offsets[rank] as number) + start) * bytes, at: order.indexOf(rank) };
      const foldArgs = {
        ranks: size,
        dtype,
        sum,
        factor,
        out: out + start * bytes,
        count: countInPiece(ownCount),
      };
      if (foldArgs.count > 0) devices.fold({ parts: receiveBuffer, stride, own: ownPart, ...foldArgs });
    }
  });
}
