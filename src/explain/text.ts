/** Explanations as lines of text. Numbers are in hexadecimal floating point. */
import { factsOf } from "../formats/derive.js";
import { SPECIAL_FUNCTIONS } from "../formats/special-functions.js";
import { hexFloat } from "./binary.js";
import type { GemmExplanation } from "./gemm.js";
import type { QuantizeExplanation } from "./quantize.js";
import type { RoundingExplanation } from "./rounding.js";
import type { SpecialFunctionExplanation } from "./special-function.js";
import type { ExplainedStep } from "./steps.js";
import type { ExplainedDotAdd, ExplainedSplit, ExplainedSum } from "./sums.js";

/** Prints a number in hexadecimal and decimal. Small integers are decimal only. */
export function numberText(x: number): string {
  if (!Number.isFinite(x)) return String(x);
  if (Number.isInteger(x) && Math.abs(x) < 1000) return Object.is(x, -0) ? "-0" : String(x);
  return `${hexFloat(x)} (${decimalText(x)})`;
}

/** The number of digits that distinguishes any two f32. */
const F32_DIGITS = 9;

/** The shortest decimal that parses to the same f32, or to the same f64 if x is not an f32. */
function decimalText(x: number): string {
  if (Math.fround(x) !== x) return String(x);
  for (let digits = 1; digits < F32_DIGITS; digits++) {
    const short = Number(x.toPrecision(digits));
    if (Math.fround(short) === x) return String(short);
  }
  return String(Number(x.toPrecision(F32_DIGITS)));
}

/** Prints a code in hexadecimal. */
export function codeText(code: number, bits: number): string {
  return `0x${code.toString(16).padStart(Math.ceil(bits / 4), "0")}`;
}

function stepLines(steps: readonly ExplainedStep[], indent = "  "): readonly string[] {
  return steps.map(({ name, formula, value }) => `${indent}${name} = ${formula} = ${numberText(value)}`);
}

/** Prints a rounding: neighbours, position, decision, code. */
function roundingLines(rounding: RoundingExplanation): readonly string[] {
  const { format, lower, upper, fraction, tie, decision, code, result, rounding: mode } = rounding;
  const { bits } = factsOf(format);
  const neighbour = (each: { readonly code?: number; readonly value: number }): string =>
    `${numberText(each.value)}${each.code === undefined ? " (beyond the largest)" : ` (${codeText(each.code, bits)})`}`;
  const where =
    lower && upper
      ? [
          `  between ${neighbour(lower)} and ${neighbour(upper)}, at ${fraction === 0 ? "the first" : `fraction ${hexFloat(fraction)} (${decimalText(fraction)})`}${tie ? ": an exact tie" : ""}`,
        ]
      : [];
  return [
    `${format}, ${mode}:`,
    ...where,
    `  ${decision}: code ${codeText(code, bits)} = ${numberText(result)}`,
  ];
}

/** The scope of the amax on which the element's scale depends. */
function levelName({ spec, direction }: QuantizeExplanation): string {
  return spec.rowScaled ? (direction === "rowwise" ? "row" : "column") : "tensor";
}

/** Prints the explanation of a quantization. */
export function quantizeText(explained: QuantizeExplanation): readonly string[] {
  const { spec, direction, at, dtype, input, transform, block, tensorAmax, tensorScale } = explained;
  const { scale, scaled, rounding, code, codeAt, dequantized, error } = explained;
  const { quantizer, format, tile, scaleRule, elementScaling } = spec;
  const indexText = (place: { readonly at?: readonly [number, number] }) =>
    place.at ? ` at [${place.at}]` : "";
  const settings = [quantizer, format, tile, scaleRule, elementScaling].join(" ");
  const { bits } = factsOf(format);
  const scaleBits = scale.dtype === "f32" ? 32 : 8;
  return [
    `element [${at}], ${dtype}, in the ${direction} copy by ${settings}`,
    `x = ${numberText(input)}`,
    ...(transform
      ? [
          `x = Hadamard transform of rows ${transform.rows[0]} to ${transform.rows[1] - 1} = ${numberText(transform.value)}`,
        ]
      : []),
    ...(block
      ? [
          `amax of rows ${block.top} to ${block.bottom - 1}, columns ${block.left} to ${block.right - 1} = ${numberText(block.amax.value)}${indexText(block.amax)}`,
        ]
      : []),
    ...(tensorAmax
      ? [
          `G, amax of the ${levelName(explained)}${tensorAmax.given ? ", given" : ""} = ${numberText(tensorAmax.value)}${indexText(tensorAmax)}`,
        ]
      : []),
    ...(tensorScale ? ["scale of the tensor:", ...stepLines(tensorScale.steps)] : []),
    `scale, with max = ${numberText(factsOf(format).max)}:`,
    ...stepLines(scale.steps),
    `  stored as ${scale.dtype} ${codeText(scale.code, scaleBits)} = ${numberText(scale.value)}, index ${scale.index}`,
    "element:",
    ...stepLines(scaled.steps),
    ...roundingLines(rounding),
    `code ${codeText(code, bits)} at [${codeAt}]`,
    `dequantized: ${dequantized.steps.map(({ formula }) => formula).join(", ")} = ${numberText(dequantized.value)}`,
    `error ${numberText(error.absolute)}, relative ${Number(error.relative.toPrecision(4))}`,
  ];
}

/** How much of a sum to print: every step of a tensor core, or also the products of the steps that contain one of these k. */
export interface SumDetail {
  /** Indices along K. The steps that contain one are printed with all products. */
  readonly products: readonly number[];
}

/** Prints the explanation of a product. */
export function gemmText(
  explained: GemmExplanation,
  detail: SumDetail = { products: [] },
): readonly string[] {
  const { row, column, depth, plan, staging, promotion, unverified, sum, epilogue, rounding, out } =
    explained;
  const bits = out.dtype === "f32" ? 32 : factsOf(out.dtype).bits;
  const how = [
    plan.datapath,
    ...(staging === "plain" ? [] : [`staging ${staging}`]),
    ...(promotion === "none" ? [] : [`promotion ${promotion}`]),
    ...(plan.splitK > 1 ? [`split-K ${plan.splitK}`] : []),
  ];
  return [
    `row ${row} of x by row ${column} of w, K ${depth}: ${how.join(", ")}`,
    ...(unverified === undefined ? [] : [`unverified: ${unverified}`]),
    ...sumLines(sum, detail),
    `acc = ${numberText(sum.value)}`,
    "epilogue:",
    ...stepLines(epilogue.steps),
    ...(rounding ? roundingLines(rounding) : []),
    `d = ${out.dtype} ${codeText(out.code, bits)} = ${numberText(out.value)}`,
  ];
}

function sumLines(sum: ExplainedSum, detail: SumDetail): readonly string[] {
  switch (sum.kind) {
    case "tensorCore":
      return [
        ...sum.splits.flatMap((split, i) => splitLines(split, i, sum.splits.length, detail)),
        ...stepLines(sum.steps, ""),
      ];
    case "fp32":
      return sum.products.map(
        ({ k, product, total }) => `k ${k}: product ${numberText(product)}, total ${numberText(total)}`,
      );
    case "exact":
      return [
        ...sum.products.map(({ k, product }) => `k ${k}: product ${numberText(product)}`),
        ...(sum.exact === undefined ? [] : [`exact sum ${sum.exact}, rounded once to f32`]),
      ];
  }
}

function splitLines(split: ExplainedSplit, i: number, count: number, detail: SumDetail): readonly string[] {
  const title = count > 1 ? [`split ${i}, ${rangeText(split)}:`] : [];
  const lines = split.chains.flatMap(({ dotAdds, sum, promotion, ...range }) => [
    ...(promotion ? [`chain of ${rangeText(range)}:`] : []),
    ...dotAdds.flatMap((each) => dotAddLines(each, detail)),
    ...(promotion ? [`  chain = ${numberText(sum)}`, ...stepLines(promotion.steps)] : []),
  ]);
  return [...title, ...lines, ...(count > 1 ? [`split ${i} = ${numberText(split.sum)}`] : [])];
}

function rangeText({ from, to }: { readonly from: number; readonly to: number }): string {
  return to > from ? `k ${from} to ${to - 1}` : "no k";
}

function dotAddLines(step: ExplainedDotAdd, { products }: SumDetail): readonly string[] {
  const { from, to, accumulator, terms, exponent, grid, sum, result } = step;
  const cut = terms.filter((term) => term.cut !== 0).length;
  const loses = [
    ...(cut > 0 ? [`${cut} of ${terms.length} terms lose bits`] : []),
    ...(accumulator.cut === 0 ? [] : ["c loses bits"]),
  ];
  const aligned =
    grid === undefined
      ? "infinity or NaN"
      : `largest exponent ${exponent}, multiples of 2^${grid}${loses.length > 0 ? `, ${loses.join(", ")}` : ""}`;
  const shown = products.some((k) => k >= from && k < to);
  return [
    `  ${rangeText(step)}: c = ${numberText(accumulator.value)}, ${aligned}, sum ${numberText(sum)}, c = ${numberText(result)}`,
    ...(shown ? terms.flatMap(termLines) : []),
  ];
}

function termLines({
  products,
  value,
  exponent,
  kept,
  cut,
}: ExplainedDotAdd["terms"][number]): readonly string[] {
  const exponentText = exponent === undefined ? "" : `, exponent ${exponent}`;
  const suffix = `${exponentText}, kept ${numberText(kept)}${cut === 0 ? "" : `, cut ${numberText(cut)}`}`;
  const productLines = products.map(
    ({ k, x, w, product }) =>
      `    k ${k}: ${numberText(x.value)} * ${numberText(w.value)} = ${numberText(product)}`,
  );
  if (productLines.length === 1) return [`${productLines[0]}${suffix}`];
  return [...productLines, `    sum of the group ${numberText(value)}${suffix}`];
}

/** Prints the explanation of a special function. Integers are decimal. */
export function specialFunctionText(explanation: SpecialFunctionExplanation): readonly string[] {
  const { function: name, x, y, fields, steps, result, bits } = explanation;
  const { s, E, f } = fields;
  return [
    `${name} of ${numberText(x)}${y === undefined ? "" : ` and ${numberText(y)}`}`,
    `  s = ${s}, E = ${E}, f = ${f}`,
    ...steps.map((step) => `  ${step.name} = ${step.formula} = ${specialValueText(step.name, step.value)}`),
    `result ${numberText(result)}, bits ${codeText(bits, SPECIAL_FUNCTIONS[name].dtype === "f32" ? 32 : 16)}`,
  ];
}

/** Steps whose values are real numbers. They are printed as such even if they happen to be integers. */
const REAL_STEPS = ["x", "p", "result"];

function specialValueText(name: string, value: number): string {
  return REAL_STEPS.includes(name) || !Number.isInteger(value) ? numberText(value) : String(value);
}
