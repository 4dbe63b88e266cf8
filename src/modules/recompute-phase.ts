/** The two runs of a recomputed region: which of them is active, and the layer calls held between them. */
import { platform } from "#platform";
import type { HeldCall } from "./recompute-call.js";

/** The held calls of each layer, in call order. */
export type HeldCalls = Map<object, HeldCall[]>;

/**
 * A run of a region whose forward pass runs twice. The run `first` records no graph; the run `again` happens within the
 * backward pass. In the first run, layers append their calls to `calls`. In the second run they take these calls out in the
 * same order, so that both runs compute the same bits.
 */
export interface RecomputePhase {
  readonly pass: "first" | "again";
  readonly calls: HeldCalls;
  /** Receives the calls that the second run takes out. Set for a nested region, which will itself run again. */
  readonly next?: HeldCalls;
}

const phases = platform.ambient<RecomputePhase>();

/** Returns the phase of the recomputed region that is running, or undefined outside such regions. */
export function currentPhase(): RecomputePhase | undefined {
  return phases.get();
}

export function runPhase<R>(phase: RecomputePhase, body: () => R): R {
  return phases.run(phase, body);
}

/** Appends `call` to the held calls of `layer`. */
export function holdCall(calls: HeldCalls, layer: object, call: HeldCall): void {
  const before = calls.get(layer);
  if (before) before.push(call);
  else calls.set(layer, [call]);
}

/**
 * Takes out and returns the held call that the next call of `layer` in the second run repeats, or undefined if there is none.
 */
export function repeatedCall({ calls, next }: RecomputePhase, layer: object): HeldCall | undefined {
  const call = calls.get(layer)?.shift();
  if (next && call) holdCall(next, layer, call);
  return call;
}
