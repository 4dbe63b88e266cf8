/** Whether computations are recorded for a backward pass. */
import { platform } from "#platform";
import { ArgumentError } from "../errors.js";

interface GradMode {
  readonly enabled: boolean;
  readonly trains: boolean;
}

const modes = platform.ambient<GradMode>();

/** Whether what is computed now can be gone back through: true unless inside `noGrad`. */
export function gradEnabled(): boolean {
  return modes.get()?.enabled ?? true;
}

/** Whether what is computed now belongs to training, so that new scales follow from it: true unless inside `noGrad`. */
export function training(): boolean {
  return modes.get()?.trains ?? true;
}

/** Runs `body`, which may be async, without recording: for evaluation. */
export function noGrad<R>(body: () => R): R {
  if (typeof body !== "function")
    throw new ArgumentError("noGrad: there is no body; call it as noGrad(() => ...)");
  return modes.run({ enabled: false, trains: false }, body);
}

/** Runs `body`, a part of training that is recorded as a whole, without recording what is in it. */
export function unrecorded<R>(body: () => R): R {
  return modes.run({ enabled: false, trains: training() }, body);
}

/** Runs `body` with recording, inside `noGrad` too: for recomputation. */
export function withGrad<R>(body: () => R): R {
  return modes.run({ enabled: true, trains: true }, body);
}
