/** Arguments of the addon's calls by name, for tests that choose them freely. */
import { NATIVE_CALLS } from "../../../../src/backends/cuda/native-calls.js";
import { ABSENT, slotsOf } from "../../../../src/backends/cuda/native-slots.js";

/**
 * Returns the slots of a call's arguments. An argument that is not in `values` is absent. `dtypeWord`, if present, replaces every
 * dtype in `values`.
 */
export function inSlots(
  operation: keyof typeof NATIVE_CALLS,
  values: Readonly<Record<string, number>>,
  dtypeWord?: number,
): Float64Array {
  const slots = slotsOf(NATIVE_CALLS[operation]);
  const packedSlots = new Float64Array(new BigUint64Array(slots.length).fill(ABSENT).buffer);
  slots.forEach(({ name, kind }, i) => {
    const value = kind === "wide" && dtypeWord !== undefined ? dtypeWord : values[name];
    if (value !== undefined) packedSlots[i] = value;
  });
  return packedSlots;
}
