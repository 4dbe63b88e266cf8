/** Two quantizations of one matrix: how far each is from it, and where they differ. */
import { factsOf } from "lockstep";
import { type ElementAnswer, isSaturated } from "./element.js";
import { type Quantization, scaleIndex } from "./quantization.js";

/** What a quantization costs. Inputs that are not finite are left out. */
export interface Cost {
  /** The bits that codes and scales take, for each value. */
  readonly bitsPerValue: number;
  /** |quantized - input| / |input|, in Frobenius norms. */
  readonly error: number;
  readonly largestError: number;
  /** Elements that have the largest code although they are beyond it. */
  readonly saturated: number;
  /** Elements that became zero. */
  readonly vanished: number;
  /** How many of the format's codes occur. */
  readonly codesUsed: number;
  readonly scaleRange: readonly [low: number, high: number];
}

/** Measures a quantization. */
export function costOf(quantization: Quantization): Cost {
  const { inputs, values, spec, scales, codes } = quantization;
  let [squares, errors, largestError, saturated, vanished] = [0, 0, 0, 0, 0];
  eachElement(quantization, (at, row, column) => {
    const input = inputs[at] as number;
    if (!Number.isFinite(input)) return;
    const error = Math.abs((values[at] as number) - input);
    squares += input * input;
    errors += error * error;
    largestError = Math.max(largestError, error);
    if (input !== 0 && values[at] === 0) vanished++;
    const scale = scales.values[scaleIndex(quantization, row, column)] as number;
    if (isSaturated(quantization, at, input / scale)) saturated++;
  });
  const scaleBits = (scales.format === "f32" ? 32 : factsOf(scales.format).bits) * scales.values.length;
  return {
    bitsPerValue: factsOf(spec.format).bits + scaleBits / inputs.length,
    error: squares > 0 ? Math.sqrt(errors / squares) : 0,
    largestError,
    saturated,
    vanished,
    codesUsed: new Set(codes).size,
    scaleRange: [
      scales.values.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY),
      scales.values.reduce((a, b) => Math.max(a, b), 0),
    ],
  };
}

function eachElement(
  { rows, columns }: Quantization,
  body: (at: number, row: number, column: number) => void,
): void {
  for (let row = 0, at = 0; row < rows; row++)
    for (let column = 0; column < columns; column++, at++) body(at, row, column);
}

/** How two quantizations of an element differ: in value, in the code alone, or not. Codes of other formats are not compared. */
export type Difference = "none" | "code" | "value";

export function differenceAt(a: Quantization, b: Quantization, at: number): Difference {
  if (!Object.is(a.values[at], b.values[at])) return "value";
  return a.spec.format === b.spec.format && a.codes[at] !== b.codes[at] ? "code" : "none";
}

/** Two quantizations of one matrix, and the elements that they give other values, in ascending order. */
export interface Pair {
  readonly a: Quantization;
  readonly b: Quantization;
  readonly different: readonly number[];
  /** The number of elements that have other codes for the same value. */
  readonly recoded: number;
}

/** Finds where two quantizations of one matrix differ. */
export function compare(a: Quantization, b: Quantization): Pair {
  const all = Array.from(a.inputs.keys(), (at) => differenceAt(a, b, at));
  const different = [...all.keys()].filter((at) => all[at] === "value");
  return { a, b, different, recoded: all.filter((difference) => difference === "code").length };
}

/** Why two quantizations give an element other codes or values, in sentences. */
export function reasons(a: ElementAnswer, b: ElementAnswer, formats: readonly [string, string]): string[] {
  const said: string[] = [];
  if (formats[0] !== formats[1]) said.push(`The formats differ: ${formats[0]} and ${formats[1]}.`);
  const blocks = [a, b].map(({ block }) => [block.rows, block.columns].flat().join());
  if (blocks[0] !== blocks[1]) said.push("The blocks that share a scale differ.");
  if (a.scale.value !== b.scale.value) {
    const ratio = a.scale.value / b.scale.value;
    said.push(
      a.rule.formula === b.rule.formula
        ? `The scale of A is ${times(ratio)} that of B, by the same rule.`
        : `The scale of A is ${times(ratio)} that of B, because the rules differ: ${a.rule.formula}, and ${b.rule.formula}.`,
    );
  } else if (a.scaling.formula !== b.scaling.formula)
    said.push(
      `The scales are equal and elements are scaled otherwise: ${a.scaling.formula}, and ${b.scaling.formula}.`,
    );
  for (const [name, { saturated }] of [["A", a] as const, ["B", b] as const])
    if (saturated)
      said.push(`In ${name} the element is beyond the largest value of its format and saturates.`);
  for (const [name, { asNearest, rounded }] of [["A", a] as const, ["B", b] as const])
    if (rounded && !asNearest)
      said.push(
        `In ${name} the code is not the nearest to input / scale, because the multiplier is rounded.`,
      );
  return said;
}

function times(ratio: number): string {
  const power = Math.log2(ratio);
  if (!Number.isInteger(power)) return `${+ratio.toPrecision(6)} times`;
  return power < 0 ? `1/${2 ** -power} of` : `${2 ** power} times`;
}
