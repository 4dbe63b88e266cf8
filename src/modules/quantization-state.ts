/** What the quantization of a linear product keeps from one training step to the next, for checkpoints and for people. */
import { domain, needed, nested, optionsOf } from "../options.js";
import { type Pass, ROLES } from "../recipes/table.js";
import type { DelayedSnapshot } from "./delayed-state.js";

/** Delayed scaling's state in a checkpoint: the scales and amax histories of forward tensors and of gradients. */
export type QuantizationSnapshot = Readonly<Record<Pass, DelayedSnapshot>>;

/** The state of one linear product's quantization. Only delayed scaling has any; a module of one's own may keep others. */
export interface QuantizationState {
  /** Scales and histories as they are now, copied to the host; on a GPU it waits for them. Undefined where there are none. */
  snapshotSync(): QuantizationSnapshot | undefined;
  /**
   * Puts a state back, or none. It is in force from the next forward pass under delayed scaling on; under another recipe that
   * pass drops it. Throws `ArgumentError` for what is no snapshot, and changes nothing then.
   */
  restore(snapshot: QuantizationSnapshot | undefined): void;
  /** Frees what it holds on the backend; called with the module's own `dispose`. */
  dispose(): void;
}

function passOf(pass: Pass) {
  const slots = ROLES[pass].length;
  const floats = (fits: (count: number) => boolean, what: string) =>
    needed(
      domain((value) => value instanceof Float32Array && fits(value.length), `a Float32Array of ${what}`),
    );
  return optionsOf<DelayedSnapshot>({
    scale: floats((count) => count === slots, `${slots}`),
    amaxHistory: floats((count) => count > 0 && count % slots === 0, `rows of ${slots}`),
  });
}

/** Throws `ArgumentError` for what `snapshotSync` does not give. */
export const checkSnapshot = optionsOf<QuantizationSnapshot>({
  forward: needed(nested(passOf("forward"))),
  backward: needed(nested(passOf("backward"))),
});
