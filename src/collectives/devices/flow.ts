/**
 * The number of bytes that each operation sends to each member and expects from each member. Ranks compare these numbers to
 * detect mismatched calls.
 */
import { sum } from "../arguments.js";
import { bytesOf } from "../bytes.js";
import type { CollectiveArgs, CollectiveName, Membership } from "../communicator.js";

/**
 * The number of bytes that this rank sends to a member and expects from it. Undefined if neither of the two members waits for the
 * other.
 */
export interface Flow {
  readonly sends: number;
  readonly expects: number;
}

type FlowOf = {
  readonly [K in CollectiveName]: (
    args: CollectiveArgs[K],
    membership: Membership,
    member: number,
  ) => Flow | undefined;
};

/** The flow of operations whose sizes follow from the compared key. */
const SAME: Flow = { sends: 0, expects: 0 };

export const FLOWS: FlowOf = {
  allGather: ({ parts }, _, member) => ({
    sends: sum(parts.map(({ x }) => x.byteLength)),
    expects: sum(parts.map(({ x, counts }) => bytesOf(x, counts[member]))),
  }),
  reduceScatter: () => SAME,
  allReduce: () => SAME,
  broadcast: () => SAME,
  allToAll: ({ x, sent, received }, _, member) => ({
    sends: bytesOf(x, sent[member]),
    expects: bytesOf(x, received[member]),
  }),
  send: ({ x, to }, _, member) => (member === to ? { sends: x.byteLength, expects: 0 } : undefined),
  recv: ({ out, from }, _, member) => (member === from ? { sends: 0, expects: out.byteLength } : undefined),
  agree: () => SAME,
};
