/** Explains why two quantizations of one element differ: the first stage that differs, and a reason in words. */
import { ArgumentError } from "../errors.js";
import { factsOf } from "../formats/derive.js";
import { ELEMENT_SCALINGS } from "../formats/element-scalings.js";
import { SCALE_RULES } from "../formats/scale-rules.js";
import { valueAt } from "../options.js";
import { f32Bits } from "./binary.js";
import type { QuantizeExplanation } from "./quantize.js";

/**
 * The first stage at which two quantizations of an element differ: the format, the block of elements that share a scale, the
 * scale, the scaled number, the rounded code, or the dequantized value.
 */
export type DifferingStage = "format" | "block" | "scale" | "scaled" | "code" | "value";

/** How two quantizations of one element differ. */
export interface DifferenceExplanation {
  /** The first stage that differs. Absent if format, block, scale, code and value are equal. */
  readonly stage?: DifferingStage;
  /** A sentence for each cause. A is the first quantization and B the second. Empty if no stage differs. */
  readonly words: readonly string[];
}

const USER = "explainDifference";

type Words = (a: QuantizeExplanation, b: QuantizeExplanation) => string;

/** The stages in order, each with a test for a difference and the sentences that report it. */
const STAGES: readonly {
  readonly stage: DifferingStage;
  readonly differs: (a: QuantizeExplanation, b: QuantizeExplanation) => boolean;
  readonly words: Words;
}[] = [
  {
    stage: "format",
    differs: (a, b) => a.spec.format !== b.spec.format,
    words: (a, b) => `A rounds to ${a.spec.format}, B to ${b.spec.format}.`,
  },
  {
    stage: "block",
    differs: (a, b) => regionText(a) !== regionText(b),
    words: (a, b) => `The scale of A serves ${regionText(a)}, that of B ${regionText(b)}.`,
  },
  {
    stage: "scale",
    differs: (a, b) => !sameScale(a, b),
    words: scaleWords,
  },
  {
    stage: "scaled",
    differs: (a, b) => sameScale(a, b) && !Object.is(a.scaled.value, b.scaled.value),
    words: (a, b) =>
      `The scales are equal and the elements are scaled otherwise: ${scalingText(a)} in A, ${scalingText(b)} in B.`,
  },
  {
    stage: "code",
    differs: (a, b) =>
      a.spec.format === b.spec.format && Object.is(a.scaled.value, b.scaled.value) && a.code !== b.code,
    words: (a, b) =>
      `${text(a.scaled.value)} becomes ${text(a.rounding.result)} in A (${a.rounding.decision}), ${text(b.rounding.result)} in B (${b.rounding.decision}).`,
  },
  {
    stage: "value",
    differs: (a, b) => sameCode(a, b) && !Object.is(a.dequantized.value, b.dequantized.value),
    words: (a, b) =>
      `Code and scale are equal and are read otherwise: ${valueText(a)} in A, ${valueText(b)} in B.`,
  },
];

/**
 * Explains why two quantizations of one element differ, from their explanations by `explainQuantize`: the first stage that
 * differs, and a sentence for each cause. The result is plain data. Two NaN are equal; +0 and -0 are not.
 *
 * @throws `ArgumentError` for explanations of different elements, and for an argument that is not an explanation.
 */
export function explainDifference(a: QuantizeExplanation, b: QuantizeExplanation): DifferenceExplanation {
  for (const [name, side] of [["a", a] as const, ["b", b] as const])
    if (typeof valueAt(side, "dequantized.value") !== "number")
      throw new ArgumentError(`${USER}: ${name} is no explanation; give the result of explainQuantize`);
  if (String(a.at) !== String(b.at) || !Object.is(a.input, b.input))
    throw new ArgumentError(
      `${USER}: a explains element [${a.at}], which is ${text(a.input)}, and b [${b.at}], which is ${text(b.input)}; explain the same element`,
    );
  const differing = STAGES.filter(({ differs }) => differs(a, b));
  const [first] = differing;
  if (!first) return { words: [] };
  const saturated = [["A", a] as const, ["B", b] as const].flatMap(([name, side]) =>
    saturates(side)
      ? [`In ${name} it is beyond the largest value, ${text(maxOf(side))}, and saturates.`]
      : [],
  );
  return { stage: first.stage, words: [...differing.map(({ words }) => words(a, b)), ...saturated] };
}

function text(x: number): string {
  return Object.is(x, -0) ? "-0" : String(Number(x.toPrecision(9)));
}

function regionText({ block }: QuantizeExplanation): string {
  if (!block) return "the whole tensor";
  const { top, bottom, left, right } = block;
  return `rows ${top} to ${bottom - 1}, columns ${left} to ${right - 1}`;
}

/** Whether the block scales and the tensor scales are equal. */
function sameScale(a: QuantizeExplanation, b: QuantizeExplanation): boolean {
  const tensorScaleOf = ({ tensorScale, tensorAmax }: QuantizeExplanation) =>
    (tensorScale ?? tensorAmax)?.value ?? 1;
  return f32Bits(a.scale.value) === f32Bits(b.scale.value) && Object.is(tensorScaleOf(a), tensorScaleOf(b));
}

function sameCode(a: QuantizeExplanation, b: QuantizeExplanation): boolean {
  return a.spec.format === b.spec.format && sameScale(a, b) && a.code === b.code;
}

function scaleWords(a: QuantizeExplanation, b: QuantizeExplanation): string {
  const [first, second] = [a, b].map(({ scale, block, tensorScale, tensorAmax, spec }) => {
    const amax = block ? `amax ${text(block.amax.value)} gives ` : "";
    const under = tensorScale
      ? ` under ${text(tensorScale.value)} of the tensor`
      : tensorAmax
        ? ` under the tensor's amax ${text(tensorAmax.value)}`
        : "";
    return `${amax}${text(scale.value)}${under} (${SCALE_RULES[spec.scaleRule].formula})`;
  });
  const ratio = a.scale.value / b.scale.value;
  const times = Number.isFinite(ratio) && ratio !== 1 ? `, ${text(ratio)} times that of B` : "";
  return `The scale of A${times}: ${first}; in B ${second}.`;
}

function scalingText({ spec, scaled }: QuantizeExplanation): string {
  return `${ELEMENT_SCALINGS[spec.elementScaling].formula} gives ${text(scaled.value)}`;
}

function valueText({ dequantized: { steps, value } }: QuantizeExplanation): string {
  return `${steps.map(({ formula }) => formula).join(", ")} gives ${text(value)}`;
}

function maxOf({ spec }: QuantizeExplanation): number {
  return factsOf(spec.format).max;
}

function saturates(side: QuantizeExplanation): boolean {
  const max = maxOf(side);
  return Math.abs(side.scaled.value) > max && Math.abs(side.rounding.result) === max;
}
