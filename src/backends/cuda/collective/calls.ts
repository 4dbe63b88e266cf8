/** The declarations of the addon's calls for communicators (native-arguments.ts, native/collective). */
import {
  alignedToElements,
  bounded,
  type Declarations,
  defaulted,
  reads,
  writes,
} from "../native-arguments.js";

const COMM = { comm: "count" } as const;

export const COLLECTIVE_CALLS = {
  /**
   * Combines the parts of `ranks` ranks, arrays of `count` elements, in ascending order of ranks (distributed.md). Part i starts
   * i * stride elements after `parts`. If `own` is given, it is part `ownAt`, and `parts` has only the others, one after the
   * other. `out` may alias `own`. All sums except the last are rounded to `sumType`. If `maximum`, computes maxima instead of
   * sums. If `factor` is not 1, a sum is rounded to `type`, multiplied by it and rounded again.
   */
  fold: {
    parts: alignedToElements(
      reads.bits("stridedElements(1, ranks - (own ? 1 : 0), count, stride)", undefined, "bitsOf(type)"),
    ),
    stride: "count",
    "own?": alignedToElements(reads.bits("count", undefined, "bitsOf(type)")),
    "ownAt?": defaulted("count", "0"),
    ranks: bounded({ from: 1 }),
    type: "wide",
    sumType: "wide",
    maximum: "flag",
    factor: "float",
    out: alignedToElements(writes.bits("count", undefined, "bitsOf(type)")),
    count: "count",
    apart: { condition: "stride >= count", message: "parts overlap" },
    rank: { condition: "ownAt < ranks", message: "ownAt is not below ranks" },
    sums: {
      condition: "sumType == Wide::kF32 || sumType == type",
      message: "sumType is neither f32 nor the type of the parts",
    },
  },
  ncclBegin: COMM,
  ncclEnd: COMM,
  ncclSend: { ...COMM, x: "pointer", bytes: "count", peer: "count" },
  ncclReceive: { ...COMM, out: "pointer", bytes: "count", peer: "count" },
  ncclExchange: COMM,
  /** `bytes` and `count` are the sizes of one rank's data. */
  ncclAllGather: { ...COMM, x: "pointer", out: "pointer", bytes: "count" },
  ncclReduceScatter: { ...COMM, x: "pointer", out: "pointer", type: "wide", count: "count" },
  ncclBroadcast: { ...COMM, x: "pointer", out: "pointer", bytes: "count", root: "count" },
} as const satisfies Declarations;
