/** Describes the results of `identifyDialect` in words. */
import { blockFormat, isLineWide, isTensorWide, scaleSpan } from "../../formats/block.js";
import { decidesTies, ELEMENT_SCALINGS } from "../../formats/element-scalings.js";
import { scaleLines } from "../../tensor/geometry.js";
import { codeText, numberText, scaleValue } from "../plain.js";
import type { ElementRounding, ElementZero } from "./elements.js";
import type { CodeReading } from "./readings.js";
import type { ElementTrial, Found, Input, ScaleTrial } from "./search.js";

/** The rounded expression and the rounding. */
export function elementWords({ scaling, formula, rounding, zero, overflow }: ElementTrial): string {
  if (scaling)
    return `elements ${ELEMENT_SCALINGS[scaling].formula}${decidesTies(scaling) ? "" : ", half to even"}`;
  return `elements ${formula}, ${ROUNDED[rounding]}${ZEROS[zero]}${overflow === "saturate" ? "" : ", overflow not finite"}`;
}

const ROUNDED: Readonly<Record<ElementRounding, string>> = {
  tiesToEven: "half to even",
  tiesToAway: "half away from zero",
  tiesToZero: "half toward zero",
  towardZero: "toward zero",
  awayFromZero: "away from zero",
  towardNegative: "down",
  towardPositive: "up",
  stochastic: "to either neighbour, as if at random",
};

const ZEROS: Readonly<Record<ElementZero, string>> = {
  kept: "",
  addsZero: ", minus zero as plus zero",
  plusZero: ", what is rounded to zero as plus zero",
  minusZero: ", plus zero as minus zero",
};

const CODES: Readonly<Record<CodeReading["packing"], string>> = {
  "byte each": "",
  "low nibble first": "",
  "high nibble first": "nibbles swapped (the even column in the high one)",
  "halves of 32": "nibbles by halves of 32 elements",
  "halves of 16": "nibbles by halves of 16 elements",
  "eight in a word, plus 8": "codes plus 8, eight in a word",
  "six bits": "codes of six bits packed from the low ones",
};

/** The layout of codes and scales where it is unusual. */
export function layoutWords(
  { packing, transposed }: CodeReading,
  { reading, tensorScale }: ScaleTrial,
): readonly string[] {
  return [
    CODES[packing],
    transposed ? "codes transposed" : "",
    reading.arrangement === "plain" ? "" : `scales ${reading.arrangement}`,
    reading.form === "scale" ? "" : "one over each scale stored",
    tensorScale === undefined || tensorScale === "not given" || tensorScale === "as the rule stores it"
      ? ""
      : `of the tensor ${tensorScale === "reciprocal" ? "one over its scale" : `the ${tensorScale}`} stored`,
  ].filter((each) => each !== "");
}

/**
 * The name of a rule with other settings that affect its scales: "row-scaled twoLevel", "twoLevel by 4over6 (mae, at most 256)".
 */
function ruleWords({ rule, settings }: ScaleTrial): string {
  const { rowScaled = false, fourOverSix = "none", e4m3Max } = settings ?? {};
  const choice = fourOverSix === "none" ? "" : ` by 4over6 (${fourOverSix}, at most ${e4m3Max})`;
  return `${rowScaled ? "row-scaled " : ""}${rule}${choice}`;
}

/** One explanation in a sentence: "e8m0Floor scales of mxfp4 e2m1 1x32, elements …, nibbles swapped". */
export function foundWords({ scale, codes, elements }: Found): string {
  const { quantizer, format, tile } = scale.shape;
  const [first] = elements;
  const how = first ? [elementWords(first)] : [];
  return [
    `${ruleWords(scale)} scales of ${quantizer} ${format} ${tile}`,
    ...how,
    ...layoutWords(codes, scale),
  ].join(", ");
}

/** The name of a block by the index of its scale. */
function blockName({ shape }: ScaleTrial, { size }: Input, index: number): string {
  if (isTensorWide(shape.tile)) return "of the tensor";
  if (isLineWide(shape.tile)) return `of row ${index}`;
  const [, across] = scaleLines(shape, size, "rowwise");
  const [lines, length] = scaleSpan(shape);
  return `of the block at [${Math.floor(index / across) * lines}, ${(index % across) * length}]`;
}

/** The first scale that contradicts a rule; undefined if all agree. */
export function scaleContradiction(trial: ScaleTrial, input: Input): string | undefined {
  const { reading, expected, first, formula, tensorScale, different } = trial;
  const type = blockFormat(reading.quantizer).scale;
  const rule = ruleWords(trial);
  if (first !== undefined) {
    const [actual, expectedScale] = [reading.scales[first] as number, expected[first] as number];
    const verb = reading.form === "scale" ? "is" : "is, as one over what is stored,";
    return `${different} of ${expected.length} scales differ: that ${blockName(trial, input, first)} ${verb} ${numberText(scaleValue(type, actual))}, ${rule} (${formula}) gives ${numberText(scaleValue(type, expectedScale))}`;
  }
  if (tensorScale !== undefined) return undefined;
  const { tensorNumbers: numbers = new Float32Array(1), settings } = trial;
  if (!settings?.rowScaled)
    return `the scale of the tensor is not the ${numberText(numbers[0] ?? 0)} of ${rule}`;
  const { tensorScale: stored = new Float32Array() } = input;
  if (stored.length !== numbers.length)
    return `${rule} has an amax for each of ${numbers.length} rows, of which ${stored.length} is given`;
  const row = numbers.findIndex((each, i) => !Object.is(each, stored[i]));
  return `the amax of row ${row} is ${numberText(numbers[row] ?? 0)}, not ${numberText(stored[row] ?? 0)}`;
}

/** The first code that contradicts an element scaling. */
export function codeContradiction(
  input: Input,
  at: number,
  actual: number,
  expected: number,
  formula: string,
): string {
  const [, columns] = input.size;
  const index = `[${Math.floor(at / columns)}, ${at % columns}]`;
  return `the code at ${index}, of ${numberText(input.values[at] as number)}, is ${codeText(actual)}; ${formula} gives ${codeText(expected)}`;
}
