/** The state that quantizing a linear product keeps between training steps. */
import { domain, needed, nested, optionsOf } from "../options.js";
import { type Pass, ROLES } from "../recipes/table.js";
import type { DelayedSnapshot } from "./delayed-state.js";

/** Delayed scaling's state in a checkpoint: the scales and amax histories of forward tensors and of gradients. */
export type QuantizationSnapshot = Readonly<Record<Pass, DelayedSnapshot>>;

/** The state of one linear product's quantization. Only delayed scaling has any; a custom module may keep other state. */
export interface QuantizationState {
  /** The current scales and histories, copied to the host; on a GPU it waits for them. Undefined if there are none. */
  snapshotSync(): QuantizationSnapshot | undefined;
  /**
   * Restores a state, or none. It takes effect at the next forward pass under delayed scaling; under another recipe that pass
   * drops it. Throws `ArgumentError` for anything but a snapshot, and changes nothing then.
   */
  restore(snapshot: QuantizationSnapshot | undefined): void;
  /** Frees its tensors; called by the module's `dispose`. */
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
