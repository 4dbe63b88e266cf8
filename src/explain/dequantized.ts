/** The value that the code and the scale of an element stand for, step by step (numerics.md §2.1, §5.10). */
import { blockFormat } from "../formats/block.js";
import { tensorScaleRole } from "../formats/scale-rules.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import { div, type ExplainedStep, mul, roundedTo, Steps } from "./steps.js";

/** How the dialect's library computes values from codes and scales: code times scale, rounded once, with these differences. */
export interface DialectValues {
  /** The type of the values: that of the tensor before it was quantized, or always the same one. */
  readonly type: "source" | "bf16" | "f32";
  /** Whether an f32 scale is rounded to that type before it multiplies. Default: no. */
  readonly typedScale?: boolean;
  /** Whether the code of minus zero is read as plus zero. Default: no. */
  readonly plusZero?: boolean;
  /** Whether the e8m0 code 255 is the scale 2^128, and not NaN. Default: no. */
  readonly finiteScales?: boolean;
}

/** What an element is dequantized from. */
export interface StoredElement {
  /** The value of the code. */
  readonly element: number;
  /** The value of the scale of its block. */
  readonly scale: number;
  /** The amax of the tensor, and the scale that a rule stores instead. */
  readonly tensorAmax: number;
  readonly tensorScale?: number | undefined;
}

/** A value, and the steps that lead to it. */
export interface ExplainedValue {
  /** The steps in their order. */
  readonly steps: readonly ExplainedStep[];
  /** The result of the last one. */
  readonly value: number;
}

/**
 * The steps from the scale of a block to the factor of its codes, none where the scale is the factor. `type` is that of the
 * values.
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

/** The type of the values that a dialect gives for a tensor of a type; f32 without one. */
export function valueType(rule: DialectValues | undefined, dtype: WideDType): WideDType {
  return rule?.type === "source" ? dtype : (rule?.type ?? "f32");
}

/** The value of an element as `dequantize` gives it in f32, or as a dialect's library does for a tensor of a type. */
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
