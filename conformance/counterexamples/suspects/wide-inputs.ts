/** Mistakes with wide inputs, for every operation that has one. */
import { roundedTo } from "../../../src/explain/steps.js";
import { FLT_MAX, factsOf } from "../../../src/formats/derive.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import type { Cases, OperationName } from "../../operations/operations.js";
import type { PlainTensor } from "../../values/plain.js";
import { mapWide } from "./inputs.js";
import type { Suspect } from "./suspect.js";

/** Changes of wide inputs; `largest` is the largest finite number of their type. */
const WIDE: readonly (readonly [words: string, change: (x: number, largest: number) => number])[] = [
  ["subnormal inputs are flushed to zero", (x) => (Math.abs(x) < 2 ** -126 ? x * 0 : x)],
  ["subnormal inputs are flushed to plus zero", (x) => (Math.abs(x) < 2 ** -126 ? 0 : x)],
  ["inputs are rounded to bf16 first: double rounding", (x) => roundedTo(x, "bf16")],
  ["inputs are rounded to f16 first: double rounding", (x) => roundedTo(x, "f16")],
  ["NaN handling is missing: NaN inputs count as zero", (x) => (Number.isNaN(x) ? 0 : x)],
  ["NaN inputs count as the largest number", (x, largest) => (Number.isNaN(x) ? largest : x)],
  ["NaN and infinite inputs count as zero", (x) => (Number.isFinite(x) ? x : 0)],
  [
    "infinite inputs count as the largest finite number",
    (x, largest) => (Math.abs(x) === Infinity ? Math.sign(x) * largest : x),
  ],
  ["-0 counts as +0 in inputs", (x) => (x === 0 ? 0 : x)],
  ["the sign of inputs is lost", (x) => Math.abs(x)],
];

const largestOf = ({ dtype }: PlainTensor<WideDType>): number =>
  dtype === "f32" ? FLT_MAX : factsOf(dtype).max;

/** The suspects that change a wide input. `replaced` replaces this input in a case. */
export function ofInput<K extends OperationName>(
  replaced: (input: Cases[K], change: (x: PlainTensor<WideDType>) => PlainTensor<WideDType>) => Cases[K],
): readonly Suspect<K>[] {
  return WIDE.map(([words, change]) => ({
    words,
    answer: (input, right) =>
      right(replaced(input, (x) => mapWide(x, (value) => change(value, largestOf(x))))),
  }));
}
