/** What a new global scale changes in the values of a weight. */

import { elementCount } from "../../../tensor/shape.js";
import type { ScaleTally } from "../../judge/statistics/scale-entries.js";
import { nibbleMagnitudes, ranksOf } from "../../kernels/magnitudes.js";
import { byteValues } from "../../stored/byte-scales.js";
import { scaleOf } from "../../stored/scales.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import { Changes } from "../changes/changes.js";
import type { Rescaling } from "./scales.js";

/**
 * The changes of a weight whose codes of four bits and block scales stay. Products of a code and a scale, and their differences,
 * are exact in f64, so the codes under one scale byte have one relative difference, and the largest code the largest difference.
 * Undefined if a scale becomes infinite: then even zeros change.
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
