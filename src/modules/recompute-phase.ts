/** Which pass over a recomputed region a call belongs to. */
import { platform } from "#platform";
import type { Tensor } from "../tensor/tensor.js";

/**
 * A region whose forward pass runs twice: `first` without recording, `again` within the backward pass. What a layer
 * put into the stash the first time it takes out again, in the same order, so that both passes give the same bits.
 */
export interface RecomputePhase {
  readonly pass: "first" | "again";
  readonly stash: Map<object, Tensor<"f32">[]>;
}

const phases = platform.ambient<RecomputePhase>();

/** The phase around a call; undefined outside of recomputed regions. */
export function currentPhase(): RecomputePhase | undefined {
  return phases.get();
}

export function runPhase<R>(phase: RecomputePhase, body: () => R): R {
  return phases.run(phase, body);
}
