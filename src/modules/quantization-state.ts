/** The quantization state of a linear product that persists between training steps. */
import { domain, needed, nested, optionsOf } from "../options.js";
import { type Pass, ROLES } from "../recipes/table.js";
import type { DelayedSnapshot } from "./delayed-state.js";

/**
 * The state of delayed scaling in a checkpoint: the scales and amax histories of forward tensors (`forward`) and of gradients
 * (`backward`).
 */
export type QuantizationSnapshot = Readonly<Record<Pass, DelayedSnapshot>>;

/**
 * The quantization state of one linear product. Of the standard recipes only delayed scaling has such state; a custom module
 * may implement its own.
 */
export interface QuantizationState {
  /**
   * Copies the current scales and amax histories to the host, and waits for the device. Returns undefined if there are none.
   */
  snapshotSync(): QuantizationSnapshot | undefined;
  /**
   * Sets the state to `snapshot`, or to none if it is undefined. The next forward pass under delayed scaling uses it; under
   * another recipe, that pass drops it. Throws `ArgumentError` for an invalid snapshot, with nothing changed.
   */
  restore(snapshot: QuantizationSnapshot | undefined): void;
  /** Frees the tensors of the state. The module's `dispose` calls it. */
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

/** Checks a snapshot. Throws `ArgumentError` for an object that `snapshotSync` could not have returned. */
export const checkSnapshot = optionsOf<QuantizationSnapshot>({
  forward: needed(nested(passOf("forward"))),
  backward: needed(nested(passOf("backward"))),
});
