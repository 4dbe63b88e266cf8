/** Sums and maxima of parts that lie on other ranks: they are exchanged, and one kernel combines them, piece by piece. */
import type { Backend } from "../../backends/backend.js";
import type { DeviceRanks } from "../../backends/exchange.js";
import { storageBits, type WideDType } from "../../tensor/shape.js";
import { withTemporary } from "../../tensor/storage.js";
import type { Membership } from "../communicator.js";

/** Ranks, and what this one does with its memory. */
export interface DeviceSide extends Pick<Membership, "rank"> {
  readonly size: number;
  readonly devices: DeviceRanks;
  readonly backend: Backend;
}

/** How parts are combined. */
export interface Combination {
  readonly dtype: WideDType;
  /** Ranks in the order in which their parts are added. */
  readonly order: readonly number[];
  /** The type of each sum but the last; undefined for a maximum. */
  readonly sum: WideDType | undefined;
}

/** What is reduced: the elements of each rank lie one behind the other from `x` on, and this rank's result goes to `out`. */
export interface Reduced extends Combination {
  readonly x: number;
  readonly counts: readonly number[];
  readonly out: number;
  /**
   * How many pieces are exchanged one after the other, while those before are combined. Default: as few as memory allows,
   * which was fastest on two H200.
   */
  readonly pieces?: number | undefined;
}

const MIB = 2 ** 20;

/** Memory for what has come from others and is not combined yet. */
const MOST_WAITING = 256 * MIB;

/** Elements, so that all pieces but the last are whole lines of memory in any type. */
const WHOLE = 256;

/** Bytes of one element. */
export function elementBytes(dtype: WideDType): number {
  return storageBits(dtype) / 8;
}

export function offsetsOf(counts: readonly number[]): readonly number[] {
  let at = 0;
  return counts.map((count) => {
    at += count;
    return at - count;
  });
}

export function reduceParts(side: DeviceSide, reduced: Reduced): void {
  const { rank, size, devices, backend } = side;
  const { x, counts, out, dtype, order, sum } = reduced;
  const bytes = elementBytes(dtype);
  const most = Math.max(...counts);
  if (most === 0) return;
  const largest = MOST_WAITING / bytes / (size - 1);
  const piece = Math.ceil(Math.min(most / (reduced.pieces ?? 1), largest) / WHOLE) * WHOLE;
  const own = counts[rank] as number;
  const begins = offsetsOf(counts);
  const others = order.filter((each) => each !== rank);
  const stride = Math.min(piece, Math.ceil(Math.max(own, 1) / WHOLE) * WHOLE);
  const slots = (size - 1) * stride;
  const sets = Math.max(1, Math.min(Math.ceil(most / piece), Math.floor(MOST_WAITING / (slots * bytes))));
  withTemporary(backend.memory, sets * slots * bytes, (temporary) => {
    for (let i = 0, at = 0; at < most; i++, at += piece) {
      const within = (count: number): number => Math.max(0, Math.min(piece, count - at));
      const parts = temporary + (i % sets) * slots * bytes;
      // memory is used again behind what combines its parts
      if (i % sets === 0) devices.begin();
      for (const [slot, peer] of others.entries()) {
        const sent = within(counts[peer] as number) * bytes;
        if (sent > 0) devices.send(x + ((begins[peer] as number) + at) * bytes, sent, peer);
        const received = within(own) * bytes;
        if (received > 0) devices.receive(parts + slot * stride * bytes, received, peer);
      }
      devices.exchange();
      devices.end();
      const mine = { address: x + ((begins[rank] as number) + at) * bytes, at: order.indexOf(rank) };
      const rest = { ranks: size, dtype, sum, out: out + at * bytes, count: within(own) };
      if (rest.count > 0) devices.fold({ parts, stride, own: mine, ...rest });
    }
  });
}
