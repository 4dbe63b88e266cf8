/** Descriptions of calls that ranks compare: a key that must be equal on all ranks, and a string for error messages. */
import { DistributedError } from "../errors.js";
import type { Tensor } from "../tensor/tensor.js";
import type { CollectiveArgs, CollectiveName, GatherPart, Membership, Reduction } from "./communicator.js";

/** The description of a call, which every message of the call carries. */
export interface Call {
  /** The name of the method. */
  readonly operation: string;
  /** The call as error messages name it. */
  readonly text: string;
  /** The parts of the call that must be equal on all ranks. */
  readonly key: string;
}

type CallOf = {
  readonly [K in CollectiveName]: (
    args: CollectiveArgs[K],
    membership: Membership,
  ) => readonly [operation: string, details: string];
};

/**
 * For each operation: its name, and the arguments that must be equal on all ranks, as a string. Sizes that may differ between
 * ranks are left out, because the lengths of the messages are compared.
 */
const DETAILS: CallOf = {
  allGather: ({ parts, subject }) => [
    "allGather",
    `of ${parts.map(partText).join(" and ")}${subjectSuffix(subject)}`,
  ],
  reduceScatter: ({ x, counts, reduction, subject }) => [
    "reduceScatter",
    `of ${x.dtype} [${x.shape}]${subjectSuffix(subject)} to ${counts} elements, ${wordsOf(reduction)}`,
  ],
  allReduce: ({ x, reduction, subject }) => [
    "allReduce",
    `of ${x.dtype} [${x.shape}]${subjectSuffix(subject)}, ${wordsOf(reduction)}`,
  ],
  broadcast: ({ x, root, subject }) => [
    "broadcast",
    `of ${x.dtype} [${x.shape}]${subjectSuffix(subject)}, from rank ${root}`,
  ],
  allToAll: ({ x }) => ["allToAll", `of ${x.dtype} ${rowsOf(x)}`],
  send: ({ x, to, subject }, { rank }) => [
    "send",
    `of ${x.dtype} [${x.shape}] from ${rank} to ${to}${subjectSuffix(subject)}`,
  ],
  recv: ({ out, from, subject }, { rank }) => [
    "recv",
    `of ${out.dtype} [${out.shape}] from ${from} to ${rank}${subjectSuffix(subject)}`,
  ],
  agree: ({ what, text }) => [what, text],
};

/** The common name of operations that match each other: a send matches a recv. */
const SHARED: Readonly<Record<string, string>> = { send: "message", recv: "message" };

/** Returns the description of a call of this member. */
export function callOf<K extends CollectiveName>(
  op: K,
  args: CollectiveArgs[K],
  membership: Membership,
): Call {
  const [operation, details] = DETAILS[op](args, membership);
  const description = details === "" ? operation : `${operation} ${details}`;
  return { operation, text: description, key: `${SHARED[operation] ?? operation} ${details}` };
}

function partText({ x, counts, subject }: GatherPart): string {
  return `${x.dtype} ${rowsOf(x)} with ${counts} elements${subjectSuffix(subject)}`;
}

/** The shape of a tensor without its first dimension, whose size may differ between ranks. */
function rowsOf({ shape }: Tensor): string {
  return `[${["...", ...shape.slice(1)]}]`;
}

function subjectSuffix(subject: string | undefined): string {
  return subject === undefined ? "" : ` for ${subject}`;
}

function wordsOf(reduction: Reduction): string {
  if (reduction.reduction === "max") return "max";
  const { algorithm, order, sum, splits } = reduction.plan;
  return `${reduction.reduction} ${algorithm} [${order}] in ${sum}, splits [${splits}]`;
}

/** A message from another member. */
export interface Message {
  readonly call: Call;
  readonly bytes: Uint8Array;
}

/** Returns the error if the message from member `from` does not match this call, or undefined if it does. */
export function disagreement(
  { rank, ranks }: Membership,
  call: Call,
  from: number,
  { call: theirCall, bytes }: { readonly call: Call; readonly bytes: { readonly length: number } },
  expected: number,
): DistributedError | undefined {
  const [ownRank, peerRank] = [ranks[rank] as number, ranks[from] as number];
  if (theirCall.key !== call.key) {
    const message = `rank ${peerRank} called ${theirCall.text} where rank ${ownRank} called ${call.text}; all ranks of a group make the same calls in the same order`;
    return new DistributedError("disagreement", call.operation, peerRank, message);
  }
  if (bytes.length === expected) return undefined;
  const message = `rank ${peerRank} sent ${bytes.length} bytes where rank ${ownRank} expects ${expected}, in ${call.text}; give the same rows on both`;
  return new DistributedError("disagreement", call.operation, peerRank, message);
}
