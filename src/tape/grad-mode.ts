/** Whether operations are recorded for a backward pass. */
import { platform } from "#platform";
import { ArgumentError } from "../errors.js";
import type { Variable } from "./variable.js";

interface GradMode {
  readonly enabled: boolean;
  readonly trains: boolean;
  /** The non-leaf variables that a recomputed region uses but did not compute. Set only in the first run of such a region. */
  readonly captured?: Set<Variable>;
}

const modes = platform.ambient<GradMode>();

/** Returns whether operations are recorded: true unless inside `noGrad` or the first run of a recomputed region. */
export function gradEnabled(): boolean {
  return modes.get()?.enabled ?? true;
}

/**
 * Returns whether a result requires a gradient if one of its inputs does. Unlike `gradEnabled`, this is also true in the first
 * run of a recomputed region, which is recorded as a single node.
 */
export function gradTracked(): boolean {
  const mode = modes.get();
  return mode === undefined || mode.enabled || mode.captured !== undefined;
}

/** Returns whether computations belong to training, so that delayed scaling updates its scales: true unless inside `noGrad`. */
export function training(): boolean {
  return modes.get()?.trains ?? true;
}

/**
 * Runs `body`, which may be async, without recording its operations, as `torch.no_grad` does.
 *
 * @throws `ArgumentError` if `body` is not a function. Errors of the body propagate.
 */
export function noGrad<R>(body: () => R): R {
  if (typeof body !== "function")
    throw new ArgumentError("noGrad: there is no body; call it as noGrad(() => ...)");
  return modes.run({ enabled: false, trains: false }, body);
}

/**
 * Runs the first run of a recomputed region. `body` is part of training, but its operations are not recorded. The non-leaf
 * variables that it uses but did not compute are added to `captured`.
 */
export function unrecorded<R>(captured: Set<Variable>, body: () => R): R {
  return modes.run({ enabled: false, trains: training(), captured }, body);
}

/** Returns the `captured` set of the recomputed region whose first run is active, or undefined elsewhere. */
export function captures(): Set<Variable> | undefined {
  return modes.get()?.captured;
}

/** Runs `body` with recording on, even inside `noGrad`. Recomputation uses this. */
export function withGrad<R>(body: () => R): R {
  return modes.run({ enabled: true, trains: true }, body);
}
