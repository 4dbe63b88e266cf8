/** The value of an element from its code and scale, step by step (numerics.md §2.1, §5.10). */
import { blockFormat } from "../formats/block.js";
import { tensorScaleRole } from "../formats/scale-rules.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import { div, type ExplainedStep, mul, roundedTo, Steps } from "./steps.js";

/** How a dialect's library dequantizes. The default is code times scale, rounded once; each field is a difference from it. */
export interface DialectValues {
  /** The type of the values: the type of the tensor before quantization, or a fixed type. */
  readonly type: "source" | "bf16" | "f32";
  /** Whether an f32 scale is rounded to the value type before it multiplies. Default: no. */
  readonly typedScale?: boolean;
  /** Whether the code for -0 is read as +0. Default: no. */
  readonly plusZero?: boolean;
  /** Whether the e8m0 code 255 is the scale 2^128 instead of NaN. Default: no. */
  readonly finiteScales?: boolean;
}

/** The stored numbers from which an element is dequantized. */
export interface StoredElement {
  /** The value of the code. */
  readonly element: number;
  /** The value of the scale of its block. */
  readonly scale: number;
  /** The amax of the tensor, and the scale that some rules store in its place. */
  readonly tensorAmax: number;
  readonly tensorScale?: number | undefined;
}

/** A value, and the steps that lead to it. */
export interface ExplainedValue {
  /** The steps in their order. */
  readonly steps: readonly ExplainedStep[];
  /** The result of the last step. */
  readonly value: number;
}

/**
 * Computes the factor of a block's codes from its scale. There are no steps if the scale itself is the factor. `type` is the
 * value type.
 */
export function factorSteps(
  spec: QuantizeSpec,
  { scale, tensorScale, tensorAmax }: Omit<StoredElement, "element">,
  rule: DialectValues | undefined,
  type: WideDType,
): readonly ExplainedStep[] {
  const format = blockFormat(spec.quantizer);
  const steps = new Steps();
  let factor = scale;
  if (rule?.finiteScales && Number.isNaN(scale))
    factor = steps.add("f", "2^128, which code 255 of the scale is", 2 ** 128);
  if (rule?.typedScale && format.scale === "f32" && type !== "f32")
    factor = steps.add("f", `s, rounded to ${type}`, roundedTo(factor, type));
  if (tensorScaleRole(spec.scaleRule) === "divisor") {
    steps.add("f", "SF ⊘ t", div(factor, tensorScale ?? 1));
  } else if (tensorScale !== undefined) {
    steps.add("f", "SF ⊗ t", mul(factor, tensorScale));
  } else if (format.tensorAmax) {
    const full = 6 * spec.e4m3Max;
    factor = steps.add("f", "SF ⊗ G", mul(factor, tensorAmax));
    steps.add("f", `f ⊗ fl(1/${full})`, mul(factor, div(1, full)));
  }
  return steps.list;
}

/** The type of dequantized values: the dialect's type for a tensor of type `dtype`, or f32 without a dialect. */
export function valueType(rule: DialectValues | undefined, dtype: WideDType): WideDType {
  return rule?.type === "source" ? dtype : (rule?.type ?? "f32");
}

/** Dequantizes an element as `dequantize` does in f32, or as a dialect's library does. */
export function dequantizedValue(
  spec: QuantizeSpec,
  stored: StoredElement,
  rule: DialectValues | undefined,
  dtype: WideDType,
): ExplainedValue {
  const type = valueType(rule, dtype);
  const steps = new Steps();
  let q = stored.element;
  if (rule?.plusZero && Object.is(q, -0)) q = steps.add("q", "0, since minus zero is read as zero", 0);
  const factors = factorSteps(spec, stored, rule, type);
  steps.list.push(...factors);
  const factor = factors.at(-1)?.value;
  let value = steps.add("value", factor === undefined ? "q ⊗ s" : "q ⊗ f", mul(q, factor ?? stored.scale));
  if (type !== "f32") value = steps.add("value", `value, rounded to ${type}`, roundedTo(value, type));
  return { steps: steps.list, value };
}
