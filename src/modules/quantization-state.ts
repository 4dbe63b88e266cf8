/** The quantization state of a linear product or of attention that persists between training steps. */
import { type Domain, needed, nested, optionsOf, outside } from "../options.js";
import { type Pass, ROLES } from "../recipes/table.js";
import { asPlain, kindOf } from "../tensor/data.js";
import type { DelayedSnapshot } from "./delayed-state.js";

/**
 * The state of delayed scaling in a checkpoint: the scales and amax histories of forward tensors (`forward`) and of gradients
 * (`backward`).
 */
export type QuantizationSnapshot = Readonly<Record<Pass, DelayedSnapshot>>;

/** The numbers of tensors that have a scale, of each pass. */
export type QuantizationSlots = Readonly<Record<Pass, number>>;

/** The numbers of tensors of a linear product. */
const LINEAR_SLOTS: QuantizationSlots = { forward: ROLES.forward.length, backward: ROLES.backward.length };

/**
 * The quantization state of one linear product or of attention. Of the standard recipes only delayed scaling has such state; a
 * custom module may implement its own.
 */
export interface QuantizationState {
  /** The numbers of tensors that have a scale in a snapshot. Default: as of a linear product, 3 and 2. */
  readonly slots?: QuantizationSlots | undefined;
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
function floats(fits: (count: number) => boolean, description: string): Domain {
  return (caller, name, value) => {
    const copy =
      kindOf(value) === "Float32Array" && asPlain(caller, "Float32Array", value as Float32Array).slice();
    if (!copy || !fits(copy.length)) throw outside(caller, name, value, `a Float32Array of ${description}`);
    return copy;
  };
}

function passDomain(slots: number) {
  return optionsOf<DelayedSnapshot>({
    scale: needed(floats((count) => count === slots, `${slots}`)),
    amaxHistory: needed(floats((count) => count > 0 && count % slots === 0, `rows of ${slots}`)),
  });
}

/** Returns the check of a snapshot. It throws `ArgumentError` for an object that `snapshotSync` could not have returned. */
export function snapshotCheck({ forward, backward }: QuantizationSlots) {
  return optionsOf<QuantizationSnapshot>({
    forward: needed(nested(passDomain(forward))),
    backward: needed(nested(passDomain(backward))),
  });
}

/** Checks a snapshot of a linear product. */
export const checkSnapshot = snapshotCheck(LINEAR_SLOTS);

/** Returns the numbers of tensors that have a scale in snapshots of `state`. */
export function slotsOf({ slots = LINEAR_SLOTS }: QuantizationState): QuantizationSlots {
  return slots;
}
