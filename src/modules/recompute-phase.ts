/** Which of the two runs of a recomputed region a call belongs to. */
import { platform } from "#platform";
import type { HeldCall } from "./recompute-call.js";

/** The held calls of each layer, in call order. */
export type HeldCalls = Map<object, HeldCall[]>;

/**
 * A region whose forward pass runs twice: `first` without recording, `again` within the backward pass. Layers append their
 * calls to `calls` in the first run and take them out in the same order in the second, so that both runs give the same bits.
 */
export interface RecomputePhase {
  readonly pass: "first" | "again";
  readonly calls: HeldCalls;
  /** Receives the calls taken out in the second run, for a nested region that will itself run again. */
  readonly next?: HeldCalls;
}

const phases = platform.ambient<RecomputePhase>();

/** The phase of the recomputed region that is running; undefined outside of all. */
export function currentPhase(): RecomputePhase | undefined {
  return phases.get();
}

export function runPhase<R>(phase: RecomputePhase, body: () => R): R {
  return phases.run(phase, body);
}

/** Appends a call to those of its layer. */
export function holdCall(calls: HeldCalls, layer: object, call: HeldCall): void {
  const before = calls.get(layer);
  if (before) before.push(call);
  else calls.set(layer, [call]);
}

/** Takes out the held call that a layer's call in the second run repeats; undefined if there is none. */
export function repeatedCall({ calls, next }: RecomputePhase, layer: object): HeldCall | undefined {
  const call = calls.get(layer)?.shift();
  if (next && call) holdCall(next, layer, call);
  return call;
}
