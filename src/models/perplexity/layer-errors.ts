/** The errors of weights by the layer that has them. */
import type { WeightChanges } from "../../checkpoints/convert/changes/weight-changes.js";
import type { StoredSize } from "../weights/sizes.js";

/** The relative root mean square error of the changed weights of each layer; 0 for a layer without any. */
export function layerErrorsOf(
  layers: number,
  sizes: readonly StoredSize[],
  changes: ReadonlyMap<string, WeightChanges>,
): readonly number[] {
  const sums = Array.from({ length: layers }, () => ({ noise: 0, signal: 0 }));
  for (const { tensor, layer } of sizes) {
    const [sum, change] = [sums[layer], changes.get(tensor)];
    if (!sum || !change) continue;
    sum.noise += change.noise;
    sum.signal += change.signal;
  }
  return sums.map(({ noise, signal }) => (noise === 0 ? 0 : Math.sqrt(noise / signal)));
}
