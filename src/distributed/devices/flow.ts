/** How many bytes each operation sends to and expects from each member, by which ranks notice that they disagree. */
import { bytesOf } from "../bytes.js";
import type { CollectiveArgs, CollectiveName, Membership } from "../communicator.js";

/** Bytes to and from one member; none where neither waits for the other. */
export interface Flow {
  readonly sends: number;
  readonly expects: number;
}

type FlowOf = {
  readonly [K in CollectiveName]: (
    args: CollectiveArgs[K],
    of: Membership,
    member: number,
  ) => Flow | undefined;
};

/** What all have to say alike decides how many bytes go. */
const SAME: Flow = { sends: 0, expects: 0 };

export const FLOWS: FlowOf = {
  allGather: ({ x, counts }, _, member) => ({ sends: x.byteLength, expects: bytesOf(x, counts[member]) }),
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
