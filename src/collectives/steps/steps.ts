/**
 * The steps of each operation of a group as a generator. It yields the messages to exchange, and a communicator resumes
 * it with the messages it received.
 */
import { DistributedError } from "../../errors.js";
import { memoryOf } from "../../tensor/memory.js";
import type { Tensor } from "../../tensor/tensor.js";
import { sum } from "../arguments.js";
import { bytesOf } from "../bytes.js";
import type { CollectiveArgs, CollectiveName, Communicator, GatherPart } from "../communicator.js";
import { evenSplits } from "../plan.js";
import { combine } from "./fold.js";

/** At most one message to each member and one message from each member; undefined where there is no message. */
export interface Exchange {
  readonly send: readonly (Uint8Array | undefined)[];
  /** The number of bytes expected from each member. */
  readonly expect: readonly (number | undefined)[];
}

/** Yields an exchange, and is resumed with the bytes from each member, including this rank. */
export type Steps = Generator<Exchange, void, readonly Uint8Array[]>;

/** The member that executes the steps. Its memory is accessed when the steps run, not when they are enqueued. */
export type Side = Pick<Communicator, "rank" | "ranks" | "backend">;

const NOTHING = new Uint8Array();

type StepsOf = { readonly [K in CollectiveName]: (side: Side, args: CollectiveArgs[K]) => Steps };

export const STEPS: StepsOf = {
  *allGather(side, { parts }) {
    const shared = concatenate(parts.flatMap(({ shared = [] }) => shared.map((each) => read(side, each))));
    const bytes = concatenate([shared, ...parts.map(({ x }) => read(side, x))]);
    const sizes = (from: number): number[] => parts.map(({ x, counts }) => bytesOf(x, counts[from]));
    const messages = yield exchangeWithAll(
      side,
      () => bytes,
      (from) => shared.length + sum(sizes(from)),
    );
    requireShared(side, parts, shared, messages);
    const pieces = messages.map((bytes, from) => splitBytes(bytes.subarray(shared.length), sizes(from)));
    for (const [i, { out }] of parts.entries())
      writeAll(
        side,
        out,
        pieces.map((each) => each[i] as Uint8Array),
      );
  },
  *reduceScatter(side, { x, counts, reduction, out }) {
    const pieces = splitByCounts(x, read(side, x), counts);
    const ownBytes = bytesOf(x, counts[side.rank]);
    const contributions = yield exchangeWithAll(
      side,
      (to) => pieces[to],
      () => ownBytes,
    );
    writeAll(side, out, [combine(side, x.dtype, contributions, reduction, side.rank)]);
  },
  *allReduce(side, { x, reduction, out }) {
    const counts =
      reduction.reduction === "max" ? evenSplits(x.size, side.ranks.length) : reduction.plan.splits;
    const pieces = splitByCounts(x, read(side, x), counts);
    const ownBytes = bytesOf(x, counts[side.rank]);
    const contributions = yield exchangeWithAll(
      side,
      (to) => pieces[to],
      () => ownBytes,
    );
    const ownResult = combine(side, x.dtype, contributions, reduction, side.rank);
    const results = yield exchangeWithAll(
      side,
      () => ownResult,
      (from) => bytesOf(x, counts[from]),
    );
    writeAll(side, out, results);
  },
  *broadcast(side, { x, root, out }) {
    const bytes = side.rank === root ? read(side, x) : NOTHING;
    const messages = yield exchangeWithAll(
      side,
      () => bytes,
      (from) => (from === root ? x.byteLength : 0),
    );
    writeAll(side, out, [messages[root] as Uint8Array]);
  },
  *allToAll(side, { x, sent, received, out }) {
    const pieces = splitByCounts(x, read(side, x), sent);
    const messages = yield exchangeWithAll(
      side,
      (to) => pieces[to],
      (from) => bytesOf(x, received[from]),
    );
    writeAll(side, out, messages);
  },
  *send(side, { x, to }) {
    const bytes = read(side, x);
    yield exchangeWithPeer(side, to, bytes, 0);
  },
  *recv(side, { out, from }) {
    const messages = yield exchangeWithPeer(side, from, NOTHING, out.byteLength);
    writeAll(side, out, [messages[from] as Uint8Array]);
  },
  *agree(side) {
    yield exchangeWithAll(
      side,
      () => NOTHING,
      () => 0,
    );
  },
};

/** Throws `DistributedError` unless the messages of all ranks begin with the shared tensors of this rank. */
function requireShared(
  { rank, ranks }: Side,
  gatherParts: readonly GatherPart[],
  shared: Uint8Array,
  messages: readonly Uint8Array[],
): void {
  const otherMember = messages.findIndex((message) => shared.some((byte, i) => byte !== message[i]));
  if (otherMember < 0) return;
  const subjects = gatherParts.flatMap(({ subject, shared = [] }) =>
    subject && shared.length > 0 ? [subject] : [],
  );
  const [ownNumber, otherNumber] = [ranks[rank] as number, ranks[otherMember] as number];
  const message = `rank ${otherNumber} has another tensor-wide scale or amax than rank ${ownNumber}, for ${subjects.join(" and ")}; quantize the rows of all ranks with one scale`;
  throw new DistributedError("disagreement", "allGather", otherNumber, message);
}

function exchangeWithAll(
  { ranks }: Side,
  send: (to: number) => Uint8Array | undefined,
  expect: (from: number) => number,
): Exchange {
  return { send: ranks.map((_, to) => send(to)), expect: ranks.map((_, from) => expect(from)) };
}

function exchangeWithPeer({ ranks }: Side, peer: number, send: Uint8Array, expect: number): Exchange {
  return {
    send: ranks.map((_, to) => (to === peer ? send : undefined)),
    expect: ranks.map((_, from) => (from === peer ? expect : undefined)),
  };
}

function read({ backend }: Side, { address, byteLength }: Tensor): Uint8Array {
  return byteLength === 0 ? NOTHING : memoryOf(backend).readSync(address, byteLength);
}

/** Writes the pieces to `out`, one after another. */
function writeAll({ backend }: Side, out: Tensor, pieces: readonly Uint8Array[]): void {
  let address = out.address;
  for (const part of pieces) {
    if (part.length > 0) memoryOf(backend).write(address, part);
    address += part.length;
  }
}

function splitByCounts(x: Tensor, bytes: Uint8Array, counts: readonly number[]): readonly Uint8Array[] {
  return splitBytes(
    bytes,
    counts.map((count) => bytesOf(x, count)),
  );
}

/** Divides bytes into consecutive pieces of these sizes. */
function splitBytes(bytes: Uint8Array, sizes: readonly number[]): readonly Uint8Array[] {
  let offset = 0;
  return sizes.map((size) => {
    offset += size;
    return bytes.subarray(offset - size, offset);
  });
}

/** Concatenates pieces. */
function concatenate(pieces: readonly Uint8Array[]): Uint8Array {
  const [firstPiece, secondPiece] = pieces;
  if (firstPiece && !secondPiece) return firstPiece;
  const bytes = new Uint8Array(sum(pieces.map(({ length }) => length)));
  let offset = 0;
  for (const piece of pieces) {
    bytes.set(piece, offset);
    offset += piece.length;
  }
  return bytes;
}
