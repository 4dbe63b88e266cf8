/** Dropout on a GPU. */
import { dropoutOf } from "../../ops/attention-sizes.js";
import { type Lowering, randomWords } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { RANDOM } from "../shared-arguments.js";

export const DROPOUT_CALLS = {
  /** out[i] = x[i] * keep, or 0 if the 16 random bits of element i of copy 0 are below `threshold`. */
  dropout: {
    x: reads.wide("count"),
    out: writes.wide("count"),
    threshold: "word",
    keep: "float",
    ...RANDOM,
    count: "count",
  },
} as const satisfies Declarations;

export const dropout: Lowering<"dropout"> = {
  run({ addon, device }, { x, probability, random, out }) {
    const source = { x, random: randomWords(random), count: out.size };
    addon.dropout(device, { out, ...source, ...dropoutOf({ probability }) });
  },
};
