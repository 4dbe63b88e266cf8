/**
 * What each operation of a group is made of: bytes that go out, bytes that come in, and what is done with them. A communicator
 * drives these generators: it delivers what one yields, and resumes it with what has come.
 */
import { storageBits } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { CollectiveArgs, CollectiveName, Communicator } from "../communicator.js";
import { evenSplits } from "../plan.js";
import { combine } from "./fold.js";

/** One message to and from each of some members; undefined to and from the others. */
export interface Exchange {
  readonly send: readonly (Uint8Array | undefined)[];
  /** How many bytes have to come from each. */
  readonly expect: readonly (number | undefined)[];
}

/** Yields what to exchange, and is resumed with the bytes of each member, this rank's own among them. */
export type Steps = Generator<Exchange, void, readonly Uint8Array[]>;

/** Whose steps they are. Its memory is read and written as the steps are driven, not as they are enqueued. */
export type Side = Pick<Communicator, "rank" | "ranks" | "backend">;

const NOTHING = new Uint8Array();

type StepsOf = { readonly [K in CollectiveName]: (side: Side, args: CollectiveArgs[K]) => Steps };

export const STEPS: StepsOf = {
  *allGather(side, { x, counts, out }) {
    const mine = read(side, x);
    const parts = yield all(
      side,
      () => mine,
      (from) => bytesOf(x, counts[from]),
    );
    writeAll(side, out, parts);
  },
  *reduceScatter(side, { x, counts, reduction, out }) {
    const pieces = cut(x, read(side, x), counts);
    const own = bytesOf(x, counts[side.rank]);
    const parts = yield all(
      side,
      (to) => pieces[to],
      () => own,
    );
    writeAll(side, out, [combine(side, x.dtype, parts, reduction, side.rank)]);
  },
  *allReduce(side, { x, reduction, out }) {
    const counts =
      reduction.reduction === "sum" ? reduction.plan.splits : evenSplits(x.size, side.ranks.length);
    const pieces = cut(x, read(side, x), counts);
    const own = bytesOf(x, counts[side.rank]);
    const parts = yield all(
      side,
      (to) => pieces[to],
      () => own,
    );
    const mine = combine(side, x.dtype, parts, reduction, side.rank);
    const results = yield all(
      side,
      () => mine,
      (from) => bytesOf(x, counts[from]),
    );
    writeAll(side, out, results);
  },
  *broadcast(side, { x, root, out }) {
    const mine = side.rank === root ? read(side, x) : NOTHING;
    const parts = yield all(
      side,
      () => mine,
      (from) => (from === root ? x.byteLength : 0),
    );
    writeAll(side, out, [parts[root] as Uint8Array]);
  },
  *allToAll(side, { x, sent, received, out }) {
    const pieces = cut(x, read(side, x), sent);
    const parts = yield all(
      side,
      (to) => pieces[to],
      (from) => bytesOf(x, received[from]),
    );
    writeAll(side, out, parts);
  },
  *send(side, { x, to }) {
    const mine = read(side, x);
    yield between(side, to, mine, 0);
  },
  *recv(side, { out, from }) {
    const parts = yield between(side, from, NOTHING, out.byteLength);
    writeAll(side, out, [parts[from] as Uint8Array]);
  },
  *agree(side) {
    yield all(
      side,
      () => NOTHING,
      () => 0,
    );
  },
};

function all(
  { ranks }: Side,
  send: (to: number) => Uint8Array | undefined,
  expect: (from: number) => number,
): Exchange {
  return { send: ranks.map((_, to) => send(to)), expect: ranks.map((_, from) => expect(from)) };
}

function between({ ranks }: Side, other: number, send: Uint8Array, expect: number): Exchange {
  return {
    send: ranks.map((_, to) => (to === other ? send : undefined)),
    expect: ranks.map((_, from) => (from === other ? expect : undefined)),
  };
}

function read({ backend }: Side, { address, byteLength }: Tensor): Uint8Array {
  return byteLength === 0 ? NOTHING : backend.memory.readSync(address, byteLength);
}

/** Writes parts one behind the other from the beginning of `out` on. */
function writeAll({ backend }: Side, out: Tensor, parts: readonly Uint8Array[]): void {
  let at = out.address;
  for (const part of parts) {
    if (part.length > 0) backend.memory.write(at, part);
    at += part.length;
  }
}

function cut(x: Tensor, bytes: Uint8Array, counts: readonly number[]): readonly Uint8Array[] {
  let begin = 0;
  return counts.map((count) => {
    const end = begin + bytesOf(x, count);
    const piece = bytes.subarray(begin, end);
    begin = end;
    return piece;
  });
}

function bytesOf({ dtype }: Tensor, count: number | undefined): number {
  return ((count ?? 0) * storageBits(dtype)) / 8;
}
