/** Mistakes in the encoding of scaled values. */
import { roundedElement } from "../../../src/explain/element.js";
import { type ExplainedRounding, roundTo } from "../../../src/explain/rounding.js";
import { factsOf, isIntegral, valueOfCode } from "../../../src/formats/derive.js";
import { tiesOf } from "../../../src/formats/element-scalings.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import type { CodedElement, Coder } from "./coder.js";
import { stochastically, stochasticCoders } from "./stochastic.js";

const ROUNDINGS: readonly (readonly [ExplainedRounding, string])[] = [
  ["tiesToEven", "elements are rounded to nearest, ties to the even code"],
  ["tiesToAway", "ties go away from zero (half away)"],
  ["tiesToZero", "ties go toward zero"],
  ["towardZero", "elements are truncated toward zero"],
  ["towardPositive", "elements are rounded up"],
  ["towardNegative", "elements are rounded down"],
  ["toOdd", "elements are rounded to odd"],
];

/** The roundings other than the spec's, each with the rounding that it replaces. */
function otherRoundings({ stochastic, elementScaling }: QuantizeSpec): typeof ROUNDINGS {
  const specRounding = stochastic ? "stochastic" : tiesOf(elementScaling);
  const replacement = {
    stochastic: "not stochastically",
    tiesToEven: "not to nearest, ties to the even code",
    tiesToAway: "not to nearest, ties away from zero",
    tiesToZero: "not to nearest, ties toward zero",
  }[specRounding];
  return ROUNDINGS.filter(([rounding]) => rounding !== specRounding).map(([rounding, words]) => [
    rounding,
    `${words}, ${replacement}`,
  ]);
}

/** Every way to encode, the correct one first. `nan` is the subject's code for NaN, if it is always the same. */
export function coders(spec: QuantizeSpec, nan?: number): readonly Coder[] {
  const { format } = spec;
  const { bits, maxCode, minNormal } = factsOf(format);
  const signBit = 2 ** (bits - 1);
  const roundings = otherRoundings(spec);
  const hasSign = SCALAR_FORMATS[format].signed && !isIntegral(SCALAR_FORMATS[format].specials);
  const right: Coder["of"] = spec.stochastic
    ? (value, { index, bitsOf }) => stochastically(value, format, bitsOf(index))
    : (value) => roundedElement(value, spec).code;
  const changed = (
    words: string,
    change: (code: number, value: number, element: CodedElement) => number,
  ): Coder => ({ words, of: (value, element) => change(right(value, element), value, element) });
  const rounded = (words: string, rounding: ExplainedRounding, zero = false): Coder => ({
    words: zero ? `${words}; and -0 is lost` : words,
    of: (value) => {
      const { code } = roundTo(value, { format, rounding, overflow: "saturate" });
      return zero && code === signBit ? 0 : code;
    },
  });
  return [
    { words: "", of: right },
    ...(hasSign ? signsOfZero(changed, signBit) : []),
    changed("subnormal codes are flushed to zero", (code) =>
      Math.abs(valueOfCode(format, code)) < minNormal ? code & signBit : code,
    ),
    changed("values below the smallest normal one are flushed to zero", (code, value) =>
      Math.abs(value) < minNormal ? code & signBit : code,
    ),
    changed("subnormal codes are flushed to plus zero", (code) =>
      Math.abs(valueOfCode(format, code)) < minNormal ? 0 : code,
    ),
    changed("values below half the smallest code are not rounded up from zero", (code, value) =>
      Math.abs(value) < factsOf(format).minNormal / 2 ** (bits - 2) ? code & signBit : code,
    ),
    changed("saturation is missing: values beyond the largest become NaN or infinity", (code, value) =>
      Number.isNaN(value) ? code : beyond(value, format, code),
    ),
    changed("saturation is missing for infinities: they become NaN or infinity", (code, value) =>
      Math.abs(value) === Infinity ? beyond(value, format, code) : code,
    ),
    ...roundings.map(([rounding, words]) => rounded(words, rounding)),
    ...(hasSign ? roundings.map(([rounding, words]) => rounded(words, rounding, true)) : []),
    ...(spec.stochastic ? stochasticCoders(format) : []),
    ...(factsOf(format).hasNaN
      ? [
          changed("the sign of NaN is kept", (code, _, { x, isNegative }) =>
            Number.isNaN(x) && isNegative ? code | signBit : code,
          ),
        ]
      : []),
    changed("all codes are 0", () => 0),
    changed("infinities become zero", (code, value) => (Math.abs(value) === Infinity ? 0 : code)),
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

type Changed = (words: string, change: (code: number, value: number) => number) => Coder;

/** Mistakes in the sign of zero, for formats with two zeros. */
function signsOfZero(changed: Changed, signBit: number): readonly Coder[] {
  return [
    changed("zeros lose their sign: +0 for -0, also for what is rounded to it", (code) =>
      code === signBit ? 0 : code,
    ),
    changed("plus zero becomes minus zero", (code, value) => (Object.is(value, 0) ? signBit : code)),
    changed("-0 becomes +0", (code, value) => (Object.is(value, -0) ? 0 : code)),
    changed("what is rounded to zero loses its sign", (code, value) =>
      code === signBit && !Object.is(value, -0) ? 0 : code,
    ),
  ];
}

/** The NaN or infinity code for a value beyond the largest one, else `code`. */
function beyond(value: number, format: ScalarFormat, code: number): number {
  const rounded = roundTo(value, { format, rounding: "tiesToEven", overflow: "nonfinite" });
  return Number.isFinite(rounded.result) ? code : rounded.code;
}

/** Formats with the same number of bits. */
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
