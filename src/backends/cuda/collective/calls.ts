/** The declarations of the addon's calls for communicators (native-arguments.ts, native/collective). */
import type { Declarations } from "../native-arguments.js";

const COMM = { comm: "count" } as const;

export const COLLECTIVE_CALLS = {
  /** Combines the parts of several ranks. kernels/collective/fold.h describes their layout in memory. */
  fold: {
    parts: "pointer",
    stride: "count",
    "own?": "pointer",
    "ownAt?": "count",
    ranks: "count",
    type: "wide",
    sumType: "wide",
    maximum: "flag",
    factor: "float",
    out: "pointer",
    count: "count",
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
