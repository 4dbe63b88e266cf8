/** Mistakes of products: in their operands, sums and results. */
import { roundTo } from "../../../src/explain/rounding.js";
import { roundedTo } from "../../../src/explain/steps.js";
import { isWide, type WideDType } from "../../../src/tensor/shape.js";
import type { OperandCase } from "../../operations/gemm/operand.js";
import { fromCodes, type PlainTensor, wideValues } from "../../values/plain.js";
import { elementValue, mapCodes, mapWide, wideCode } from "./inputs.js";
import {
  flushed,
  reciprocals,
  swapped,
  transposedScales,
  withOnes,
  withoutAmax,
  withoutTail,
  withScales,
} from "./operands.js";
import type { Suspect } from "./suspect.js";

/** Changes both operands of a product. */
const operands = (
  words: string,
  change: (operand: OperandCase) => OperandCase | undefined,
  which: readonly ("a" | "b")[] = ["a", "b"],
): Suspect<"gemm"> => ({
  words,
  answer: (input, right) => {
    const changedOperands = Object.fromEntries(which.map((name) => [name, change(input[name])]));
    if (Object.values(changedOperands).some((each) => !each)) return undefined;
    return right({ ...input, ...changedOperands });
  },
});

const outChange = (words: string, change: (value: number, dtype: WideDType) => number): Suspect<"gemm"> => ({
  words,
  answer: (_input, _right, expected) => {
    const { out } = expected;
    if (!out || !isWide(out.dtype)) return undefined;
    const { dtype } = out;
    return { ...expected, out: mapWide(out as PlainTensor<WideDType>, (value) => change(value, dtype)) };
  },
});

/** The product in which each partial sum is rounded to a type, in order of K. */
const accumulatedIn = (type: "f16" | "bf16" | "f32", words: string): Suspect<"gemm"> => ({
  words,
  answer: async (input, _right, expected) => {
    const { out } = expected;
    const isPlain =
      input.a.source.kind === "plain" &&
      input.b.source.kind === "plain" &&
      !input.c &&
      !input.bias &&
      !input.gelu &&
      !input.geluInput;
    if (!out || !isWide(out.dtype) || !isPlain || Object.keys(expected).length > 1) return undefined;
    const value = ({ codes }: OperandCase) =>
      Array.from(codes.codes, (code) => elementValue(codes.dtype, code));
    const [x, w] = [value(input.b), value(input.a)];
    const [rows, depth] = input.b.codes.matrix;
    const [columns] = input.a.codes.matrix;
    const sums: number[] = [];
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) {
        let sum = 0;
        for (let k = 0; k < depth; k++)
          sum = roundedTo(
            Math.fround(sum + Math.fround((x[i * depth + k] as number) * (w[j * depth + k] as number))),
            type as WideDType,
          );
        sums.push(Math.fround(Math.fround(input.alpha) * sum));
      }
    return {
      out: fromCodes(
        out.dtype,
        out.shape,
        sums.map((each) => wideCode(out.dtype as WideDType, each)),
      ),
    };
  },
});

const SLICES = [2, 3, 4, 8] as const;

/** Mistakes of products. */
export const GEMM: readonly Suspect<"gemm">[] = [
  ...[16, 32, 64, 128, 256, 8, 4, 2].map((step) =>
    operands(`the tail of K is dropped: only whole steps of ${step} are summed`, (operand) =>
      withoutTail(operand, (depth) => depth - (depth % step)),
    ),
  ),
  operands("the last element along K is dropped", (operand) => withoutTail(operand, (depth) => depth - 1)),
  ...SLICES.map((slices) =>
    operands(`split-K: every of ${slices} slices uses the scales of slice 0`, (operand) =>
      withScales(operand, (i, j, _, across) => [i, j % Math.max(1, Math.ceil(across / slices))]),
    ),
  ),
  ...SLICES.map((slices) =>
    operands(`split-K: only slice 0 of ${slices} is summed`, (operand) =>
      withoutTail(operand, (depth) => Math.ceil(depth / slices)),
    ),
  ),
  operands("only the first scale along K is used", (operand) => withScales(operand, (i) => [i, 0])),
  ...(["a", "b"] as const).flatMap((which) => [
    operands(`the scales of ${which} are transposed`, transposedScales, [which]),
    operands(`the scales of ${which} are ignored`, withOnes, [which]),
    operands(
      `the scales of ${which} belong to the next line`,
      (operand) => withScales(operand, (i, j, down) => [(i + 1) % down, j]),
      [which],
    ),
    operands(`the nibbles of ${which} are swapped`, swapped, [which]),
    operands(`the reciprocals of the scales of ${which} are used`, reciprocals, [which]),
    operands(`the scale of the tensor ${which} is left out`, withoutAmax, [which]),
  ]),
  operands("the scales of both operands are ignored", withOnes),
  operands("the scales of both operands are transposed", transposedScales),
  operands("the reciprocals of scales are used", reciprocals),
  operands("the nibbles of both operands are swapped", swapped),
  operands("the scales of the tensors are left out", withoutAmax),
  operands("NaN handling is missing: NaN codes count as zero", (operand) => ({
    ...operand,
    codes: mapCodes(operand.codes, (code) =>
      Number.isNaN(elementValue(operand.codes.dtype, code)) ? 0 : code,
    ),
  })),
  operands("subnormal codes count as zero", flushed),
  ...fnuz(),
  { words: "alpha is ignored", answer: (input, right) => right({ ...input, alpha: 1 }) },
  {
    words: "beta is ignored",
    answer: (input, right) => (input.c ? right({ ...input, beta: 1 }) : undefined),
  },
  {
    words: "c is not added",
    answer: (input, right) =>
      input.accumulate ? undefined : right({ ...input, c: undefined, beta: undefined }),
  },
  {
    words: "the bias is not added",
    answer: (input, right) => (input.gelu ? undefined : right({ ...input, bias: undefined })),
  },
  { words: "split-K is ignored", answer: (input, right) => right({ ...input, splitK: 1 }) },
  {
    words:
      "the split accumulator is the other one: partial sums leave, or do not leave, the tensor core after 128 elements",
    answer: (input, right) => right({ ...input, useSplitAccumulator: !input.useSplitAccumulator }),
  },
  accumulatedIn("f16", "partial sums are rounded to f16: the accumulator is fp16"),
  accumulatedIn("bf16", "partial sums are rounded to bf16: the accumulator is bf16"),
  accumulatedIn("f32", "sums are those of a plain f32 loop in the order of K"),
  ...(["exact", "fp32", "hopper", "ada", "blackwell"] as const).map(
    (datapath): Suspect<"gemm"> => ({
      words: `sums are those of the datapath ${datapath}`,
      answer: (input, right) => (input.datapath === datapath ? undefined : right({ ...input, datapath })),
    }),
  ),
  outChange("the result is rounded to f16 on the way: double rounding", (value) => roundedTo(value, "f16")),
  outChange("the result is rounded to bf16 on the way: double rounding", (value) => roundedTo(value, "bf16")),
  outChange("NaN handling is missing: NaN results are zero", (value) => (Number.isNaN(value) ? 0 : value)),
  outChange("results have the other sign", (value) => -value),
  {
    words: "results are truncated, not rounded to nearest",
    answer: async (input, right, expected) => {
      const { out } = expected;
      if (
        !out ||
        (out.dtype !== "bf16" && out.dtype !== "f16") ||
        input.gelu ||
        Object.keys(expected).length > 1
      )
        return undefined;
      const { out: wide } = await right({ ...input, outDtype: "f32" });
      if (!wide) return undefined;
      const dtype = out.dtype;
      const values = Array.from(wideValues(wide as PlainTensor<WideDType>));
      return {
        out: fromCodes(
          out.dtype,
          out.shape,
          values.map(
            (value) => roundTo(value, { format: dtype, rounding: "towardZero", overflow: "nonfinite" }).code,
          ),
        ),
      };
    },
  },
];

/** FP8 codes read with the bias of the fnuz formats: each operand has half its value. */
function fnuz(): readonly Suspect<"gemm">[] {
  return ([["a"], ["b"], ["a", "b"]] as const).map((which) => ({
    words: `FP8 codes of ${which.join(" and ")} are read as fnuz: exactly half of their values`,
    answer: (input, right) =>
      which.every((name) => ["e4m3", "e5m2"].includes(input[name].codes.dtype))
        ? right({ ...input, alpha: input.alpha * 0.5 ** which.length })
        : undefined,
  }));
}
