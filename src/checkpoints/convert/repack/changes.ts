/** Computes how a new global scale changes the values of a weight. */

import { elementCount } from "../../../tensor/shape.js";
import type { ScaleTally } from "../../judge/statistics/scale-entries.js";
import { nibbleMagnitudes, ranksOf } from "../../kernels/magnitudes.js";
import { byteValues } from "../../stored/byte-scales.js";
import { scaleOf } from "../../stored/scales.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import { Changes } from "../changes/changes.js";
import type { Rescaling } from "./scales.js";

/**
 * The changes of a weight if only its global scale changes, for 4-bit codes. Products of a code and a scale are exact in f64, and
 * so are the differences between products. Therefore all nonzero codes under one scale byte have the same relative difference,
 * and the largest code has the largest difference. Undefined if a scale becomes infinite, because then even zeros change.
 */
export function changesByTallies(
  weight: QuantizedWeight,
  { before, after }: Rescaling,
  tallies: readonly ScaleTally[],
): Changes | undefined {
  const values = byteValues(weight);
  const { magnitudes, unit } = ranksOf(nibbleMagnitudes(weight.type));
  const changes = new Changes();
  for (const { byte, nonzero, ranks, rank } of tallies) {
    const block = values[byte] as number;
    const [old, scale] = [scaleOf(before, block), scaleOf(after, block)];
    if (!Number.isFinite(old) || !Number.isFinite(scale)) return undefined;
    const squares = ranks * unit;
    changes.addMany({ count: nonzero, squares, max: magnitudes[rank] as number }, old, scale);
  }
  changes.elements = elementCount(weight.shape);
  return changes;
}
