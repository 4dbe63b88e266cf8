/** Attention on a GPU: there is no kernel yet. */
import type { Lowering } from "../lowering.js";

const REASON = "the CUDA backend has no attention kernel yet; use dotProductAttention, or the wasm backend";

export const attention: Lowering<"attention"> = {
  supports: () => ({ ok: false, reason: REASON }),
  run() {},
};

export const attentionBackward: Lowering<"attentionBackward"> = {
  supports: () => ({ ok: false, reason: REASON }),
  run() {},
};
