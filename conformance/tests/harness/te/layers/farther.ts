/** The results whose distance from float64 is larger than TransformerEngine's under some recipe, with the reason. */
import type { StageDistances } from "./distances.js";

const ROUNDED_OUTPUT_REASON =
  "a row of dS is P (dP - D), and D is the sum of dO * O with O rounded to bf16, as in FlashAttention; unfused attention sums P * dP";
const TWO_ROUNDINGS_REASON = "1 / sqrt rounds twice, rsqrtf once, and the sums have another order";
/** A reason for at most two elements that differ by one unit of the last place. */
const SINGLE_ELEMENTS_REASON = "one or two elements, by one ulp";

/** Reasons by stage and result. */
const REASONS: Readonly<Record<string, string>> = {
  "attention: dq": ROUNDED_OUTPUT_REASON,
  "attention: dk": ROUNDED_OUTPUT_REASON,
  "layerNorm: rstd": TWO_ROUNDINGS_REASON,
  "rmsNorm: rstd": TWO_ROUNDINGS_REASON,
  "RoPE: out by our tables": SINGLE_ELEMENTS_REASON,
  "layerNorm: out": SINGLE_ELEMENTS_REASON,
  "layerNorm gradient: dx": SINGLE_ELEMENTS_REASON,
  "swiglu gradient: dx": SINGLE_ELEMENTS_REASON,
  "swiglu: amax": SINGLE_ELEMENTS_REASON,
};

function isFarther({ ours, theirs }: StageDistances): boolean {
  return ours !== undefined && theirs !== undefined && (ours.mean > theirs.mean || ours.max > theirs.max);
}

/** Why a result is farther from float64 than TransformerEngine's, or undefined if it is not. Throws without a valid reason. */
export function reasonForDistance(result: string, distances: StageDistances): string | undefined {
  if (!isFarther(distances)) return undefined;
  const reason = REASONS[result];
  const { differing, most } = distances;
  if (reason === undefined || (reason === SINGLE_ELEMENTS_REASON && (differing > 2 || most > 1)))
    throw new Error(
      `${result} is farther from float64 than the recorded result: ${JSON.stringify(distances)}`,
    );
  return reason;
}
