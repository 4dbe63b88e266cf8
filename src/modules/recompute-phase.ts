/** Which pass over a recomputed region a call belongs to. */
import { platform } from "#platform";
import { disown } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";

/** The scales of each layer's calls, in their order. */
export type Stash = Map<object, Tensor<"f32">[]>;

/**
 * A region whose forward pass runs twice: `first` without recording, `again` within the backward pass. What a layer
 * put into the stash the first time it takes out again, in the same order, so that both passes give the same bits.
 */
export interface RecomputePhase {
  readonly pass: "first" | "again";
  readonly stash: Stash;
  /** Where what is taken out goes, for a region inside that one which is computed again later. */
  readonly next?: Stash;
}

const phases = platform.ambient<RecomputePhase>();

/** The phase around a call; undefined outside of recomputed regions. */
export function currentPhase(): RecomputePhase | undefined {
  return phases.get();
}

export function runPhase<R>(phase: RecomputePhase, body: () => R): R {
  return phases.run(phase, body);
}

/** The scales that a layer is to repeat, if any, in a call that has `scale`. */
export function repeatedScale(layer: object, scale: Tensor<"f32">): Tensor<"f32"> | undefined {
  const phase = currentPhase();
  if (!phase) return undefined;
  const { pass, stash, next } = phase;
  if (pass === "first") {
    put(stash, layer, scale);
    return undefined;
  }
  const repeated = stash.get(layer)?.shift();
  if (next && repeated) put(next, layer, repeated);
  return repeated;
}

function put(stash: Stash, layer: object, scale: Tensor<"f32">): void {
  const copy = scale.clone();
  // it outlives the scopes of this pass
  disown(copy);
  const copies = stash.get(layer);
  if (copies) copies.push(copy);
  else stash.set(layer, [copy]);
}
