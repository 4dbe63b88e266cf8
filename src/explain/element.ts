/** How one element is scaled and rounded to its code (numerics.md §3.6). */
import type { OverflowName } from "../backends/ops.js";
import {
  ELEMENT_SCALINGS,
  type ElementScaling,
  type ElementScalingName,
  tiesOf,
} from "../formats/element-scalings.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import { type RoundingExplanation, roundTo } from "./rounding.js";
import type { RuleResult } from "./scale-rules.js";
import { add, div, type ExplainedStep, mul, roundedTo, Steps } from "./steps.js";

/** Scales an element into the range of its format by its block's scale. `dtype` is the type of the tensor. */
export function scaledElement(
  x: number,
  { scale, code, multiplier, divisor }: RuleResult,
  elementScaling: ElementScalingName,
  dtype: WideDType,
): { readonly steps: readonly ExplainedStep[]; readonly value: number } {
  const { bits }: ElementScaling = ELEMENT_SCALINGS[elementScaling];
  const steps = new Steps();
  const bound = 1.5 * 2 ** 127;
  if (bits.includes("bounded") && Math.abs(x) > bound)
    x = steps.add("x", "x, at most 1.5 * 2^127 in magnitude", Math.sign(x) * bound);
  let m = multiplier;
  if (bits.includes("fromNormal") && m > 2 ** 126) m = steps.add("m", "at most 2^126", 2 ** 126);
  if (bits.includes("unlessLeast") && code === 0) m = steps.add("m", "1, since the scale is 2^-127", 1);
  let value = bits.includes("divides")
    ? steps.add("y", divisor === undefined ? "x ⊘ s" : "x ⊘ d", div(x, divisor ?? scale))
    : steps.add("y", "x ⊗ m", mul(x, m));
  if (bits.includes("typed")) value = steps.add("y", `y, rounded to ${dtype}`, roundedTo(value, dtype));
  if (bits.includes("addsZero")) value = steps.add("y", "y ⊕ 0", add(value, 0));
  return { steps: steps.list, value };
}

/** Rounds to the nearest code. The element scaling decides ties and the sign of zeros. */
export function roundedElement(
  value: number,
  { format, elementScaling }: Pick<QuantizeSpec, "format" | "elementScaling">,
  overflow: OverflowName = "saturate",
): RoundingExplanation {
  const { bits }: ElementScaling = ELEMENT_SCALINGS[elementScaling];
  const rounding = tiesOf(elementScaling);
  if (bits.includes("minusZero") && value === 0)
    return {
      ...roundTo(-0, { format, rounding, overflow }),
      value,
      decision: "zero, which becomes minus zero",
    };
  const rounded = roundTo(value, { format, rounding, overflow });
  if (!bits.includes("plusZero") || !Object.is(rounded.result, -0)) return rounded;
  return { ...rounded, decision: `${rounded.decision}; zero becomes plus zero`, code: 0, result: 0 };
}
