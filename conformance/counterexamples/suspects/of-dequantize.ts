/** Mistakes of dequantizations. */
import { isWide, type WideDType } from "../../../src/tensor/shape.js";
import type { OperandCase } from "../../operations/gemm/operand.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { bitsOf } from "../../values/values.js";
import { mapWide, swapNibbles, transposedCodes } from "./inputs.js";
import { reciprocals, withOnes } from "./operands.js";
import type { Suspect } from "./suspect.js";

/** Mistakes of dequantizations. */
export const DEQUANTIZE: readonly Suspect<"dequantize">[] = [
  ...(
    [
      ["nibbles are swapped: the even column is in the low half of a byte", swapNibbles],
      ["codes are read transposed", transposedCodes],
    ] as const
  ).map(
    ([words, change]): Suspect<"dequantize"> => ({
      words,
      answer: (input, right) => {
        const data = change(input.data);
        return data && right({ ...input, data });
      },
    }),
  ),
  ...(
    [
      ["scales are ignored", (scales: PlainTensor) => withOnes({ scales } as OperandCase).scales],
      [
        "the reciprocals of scales are used",
        (scales: PlainTensor) => reciprocals({ scales } as OperandCase)?.scales,
      ],
      ["scales are read transposed", transposedCodes],
    ] as const
  ).map(
    ([words, change]): Suspect<"dequantize"> => ({
      words,
      answer: (input, right) => {
        if (input.scaleLayout !== "logical") return undefined;
        const scaleInv = change(input.scaleInv);
        return scaleInv && right({ ...input, scaleInv, logicalScales: scaleInv });
      },
    }),
  ),
  {
    words: "the scale of the tensor is left out",
    answer: (input, right) =>
      input.amax && right({ ...input, amax: fromCodes("f32", input.amax.shape, [bitsOf(2688)]) }),
  },
  {
    words: "FP8 codes are read as fnuz: exactly half of their values",
    answer: (_input, _right, expected) => {
      const { values } = expected;
      return values && isWide(values.dtype)
        ? { values: mapWide(values as PlainTensor<WideDType>, (value) => value / 2) }
        : undefined;
    },
  },
  {
    words: "NaN handling is missing: NaN codes give zero",
    answer: (_input, _right, expected) => {
      const { values } = expected;
      return values && isWide(values.dtype)
        ? { values: mapWide(values as PlainTensor<WideDType>, (value) => (Number.isNaN(value) ? 0 : value)) }
        : undefined;
    },
  },
];
