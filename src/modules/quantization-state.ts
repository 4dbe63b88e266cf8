/** The quantization state of a linear product that persists between training steps. */
import { type Domain, needed, nested, optionsOf, outside } from "../options.js";
import { type Pass, ROLES } from "../recipes/table.js";
import { asPlain, kindOf } from "../tensor/data.js";
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

/** Returns the check of a Float32Array whose length satisfies `fits`. The check copies the values. */
function floats(fits: (count: number) => boolean, what: string): Domain {
  return (user, name, value) => {
    const copy =
      kindOf(value) === "Float32Array" && asPlain(user, "Float32Array", value as Float32Array).slice();
    if (!copy || !fits(copy.length)) throw outside(user, name, value, `a Float32Array of ${what}`);
    return copy;
  };
}

function passOf(pass: Pass) {
  const slots = ROLES[pass].length;
  return optionsOf<DelayedSnapshot>({
    scale: needed(floats((count) => count === slots, `${slots}`)),
    amaxHistory: needed(floats((count) => count > 0 && count % slots === 0, `rows of ${slots}`)),
  });
}

/** Checks a snapshot. Throws `ArgumentError` for an object that `snapshotSync` could not have returned. */
export const checkSnapshot = optionsOf<QuantizationSnapshot>({
  forward: needed(nested(passOf("forward"))),
  backward: needed(nested(passOf("backward"))),
});
