/** Which pass over a recomputed region a call belongs to. */
import { platform } from "#platform";
import type { HeldCall } from "./recompute-call.js";

/** What the calls of each layer have quantized with, in their order. */
export type HeldCalls = Map<object, HeldCall[]>;

/**
 * A region whose forward pass runs twice: `first` without recording, `again` within the backward pass. What a layer
 * put into `calls` the first time it takes out again, in the same order, so that both passes give the same bits.
 */
export interface RecomputePhase {
  readonly pass: "first" | "again";
  readonly calls: HeldCalls;
  /** Where what is taken out goes, for a region inside that one which is computed again later. */
  readonly next?: HeldCalls;
}

const phases = platform.ambient<RecomputePhase>();

/** The phase around a call; undefined outside of recomputed regions. */
export function currentPhase(): RecomputePhase | undefined {
  return phases.get();
}

export function runPhase<R>(phase: RecomputePhase, body: () => R): R {
  return phases.run(phase, body);
}

/** Puts what a layer's call quantizes with behind that of its calls before. */
export function holdCall(calls: HeldCalls, layer: object, call: HeldCall): void {
  const before = calls.get(layer);
  if (before) before.push(call);
  else calls.set(layer, [call]);
}

/** What the call of a layer that is computed again has quantized with; undefined where there was none. */
export function repeatedCall({ calls, next }: RecomputePhase, layer: object): HeldCall | undefined {
  const call = calls.get(layer)?.shift();
  if (next && call) holdCall(next, layer, call);
  return call;
}
