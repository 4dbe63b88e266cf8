/** Whether computations are recorded for a backward pass. */
import { platform } from "#platform";
import { ArgumentError } from "../errors.js";
import type { Variable } from "./variable.js";

interface GradMode {
  readonly enabled: boolean;
  readonly trains: boolean;
  /** Takes what was computed before and is computed with now; of a part that is recorded as a whole. */
  readonly captured?: Set<Variable>;
}

const modes = platform.ambient<GradMode>();

/** Whether what is computed now can be gone back through: true unless inside `noGrad`. */
export function gradEnabled(): boolean {
  return modes.get()?.enabled ?? true;
}

/**
 * Whether results require a gradient where their inputs do. Unlike `gradEnabled` this is so in a part that is recorded as a
 * whole, where the results are not recorded one by one.
 */
export function gradTracked(): boolean {
  const mode = modes.get();
  return mode === undefined || mode.enabled || mode.captured !== undefined;
}

/** Whether what is computed now belongs to training, so that new scales follow from it: true unless inside `noGrad`. */
export function training(): boolean {
  return modes.get()?.trains ?? true;
}

/**
 * Runs `body`, which may be async, without recording: for evaluation.
 *
 * @throws `ArgumentError` for what is no function; what the body throws goes through.
 */
export function noGrad<R>(body: () => R): R {
  if (typeof body !== "function")
    throw new ArgumentError("noGrad: there is no body; call it as noGrad(() => ...)");
  return modes.run({ enabled: false, trains: false }, body);
}

/**
 * Runs `body`, a part of training that is recorded as a whole, without recording what is in it. What it computes with
 * and was computed before goes into `captured`.
 */
export function unrecorded<R>(captured: Set<Variable>, body: () => R): R {
  return modes.run({ enabled: false, trains: training(), captured }, body);
}

/** Where what is computed with now goes if it was computed before; undefined but for a part that is recorded as a whole. */
export function captures(): Set<Variable> | undefined {
  return modes.get()?.captured;
}

/** Runs `body` with recording, inside `noGrad` too: for recomputation. */
export function withGrad<R>(body: () => R): R {
  return modes.run({ enabled: true, trains: true }, body);
}
