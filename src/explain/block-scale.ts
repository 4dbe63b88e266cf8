/** The scale of one block by the settings of a quantization. */
import { isTensorWide } from "../formats/block.js";
import { ELEMENT_SCALINGS, type ElementScaling } from "../formats/element-scalings.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { type FourOverSixResult, fourOverSix } from "./four-over-six.js";
import { RULE_STEPS, type RuleInput, type RuleResult } from "./scale-rules.js";
import { roundedTo } from "./steps.js";

/** What decides a scale besides the settings. */
export interface BlockInput
  extends Pick<RuleInput, "steps" | "amax" | "tensorAmax" | "dtype" | "tensorScale"> {
  /** The values of the block, line by line; only 4over6 reads them. */
  readonly lines: readonly (readonly number[])[];
}

/** The scale of a block by the rule of a spec, or by 4over6. Not for quantizers with a given scale. */
export function blockScaleBy(
  spec: QuantizeSpec,
  { lines, ...given }: BlockInput,
): RuleResult & Partial<FourOverSixResult> {
  const input = { ...given, amax: limited(spec, given) };
  if (spec.fourOverSix !== "none") return fourOverSix({ ...input, lines, spec });
  const { bits }: ElementScaling = ELEMENT_SCALINGS[spec.elementScaling];
  return RULE_STEPS[spec.scaleRule]({
    ...input,
    format: spec.format,
    pow2: spec.pow2Scales,
    epsilon: Math.fround(spec.amaxEpsilon),
    divides: bits.includes("divides"),
    isWide: isTensorWide(spec.tile),
  });
}

function limited({ amaxLimit }: QuantizeSpec, { steps, amax, dtype }: Omit<BlockInput, "lines">): number {
  const limit = roundedTo(Math.fround(amaxLimit), dtype);
  return amaxLimit > 0 && amax > limit ? steps.add("amax", "amax, at most the limit", limit) : amax;
}
