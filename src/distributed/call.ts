/** Calls as ranks tell each other of them: what has to be the same on both sides, and how a person would say it. */
import { DistributedError } from "../errors.js";
import type { Tensor } from "../tensor/tensor.js";
import type { CollectiveArgs, CollectiveName, Membership, Reduction } from "./communicator.js";

/** What goes with every message. */
export interface Call {
  /** The name of the method. */
  readonly operation: string;
  /** The call in words. */
  readonly text: string;
  /** Equal on both sides of every message of a call. */
  readonly key: string;
}

type CallOf = {
  readonly [K in CollectiveName]: (
    args: CollectiveArgs[K],
    of: Membership,
  ) => readonly [operation: string, details: string];
};

/** What ranks have to agree on, as text. Sizes that differ between ranks are no part of it: the length of each message is. */
const DETAILS: CallOf = {
  allGather: ({ x, counts }) => ["allGather", `of ${x.dtype} ${rowsOf(x)} with ${counts} elements`],
  reduceScatter: ({ x, counts, reduction }) => [
    "reduceScatter",
    `of ${x.dtype} [${x.shape}] to ${counts} elements, ${wordsOf(reduction)}`,
  ],
  allReduce: ({ x, reduction }) => ["allReduce", `of ${x.dtype} [${x.shape}], ${wordsOf(reduction)}`],
  broadcast: ({ x, root }) => ["broadcast", `of ${x.dtype} [${x.shape}] from ${root}`],
  allToAll: ({ x }) => ["allToAll", `of ${x.dtype} ${rowsOf(x)}`],
  send: ({ x, to }, { rank }) => ["send", `of ${x.dtype} [${x.shape}] from ${rank} to ${to}`],
  recv: ({ out, from }, { rank }) => ["recv", `of ${out.dtype} [${out.shape}] from ${from} to ${rank}`],
  agree: ({ what, text }) => [what, text],
};

/** A send and its receive are two sides of one call. */
const SHARED: Readonly<Record<string, string>> = { send: "message", recv: "message" };

/** The call of this member. */
export function callOf<K extends CollectiveName>(op: K, args: CollectiveArgs[K], of: Membership): Call {
  const [operation, details] = DETAILS[op](args, of);
  const text = details === "" ? operation : `${operation} ${details}`;
  return { operation, text, key: `${SHARED[operation] ?? operation} ${details}` };
}

/** Rows of dimensions that all ranks have alike; how many there are is of each. */
function rowsOf({ shape }: Tensor): string {
  return `[${["...", ...shape.slice(1)]}]`;
}

function wordsOf(how: Reduction): string {
  if (how.reduction === "max") return "max";
  const { algorithm, order, sum, splits } = how.plan;
  return `sum ${algorithm} [${order}] in ${sum}, splits [${splits}]`;
}

/** What has come from another member. */
export interface Message {
  readonly call: Call;
  readonly bytes: Uint8Array;
}

/** Why what came from member `from` is not what this call expects; undefined where it is. */
export function disagreement(
  { rank, ranks }: Membership,
  call: Call,
  from: number,
  { call: theirs, bytes }: { readonly call: Call; readonly bytes: { readonly length: number } },
  expected: number,
): DistributedError | undefined {
  const [here, there] = [ranks[rank] as number, ranks[from] as number];
  if (theirs.key !== call.key) {
    const message = `rank ${there} called ${theirs.text} where rank ${here} called ${call.text}; all ranks of a group make the same calls in the same order`;
    return new DistributedError("disagreement", call.operation, there, message);
  }
  if (bytes.length === expected) return undefined;
  const message = `rank ${there} sent ${bytes.length} bytes where rank ${here} expects ${expected}, in ${call.text}; give the same rows on both`;
  return new DistributedError("disagreement", call.operation, there, message);
}
