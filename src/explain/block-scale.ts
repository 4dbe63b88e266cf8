/** Computes the scale of one block from a quantize spec. */
import { isTensorWide } from "../formats/block.js";
import { ELEMENT_SCALINGS, type ElementScaling } from "../formats/element-scalings.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { type FourOverSixResult, fourOverSix } from "./four-over-six.js";
import { RULE_STEPS, type RuleInput, type RuleResult } from "./scale-rules.js";
import { roundedTo } from "./steps.js";

/** The inputs of a block's scale besides the spec. */
export interface BlockInput
  extends Pick<RuleInput, "steps" | "amax" | "tensorAmax" | "dtype" | "tensorScale"> {
  /** The values of the block, line by line. Only 4over6 reads them. */
  readonly lines: readonly (readonly number[])[];
}

/** Computes the scale of a block by the scale rule of a spec, or by 4over6. Not for quantizers whose caller sets the scale. */
export function blockScaleBy(
  spec: QuantizeSpec,
  { lines, ...inputs }: BlockInput,
): RuleResult & Partial<FourOverSixResult> {
  const input = { ...inputs, amax: limited(spec, inputs) };
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
