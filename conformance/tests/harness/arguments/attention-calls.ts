/** Valid calls of attention, which the operation and the differentiable function share. */
import type { World } from "./world.js";

/** q, k and v of attention: two sequences of three queries and five keys, four heads that share two heads of keys. */
export const projections = (w: World) =>
  [w.tensor("bf16", [2, 3, 4, 16]), w.tensor("bf16", [2, 5, 2, 16]), w.tensor("bf16", [2, 5, 2, 8])] as const;
export const attentionOptions = (w: World) => ({
  layout: "bshd" as const,
  datapath: "hopper" as const,
  scale: 0.25,
  causal: true,
  align: "end" as const,
  window: [4, 0] as const,
  mask: w.tensor("u8", [2, 1, 3, 5]),
  queryLengths: w.tensor("i32", [2]),
  keyLengths: w.tensor("i32", [2]),
  bias: w.tensor("bf16", [1, 4, 3, 5]),
  biasPlace: "beforeScale" as const,
  alibiSlopes: w.tensor("f32", [4]),
  softcap: 30,
  sinks: w.tensor("f32", [4]),
  dropout: { probability: 0.5, seed: 1n, offset: 2n, allHeads: 8, firstHead: 2 },
  plan: { blockKeys: 32, splitKeys: 64 },
});
/** The tokens of two sequences one after the other. */
export const tokens = (w: World) =>
  [w.tensor("bf16", [6, 4, 16]), w.tensor("bf16", [6, 2, 16]), w.tensor("bf16", [6, 2, 8])] as const;
export const tokenOptions = (w: World) => ({
  layout: "thd" as const,
  cuQueries: w.tensor("i32", [3]),
  cuKeys: w.tensor("i32", [3]),
  cuPaddedQueries: w.tensor("i32", [3]),
  cuPaddedKeys: w.tensor("i32", [3]),
});
export const ATTENTION_NUMBERS = {
  "options.scale": "above",
  "options.softcap": "above",
  "options.window.0": "integer",
  "options.window.1": "integer",
  "options.dropout.probability": "rate",
  "options.dropout.allHeads": "count",
  "options.dropout.firstHead": "index",
  "options.plan.blockKeys": "count",
  "options.plan.splitKeys": "index",
} as const;
