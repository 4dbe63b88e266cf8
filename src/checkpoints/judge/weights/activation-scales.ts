/** Judges scales of activations and of the KV cache. */

import { isCacheScale } from "../../recognize/leftovers.js";
import { CONVENTION_NAMES, conventionOf } from "../../stored/conventions.js";
import type { CheckpointFiles } from "../../stored/files.js";
import { readFloats } from "../../stored/scales.js";
import { type Finding, finding } from "../findings.js";

/** The maximum number of elements of a tensor that is read. */
const MAX_ELEMENTS = 1 << 20;
const WIDE = ["F32", "BF16", "F16"];
const INPUT_ENDS = [
  ...new Set(
    CONVENTION_NAMES.flatMap((name) => (conventionOf(name).others ?? []).filter((end) => /scale/.test(end))),
  ),
];

/** Findings about the values of activation scales and of KV cache scales. */
export async function judgeActivationScales({ tensors }: CheckpointFiles): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const [name, tensor] of tensors) {
    const cache = isCacheScale(name);
    if (!cache && !INPUT_ENDS.some((end) => name.endsWith(end))) continue;
    const { dtype, shape, begin, end } = tensor.entry;
    if (!WIDE.includes(dtype)) {
      findings.push(finding("scale-dtype", name, `is ${dtype} [${shape}]; it must be ${WIDE.join(", ")}`));
      continue;
    }
    if (end - begin > 4 * MAX_ELEMENTS) continue;
    const values = await readFloats(tensor);
    const count = (test: (value: number) => boolean): number => values.filter(test).length;
    const notFinite = count((value) => !Number.isFinite(value));
    const countOf = (part: number): string => `${part} of ${values.length} values`;
    if (notFinite > 0)
      findings.push(finding("scale-not-finite", name, `${countOf(notFinite)} are NaN or infinite`));
    const negative = count((value) => value < 0);
    if (negative > 0) findings.push(finding("scale-negative", name, `${countOf(negative)} are negative`));
    const zero = count((value) => value === 0);
    if (zero > 0) findings.push(finding("scale-zero", name, `${countOf(zero)} are 0`));
    if (cache && values.length === 1 && values[0] === 1)
      findings.push(finding("scale-one", name, "the scale of the cache is 1"));
  }
  return findings;
}
