/** The two runs of a recomputed region: which run is active, and the layer calls that the first keeps for the second. */
import { platform } from "#platform";
import type { Value } from "../tape/value.js";

/** A call of a layer in the first run, as the second run repeats it. */
export interface HeldCall {
  /**
   * The tensors kept for the second run. No scope owns them; the region's graph node disposes of them after its backward pass.
   */
  readonly values: readonly Value[];
}

/** The calls of each layer that the second run repeats, in call order. */
export type RecomputeCalls = Map<object, HeldCall[]>;

/**
 * A run of a region whose forward pass runs twice. The run `first` records no graph. The run `again` is a part of the backward
 * pass. In the first run, layers append their calls to `calls`. In the second run they remove these calls in the same order, so
 * that both runs compute the same bits.
 */
export interface RecomputePhase {
  readonly pass: "first" | "again";
  readonly calls: RecomputeCalls;
  /** Receives the calls that the second run removes. Set for a nested region, which will itself run again. */
  readonly next?: RecomputeCalls;
}

const phases = platform.ambient<RecomputePhase>();

/** Returns the phase of the recomputed region that is running, or undefined outside such regions. */
export function currentPhase(): RecomputePhase | undefined {
  return phases.get();
}

export function runPhase<R>(phase: RecomputePhase, body: () => R): R {
  return phases.run(phase, body);
}

/** Appends `call` to the calls of `layer` for the second run. */
export function appendCall(calls: RecomputeCalls, layer: object, call: HeldCall): void {
  const layerCalls = calls.get(layer);
  if (layerCalls) layerCalls.push(call);
  else calls.set(layer, [call]);
}

/** Removes and returns the call of the first run that the next call of `layer` repeats, or undefined if there is none. */
export function takeNextCall({ calls, next }: RecomputePhase, layer: object): HeldCall | undefined {
  const call = calls.get(layer)?.shift();
  if (next && call) appendCall(next, layer, call);
  return call;
}
