/** Mistakes of casts to narrow formats. */
import { factsOf } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { storageBits } from "../../../src/tensor/shape.js";
import type { EncodeCase } from "../../operations/cast/encode.js";
import { wideValues } from "../../values/plain.js";
import { elementValue, mapCodes } from "./inputs.js";
import type { Suspect } from "./suspect.js";
import { ofInput } from "./wide-inputs.js";

/** Changes the codes of any format, element by element. */
const encodeChange = (
  words: string,
  change: (value: number, code: number, input: EncodeCase) => number,
): Suspect<"encode"> => ({
  words,
  answer: ({ x, scale, ...input }, _right, expected) => {
    const { codes } = expected;
    const { format } = input;
    if (!codes || typeof format !== "string" || storageBits(format) === 4) return undefined;
    const values = wideValues(x);
    return {
      codes: mapCodes(codes, (code, i) =>
        change(Math.fround((values[i] as number) * Math.fround(scale)), code, { x, scale, ...input }),
      ),
    };
  },
});

const signBitOf = ({ format }: EncodeCase): number =>
  typeof format === "string" && SCALAR_FORMATS[format].signed ? 2 ** (factsOf(format).bits - 1) : 0;

/** Mistakes of casts. */
export const ENCODE: readonly Suspect<"encode">[] = [
  ...(
    [
      "tiesToEven",
      "tiesToAway",
      "towardZero",
      "towardPositive",
      "towardNegative",
      "toOdd",
      "stochastic",
    ] as const
  ).map(
    (rounding): Suspect<"encode"> => ({
      words: `the rounding is ${rounding}, whatever is asked for`,
      answer: (input, right) => right({ ...input, rounding }),
    }),
  ),
  {
    words: "ties go away from zero (half away), not to the even code",
    answer: (input, right) =>
      right({ ...input, rounding: input.rounding === "tiesToEven" ? "tiesToAway" : input.rounding }),
  },
  {
    words: "elements are truncated toward zero, not rounded to nearest",
    answer: (input, right) =>
      right({ ...input, rounding: input.rounding === "tiesToEven" ? "towardZero" : input.rounding }),
  },
  {
    words: "saturation is missing: values beyond the largest become NaN or infinity",
    answer: (input, right) => right({ ...input, overflow: "nonfinite" }),
  },
  {
    words: "overflow saturates, where NaN or infinity is asked for",
    answer: (input, right) => right({ ...input, overflow: "saturate" }),
  },
  {
    words: "the scale is ignored",
    answer: (input, right) => right({ ...input, scale: 1 }),
  },
  {
    words: "values are divided by the scale, not multiplied",
    answer: (input, right) => right({ ...input, scale: Math.fround(1 / input.scale) }),
  },
  encodeChange("zeros lose their sign: +0 for -0", (_, code, input) =>
    code === signBitOf(input) ? 0 : code,
  ),
  encodeChange("subnormal codes are flushed to zero", (value, code, input) => {
    const { minNormal } = factsOf(input.format as "e4m3");
    return Math.abs(elementValue(input.format as "e4m3", code)) < minNormal && !Number.isNaN(value)
      ? code & signBitOf(input)
      : code;
  }),
  encodeChange("NaN handling is missing: NaN becomes zero", (value, code) =>
    Number.isNaN(value) ? 0 : code,
  ),
  encodeChange("NaN handling is missing: NaN becomes the largest value", (value, code, input) =>
    Number.isNaN(value) ? factsOf(input.format as "e4m3").maxCode : code,
  ),
  encodeChange("the sign of NaN is kept", (value, code, input) =>
    Number.isNaN(value) ? code | signBitOf(input) : code,
  ),
  ...ofInput<"encode">((input, change) => ({ ...input, x: change(input.x) })),
  {
    words: "codes are those of the format with fnuz specials and another bias",
    answer: (input, right) => {
      const other = { e4m3: "e4m3fnuz", e5m2: "e5m2fnuz" } as const;
      const { format } = input;
      return typeof format === "string" && format in other
        ? right({ ...input, format: other[format as "e4m3"] })
        : undefined;
    },
  },
];
