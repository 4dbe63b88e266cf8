/** Refuses a conversion that leaves nothing of the values of a weight. */
import { FileError } from "../../../errors.js";
import type { ConvertedWeight } from "../plan/steps.js";
import type { NamedTarget } from "../targets/named.js";
import type { Changes } from "./changes.js";
import type { WeightChanges } from "./weight-changes.js";

/**
 * The minimum ratio of noise to signal at which a weight is refused. A weight whose values all became 0 or the largest code has
 * this ratio.
 */
const MAX_NOISE_RATIO = 0.99;

/**
 * Returns the changes of a weight. Throws `FileError` if values became NaN or infinite, or if noise is as large as the signal.
 */
export async function checkedChanges(
  { name, method, whyNotFinite }: ConvertedWeight,
  target: NamedTarget,
  changes: Changes,
): Promise<WeightChanges> {
  const { elements, changed, max, relative, noise, signal, notFinite } = changes;
  const refuse = (problem: string): FileError =>
    new FileError(`tensor "${name}": ${problem}; leave it out by --tensors, or choose another form`);
  if (notFinite > 0) {
    const reason = (await whyNotFinite?.()) ?? "they are beyond its range";
    throw refuse(
      `${notFinite} of ${elements} values would become NaN or infinite as ${target.name}: ${reason}`,
    );
  }
  if (noise > 0 && noise >= MAX_NOISE_RATIO * signal)
    throw refuse(
      `as ${target.name}, the SQNR would be ${changes.sqnr.toFixed(2)} dB: its rule leaves nothing of the values, which are beyond its range`,
    );
  return { name, method, elements, changed, max, relative, noise, signal };
}
