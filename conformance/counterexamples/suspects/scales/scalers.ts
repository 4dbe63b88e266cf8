/** Mistakes in the scaling of elements. */
import { scaledElement } from "../../../../src/explain/element.js";
import type { RuleResult } from "../../../../src/explain/scale-rules.js";
import { div, mul, roundedTo } from "../../../../src/explain/steps.js";
import { ELEMENT_SCALING_NAMES, ELEMENT_SCALINGS } from "../../../../src/formats/element-scalings.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import type { WideDType } from "../../../../src/tensor/shape.js";

/** A way to scale elements. The first one is correct, and its words are empty. */
export interface Scaler {
  readonly words: string;
  readonly of: (x: number, scale: RuleResult, dtype: WideDType) => number;
}

/** Every way to scale elements, the correct one first. */
export function scalers(spec: QuantizeSpec): readonly Scaler[] {
  const specScaling = spec.elementScaling;
  const right: Scaler["of"] = (x, scale, dtype) => scaledElement(x, scale, specScaling, dtype).value;
  const typed = (type: "bf16" | "f16"): Scaler => ({
    words: `the scaled value is rounded to ${type} before it is rounded to ${spec.format}: double rounding`,
    of: (x, scale, dtype) => roundedTo(right(x, scale, dtype), type),
  });
  return [
    { words: "", of: right },
    ...ELEMENT_SCALING_NAMES.filter((name) => name !== specScaling).map((name) => ({
      words: `elements are scaled by ${name} (${ELEMENT_SCALINGS[name].formula}), not by ${specScaling} (${ELEMENT_SCALINGS[specScaling].formula})`,
      of: (x: number, scale: RuleResult, dtype: WideDType) => scaledElement(x, scale, name, dtype).value,
    })),
    typed("bf16"),
    typed("f16"),
    {
      words: "elements are multiplied by the rounded reciprocal of the stored scale",
      of: (x, { scale }) => mul(x, div(1, scale)),
    },
    {
      words: "elements are multiplied by the stored scale, not divided by it: the reciprocal is not inverted",
      of: (x, { scale }) => mul(x, scale),
    },
    { words: "elements are not scaled", of: (x) => x },
    {
      words: "scaled values that are subnormal in f32 are flushed to zero",
      of: (x, scale, dtype) => flushed(right(x, scale, dtype)),
    },
    {
      words: "elements that are subnormal in f32 are flushed to zero before they are scaled",
      of: (x, scale, dtype) => right(flushed(x), scale, dtype),
    },
    {
      words: `a scale that is subnormal in f32 counts as 0 where elements are divided by it: ${ZERO_SCALE}`,
      of: (x, scale, dtype) => (scale.scale < 2 ** -126 ? div(x, 0) : right(x, scale, dtype)),
    },
    {
      words: "the reciprocal of a scale is flushed to zero where it is subnormal in f32",
      of: (x, scale, dtype) => (div(1, scale.scale) < 2 ** -126 ? mul(x, 0) : right(x, scale, dtype)),
    },
  ];
}

const ZERO_SCALE = "0 / 0 is NaN, and all else becomes infinite";

/** Flushes subnormal f32 numbers to zeros of the same sign. */
const flushed = (x: number): number => (Math.abs(x) < 2 ** -126 ? x * 0 : x);
