/** Whether operations are recorded for a backward pass. */
import { platform } from "#platform";
import { ArgumentError } from "../errors.js";
import type { Variable } from "./variable.js";

interface GradMode {
  readonly enabled: boolean;
  readonly trains: boolean;
  /** Set in a recomputed region's first pass: collects the non-leaves that the region uses but did not compute. */
  readonly captured?: Set<Variable>;
}

const modes = platform.ambient<GradMode>();

/** Whether operations are recorded: true unless inside `noGrad`. */
export function gradEnabled(): boolean {
  return modes.get()?.enabled ?? true;
}

/**
 * Whether results require a gradient where their inputs do. Unlike `gradEnabled`, this holds in the first pass of a recomputed
 * region too, which is recorded as one node.
 */
export function gradTracked(): boolean {
  const mode = modes.get();
  return mode === undefined || mode.enabled || mode.captured !== undefined;
}

/** Whether computations belong to training, so that delayed scaling updates its scales: true unless inside `noGrad`. */
export function training(): boolean {
  return modes.get()?.trains ?? true;
}

/**
 * Runs `body`, which may be async, without recording, as `torch.no_grad` does.
 *
 * @throws `ArgumentError` if `body` is not a function; rethrows what the body throws.
 */
export function noGrad<R>(body: () => R): R {
  if (typeof body !== "function")
    throw new ArgumentError("noGrad: there is no body; call it as noGrad(() => ...)");
  return modes.run({ enabled: false, trains: false }, body);
}

/**
 * Runs the first pass of a recomputed region: `body` is part of training, but its operations are not recorded. The non-leaves
 * that it uses but did not compute are added to `captured`.
 */
export function unrecorded<R>(captured: Set<Variable>, body: () => R): R {
  return modes.run({ enabled: false, trains: training(), captured }, body);
}

/** The `captured` set of the recomputed region whose first pass is running; undefined elsewhere. */
export function captures(): Set<Variable> | undefined {
  return modes.get()?.captured;
}

/** Runs `body` with recording on, even inside `noGrad`: for recomputation. */
export function withGrad<R>(body: () => R): R {
  return modes.run({ enabled: true, trains: true }, body);
}
