/** Mistakes in the amax that a kernel stores next to codes and scales. */
import { f32Bits, f32OfBits } from "../../../src/explain/binary.js";
import { roundedTo } from "../../../src/explain/steps.js";
import { factsOf } from "../../../src/formats/derive.js";
import { tensorScaleRole } from "../../../src/formats/scale-rules.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import type { PlainTensor } from "../../values/plain.js";
import type { View } from "./view.js";

/** A wrong way to store an amax or line amaxes. */
export interface AmaxSuspect {
  /** The mistake, in words. */
  readonly words: string;
  /** The bits that the mistake stores; undefined if it cannot occur for this tensor. */
  readonly of: (view: View, right: PlainTensor) => readonly number[] | undefined;
}

/** Changes the expected amax. */
const changed = (words: string, change: (amax: number) => number): AmaxSuspect => ({
  words,
  of: (_, right) => Array.from(right.codes, (bits) => f32Bits(Math.fround(change(f32OfBits(bits))))),
});

/** Takes another maximum over the tensor's values. */
const maximum = (words: string, of: (values: readonly number[]) => number): AmaxSuspect => ({
  words,
  of: ({ elements }, right) =>
    right.codes.length === 1 ? [f32Bits(of(elements.map(({ x }) => x)))] : undefined,
});

const largest = (values: readonly number[]): number =>
  values.reduce((most, x) => Math.max(most, Number.isNaN(x) ? 0 : Math.abs(x)), 0);

const FACTORS: readonly (readonly [words: string, factor: number])[] = [
  ["2 * amax", 2],
  ["amax / 2", 1 / 2],
];
const DIVISORS = [6, 448, 256, 2688, 1536, 57344];

/** The amax of an NVFP4 tensor whose tensor scale is 1: the largest element times the largest block scale. */
export function unitAmax({ format, e4m3Max }: QuantizeSpec): number {
  return factsOf(format).max * e4m3Max;
}

/** Every suspect for the tensor's amax, or for the tensor scale that some rules store instead; the likely ones first. */
export function amaxSuspects(spec: QuantizeSpec): readonly AmaxSuspect[] {
  const role = tensorScaleRole(spec.scaleRule);
  const always = [
    changed("the scale of the tensor is left out: 1 is stored", () => 1),
    changed("the scale of the tensor is left out: 0 is stored", () => 0),
  ];
  if (role && role !== "amax")
    return [
      ...always,
      changed("one over the scale of the tensor is stored", (x) => 1 / x),
      {
        words: "the amax of the tensor is stored, not its scale",
        of: ({ elements }, right) =>
          right.codes.length === 1 ? [f32Bits(largest(elements.map(({ x }) => x)))] : undefined,
      },
      ...FACTORS.map(([, factor]) =>
        changed(`the stored scale of the tensor is ${factor} times as large`, (x) => x * factor),
      ),
    ];
  const instead = "is stored for the tensor, not its amax";
  const unit = unitAmax(spec);
  return [
    ...always,
    ...(role === "amax"
      ? [changed(`the scale of the tensor is left out: ${unit} is stored, whose scale is 1`, () => unit)]
      : []),
    changed("the stored amax of the tensor is its reciprocal", (x) => 1 / x),
    ...DIVISORS.flatMap((n) => [
      changed(`the decode scale amax / ${n} ${instead}`, (x) => x / n),
      changed(`the encode scale ${n} / amax ${instead}`, (x) => n / x),
    ]),
    ...FACTORS.map(([words, factor]) => changed(`${words} ${instead}`, (x) => x * factor)),
    ...(["bf16", "f16"] as const).map((type) =>
      changed(`the stored amax is rounded to ${type}`, (x) => roundedTo(x, type)),
    ),
    changed("the stored amax is rounded up to a power of two", (x) =>
      x > 0 && x < Infinity ? 2 ** Math.ceil(Math.log2(x)) : x,
    ),
    changed("the stored amax has a minus sign", (x) => -x),
    maximum("NaN enters the stored amax, where NaN has to be ignored", (values) =>
      values.some(Number.isNaN) ? Number.NaN : largest(values),
    ),
    maximum("the stored amax is the maximum without the absolute value", (values) =>
      values.reduce((most, x) => Math.max(most, x), 0),
    ),
    maximum("infinities are ignored in the stored amax", (values) => largest(values.filter(Number.isFinite))),
    {
      words: "the stored amax is that of the first row alone",
      of: ({ elements, source }, right) =>
        right.codes.length === 1
          ? [f32Bits(largest(elements.slice(0, source.columns).map(({ x }) => x)))]
          : undefined,
    },
  ];
}
