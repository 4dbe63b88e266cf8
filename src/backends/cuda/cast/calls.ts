/** The declarations of the addon's calls for casts, amax, digests and fills (native-arguments.ts). */
import type { Declaration } from "../native-arguments.js";
import { OUT, RANDOM, X } from "../shared-arguments.js";

export const CAST_CALLS = {
  encode: {
    ...X,
    out: "pointer",
    word: "word",
    rounding: "rounding",
    overflow: "overflow",
    ...RANDOM,
    scale: "float",
    count: "count",
  },
  decode: { x: "pointer", word: "word", ...OUT, "scale?": "pointer", count: "count" },
  amax: { ...X, out: "pointer", count: "count" },
  sweep: {
    word: "word",
    rounding: "rounding",
    overflow: "overflow",
    ...RANDOM,
    chunk: "count",
    out: "pointer",
  },
  fill: { to: "pointer", bytes: "count", value: "count" },
} as const satisfies Readonly<Record<string, Declaration>>;
