/** What a kernel may have done wrong with elements: how they are scaled, and how they become codes. */
import { roundedElement, scaledElement } from "../../../src/explain/element.js";
import { type ExplainedRounding, roundTo } from "../../../src/explain/rounding.js";
import type { RuleResult } from "../../../src/explain/scale-rules.js";
import { div, mul, roundedTo } from "../../../src/explain/steps.js";
import { factsOf } from "../../../src/formats/derive.js";
import { ELEMENT_SCALING_NAMES, ELEMENT_SCALINGS } from "../../../src/formats/element-scalings.js";
import type { ScalarFormat } from "../../../src/formats/scalar.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import type { WideDType } from "../../../src/tensor/shape.js";

/** How elements are scaled. The first one is right, and has no words. */
export interface Scaler {
  readonly words: string;
  readonly of: (x: number, scale: RuleResult, dtype: WideDType) => number;
}

/** How a scaled value becomes a code. The first one is right, and has no words. */
export interface Coder {
  readonly words: string;
  readonly of: (value: number) => number;
}

/** Every way to scale elements, the right one first. */
export function scalers(spec: QuantizeSpec): readonly Scaler[] {
  const own = spec.elementScaling;
  const right: Scaler["of"] = (x, scale, dtype) => scaledElement(x, scale, own, dtype).value;
  const typed = (type: "bf16" | "f16"): Scaler => ({
    words: `the scaled value is rounded to ${type} before it is rounded to ${spec.format}: double rounding`,
    of: (x, scale, dtype) => roundedTo(right(x, scale, dtype), type),
  });
  return [
    { words: "", of: right },
    ...ELEMENT_SCALING_NAMES.filter((name) => name !== own).map((name) => ({
      words: `elements are scaled by ${name} (${ELEMENT_SCALINGS[name].formula}), not by ${own} (${ELEMENT_SCALINGS[own].formula})`,
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
      of: (x, scale, dtype) => {
        const value = right(x, scale, dtype);
        return Math.abs(value) < 2 ** -126 ? value * 0 : value;
      },
    },
  ];
}

const ROUNDINGS: readonly (readonly [ExplainedRounding, string])[] = [
  ["tiesToAway", "ties go away from zero (half away), not to the even code"],
  ["tiesToZero", "ties go toward zero, not to the even code"],
  ["towardZero", "elements are truncated toward zero, not rounded to nearest"],
  ["towardPositive", "elements are rounded up, not to nearest"],
  ["towardNegative", "elements are rounded down, not to nearest"],
  ["toOdd", "elements are rounded to odd, not to nearest"],
];

/** Every way to make a code, the right one first. `nan`: what the subject has for NaN, if it is always the same. */
export function coders(spec: QuantizeSpec, nan?: number): readonly Coder[] {
  const { format } = spec;
  const { bits, maxCode, minNormal } = factsOf(format);
  const signBit = 2 ** (bits - 1);
  const right = (value: number): number => roundedElement(value, spec).code;
  const changed = (words: string, change: (code: number, value: number) => number): Coder => ({
    words,
    of: (value) => change(right(value), value),
  });
  const rounded = (words: string, rounding: ExplainedRounding, zero = false): Coder => ({
    words: zero ? `${words}; and -0 is lost` : words,
    of: (value) => {
      const { code } = roundTo(value, { format, rounding, overflow: "saturate" });
      return zero && code === signBit ? 0 : code;
    },
  });
  return [
    { words: "", of: right },
    changed("zeros lose their sign: +0 for -0, also for what is rounded to it", (code) =>
      code === signBit ? 0 : code,
    ),
    changed("plus zero becomes minus zero", (code, value) => (Object.is(value, 0) ? signBit : code)),
    changed("-0 becomes +0", (code, value) => (Object.is(value, -0) ? 0 : code)),
    changed("what is rounded to zero loses its sign", (code, value) =>
      code === signBit && !Object.is(value, -0) ? 0 : code,
    ),
    changed("subnormal codes are flushed to zero", (code, value) =>
      Math.abs(roundTo(value, { format, rounding: "tiesToEven", overflow: "saturate" }).result) < minNormal
        ? code & signBit
        : code,
    ),
    changed("values below the smallest normal one are flushed to zero", (code, value) =>
      Math.abs(value) < minNormal ? code & signBit : code,
    ),
    changed("subnormal codes are flushed to plus zero", (code, value) =>
      Math.abs(roundTo(value, { format, rounding: "tiesToEven", overflow: "saturate" }).result) < minNormal
        ? 0
        : code,
    ),
    changed("values below half the smallest code are not rounded up from zero", (code, value) =>
      Math.abs(value) < factsOf(format).minNormal / 2 ** (bits - 2) ? code & signBit : code,
    ),
    {
      words: "saturation is missing: values beyond the largest become NaN or infinity",
      of: (value) => roundTo(value, { format, rounding: "tiesToEven", overflow: "nonfinite" }).code,
    },
    changed("saturation is missing for infinities: they become NaN or infinity", (code, value) =>
      Math.abs(value) === Infinity
        ? roundTo(value, { format, rounding: "tiesToEven", overflow: "nonfinite" }).code
        : code,
    ),
    ...ROUNDINGS.map(([rounding, words]) => rounded(words, rounding)),
    ...ROUNDINGS.map(([rounding, words]) => rounded(words, rounding, true)),
    ...(nan === undefined
      ? []
      : [
          changed(
            `NaN handling is missing: NaN becomes 0x${nan.toString(16).padStart(2, "0")}`,
            (code, value) => (Number.isNaN(value) ? nan : code),
          ),
        ]),
    changed("the sign is lost", (code) => code & (signBit - 1)),
    changed("the largest code is not used", (code) => ((code & (signBit - 1)) === maxCode ? code - 1 : code)),
    ...otherFormats(format).map((other) => ({
      words: `codes are those of ${other}, not ${format}`,
      of: (value: number) =>
        roundTo(value, { format: other, rounding: "tiesToEven", overflow: "saturate" }).code,
    })),
  ];
}

/** Formats whose codes have as many bits. */
function otherFormats(format: ScalarFormat): readonly ScalarFormat[] {
  const all: readonly ScalarFormat[] = [
    "e4m3fnuz",
    "e5m2fnuz",
    "e4m3",
    "e5m2",
    "e4m3ieee",
    "e3m4",
    "e2m3",
    "e3m2",
  ];
  return all.filter((each) => each !== format && factsOf(each).bits === factsOf(format).bits);
}
