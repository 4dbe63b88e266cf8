/** The tensor scale that a rule stores, step by step (numerics.md §5.11). */
import { SCALE_RULES, type ScaleRule, type ScaleRuleName, tensorScaleRole } from "../formats/scale-rules.js";
import type { WideDType } from "../tensor/shape.js";
import { div, type ExplainedStep, mul, roundedTo, Steps } from "./steps.js";

/** The stored scale of a tensor. */
export interface ExplainedTensorScale {
  /** The steps from the tensor's amax G. */
  readonly steps: readonly ExplainedStep[];
  /** The scale, an f32. */
  readonly value: number;
}

/** The largest NVFP4 element times the largest block scale. */
const FULL = 2688;

/** Computes the tensor scale from the tensor's amax and type. Undefined for rules that store the amax, or nothing. */
export function tensorScaleOf(
  rule: ScaleRuleName,
  amax: number,
  dtype: WideDType,
): ExplainedTensorScale | undefined {
  const role = tensorScaleRole(rule);
  if (role === undefined || role === "amax") return undefined;
  const steps = new Steps();
  const { unitTensor }: ScaleRule = SCALE_RULES[rule];
  if (unitTensor) steps.add("t", "1: the rule has no scale of the tensor", 1);
  else if (role === "multiplier") steps.add("t", `G ⊘ ${FULL}`, div(amax, FULL));
  else divisor(steps, amax, dtype);
  return { steps: steps.list, value: steps.list.at(-1)?.value ?? 1 };
}

function divisor(steps: Steps, amax: number, dtype: WideDType): void {
  const suffix = dtype === "f32" ? "" : `, rounded to ${dtype}`;
  const least = Math.max(amax, 2 ** -126);
  const r = steps.add("r", `1 ⊘ max(G, 2^-126)${suffix}`, roundedTo(div(1, least), dtype));
  const t = steps.add("t", `r ⊗ ${FULL}${suffix}`, roundedTo(mul(r, FULL), dtype));
  if (t === Infinity) steps.add("t", "1, since t is infinite", 1);
}
