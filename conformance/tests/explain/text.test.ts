/** The text of an explanation has each number of the explanation, in the same order, and nothing else. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../../src/errors.js";
import { type ExplainGemmOptions, explainGemm, type GemmExplanation } from "../../../src/explain/gemm.js";
import { QuantizeExplainer } from "../../../src/explain/quantize.js";
import type { RoundingExplanation } from "../../../src/explain/rounding.js";
import type { ExplainedStep } from "../../../src/explain/steps.js";
import type { ExplainedDotAdd } from "../../../src/explain/sums.js";
import { gemmText, numberText, quantizeText } from "../../../src/explain/text.js";
import { factsOf } from "../../../src/formats/derive.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { DIRECTIONS } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { asMatrix } from "../../../src/tensor/shape.js";
import { gemmCase } from "../../operations/gemm/arbitrary.js";
import { directionsOf, type GemmCase } from "../../operations/gemm/case.js";
import { uploadOperand } from "../../operations/gemm/operand.js";
import { type QuantizeCase, quantizeCase } from "../../operations/quantize/quantize.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

/** Requires that `text` shows x: a small integer in decimal; another number in hexadecimal and as a decimal that parses to x. */
function requireNumber(text: string, x: number): void {
  const [, sign, digits = "", exponent, decimal] =
    /^(-?)0x1(?:\.([0-9a-f]+))?p([+-]?\d+) \((\S+)\)$/.exec(text) ?? [];
  if (exponent === undefined || decimal === undefined) {
    expect(Number.isFinite(x) && !(Number.isInteger(x) && Math.abs(x) < 1000), text).toBe(false);
    expect(Number(text)).toBe(x);
    return;
  }
  const fraction = digits === "" ? 0 : Number.parseInt(digits, 16) / 16 ** digits.length;
  const halfExponent = Math.trunc(Number(exponent) / 2);
  const magnitude = (1 + fraction) * 2 ** halfExponent * 2 ** (Number(exponent) - halfExponent);
  expect(sign === "-" ? -magnitude : magnitude, text).toBe(x);
  const parsedNumber = Number(decimal);
  const isF32 = Math.fround(x) === x;
  expect(isF32 ? Math.fround(parsedNumber) : parsedNumber, text).toBe(x);
  const count = decimal
    .replace(/e.*/, "")
    .replace(/[-.]/g, "")
    .replace(/^0+|0+$/g, "").length;
  if (isF32 && count > 1) expect(Math.fround(Number(x.toPrecision(count - 1))), text).not.toBe(x);
}

/** Compares the lines of a text, in order, with the lines that its methods describe. */
class Reader {
  #next = 0;

  constructor(private readonly lines: readonly string[]) {}

  line(expected: string): void {
    expect(this.lines[this.#next++]).toBe(expected);
  }

  /** Requires the next line to consist of these strings and numbers. */
  requireFragments(...fragments: readonly (string | number)[]): void {
    const line = this.lines[this.#next++] ?? "";
    const escapeText = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const pattern = fragments.map((part) =>
      typeof part === "string" ? escapeText(part) : "(\\S+(?: \\(\\S+\\))?)",
    );
    const numbers = fragments.filter((part) => typeof part === "number");
    const lineMatch = new RegExp(`^${pattern.join("")}$`).exec(line);
    expect(lineMatch, `${line} has ${fragments.join("")}`).not.toBeNull();
    for (const [i, x] of numbers.entries()) requireNumber(lineMatch?.[i + 1] ?? "", x);
  }

  steps(steps: readonly ExplainedStep[], indent = "  "): void {
    for (const { name, formula, value } of steps)
      this.requireFragments(`${indent}${name} = ${formula} = `, value);
  }

  rounding(rounding: RoundingExplanation): void {
    const { format, rounding: mode, lower, upper, fraction, tie, decision, code, result } = rounding;
    const digits = Math.ceil(factsOf(format).bits / 4);
    const hex = (x: number | undefined): string =>
      x === undefined ? "beyond the largest" : `0x${x.toString(16).padStart(digits, "0")}`;
    this.line(`${format}, ${mode}:`);
    if (lower && upper) {
      const neighbours = ["  between ", lower.value, ` (${hex(lower.code)}) and `, upper.value];
      const end = tie ? ": an exact tie" : "";
      const upperText = [
        ` (${hex(upper.code)}), at `,
        ...(fraction === 0 ? ["the first"] : ["fraction ", fraction]),
      ];
      this.requireFragments(...neighbours, ...upperText, end);
    }
    this.requireFragments(`  ${decision}: code ${hex(code)} = `, result);
  }

  end(): void {
    expect(this.#next).toBe(this.lines.length);
  }
}

const rangeOf = ({ from, to }: { readonly from: number; readonly to: number }): string =>
  from === to ? "no k" : `k ${from} to ${to - 1}`;

function readDotAdd(reader: Reader, step: ExplainedDotAdd, isShown: boolean): void {
  const { accumulator, terms, exponent, grid, sum, result } = step;
  const numCut = terms.filter((term) => term.kept !== term.value).length;
  const loses = [
    numCut > 0 ? `, ${numCut} of ${terms.length} terms lose bits` : "",
    accumulator.kept === accumulator.value ? "" : ", c loses bits",
  ].join("");
  const alignmentText =
    grid === undefined ? "infinity or NaN" : `largest exponent ${exponent}, multiples of 2^${grid}${loses}`;
  reader.requireFragments(
    `  ${rangeOf(step)}: c = `,
    accumulator.value,
    `, ${alignmentText}, sum `,
    sum,
    ", c = ",
    result,
  );
  for (const term of isShown ? terms : []) {
    const end: (string | number)[] = [
      ...(term.exponent === undefined ? [] : [`, exponent ${term.exponent}`]),
      ...[", kept ", term.kept, ...(term.cut === 0 ? [] : [", cut ", term.cut])],
    ];
    for (const { k, x, w, product } of term.products)
      reader.requireFragments(
        ...[`    k ${k}: `, x.value, " * ", w.value, " = ", product],
        ...(term.products.length === 1 ? end : []),
      );
    if (term.products.length > 1) reader.requireFragments("    sum of the group ", term.value, ...end);
  }
}

function readGemm(explanation: GemmExplanation, product: number): void {
  const { row, column, depth, plan, staging, promotion, unverified, sum, epilogue, rounding, out } =
    explanation;
  const reader = new Reader(gemmText(explanation, { products: [product] }));
  const productNotes = [
    plan.datapath,
    staging !== "plain" && `staging ${staging}`,
    promotion !== "none" && `promotion ${promotion}`,
    plan.splitK > 1 && `split-K ${plan.splitK}`,
  ].filter((note) => note !== false);
  reader.line(`row ${row} of x by row ${column} of w, K ${depth}: ${productNotes.join(", ")}`);
  if (unverified !== undefined) reader.line(`unverified: ${unverified}`);
  if (sum.kind === "tensorCore") {
    for (const [i, split] of sum.splits.entries()) {
      if (sum.splits.length > 1) reader.line(`split ${i}, ${rangeOf(split)}:`);
      for (const chain of split.chains) {
        if (chain.promotion) reader.line(`chain of ${rangeOf(chain)}:`);
        for (const dotAdd of chain.dotAdds)
          readDotAdd(reader, dotAdd, dotAdd.from <= product && product < dotAdd.to);
        if (!chain.promotion) continue;
        reader.requireFragments("  chain = ", chain.sum);
        reader.steps(chain.promotion.steps);
      }
      if (sum.splits.length > 1) reader.requireFragments(`split ${i} = `, split.sum);
    }
    reader.steps(sum.steps, "");
  } else {
    for (const { k, product: value, total } of sum.products)
      reader.requireFragments(`k ${k}: product `, value, ...(sum.kind === "fp32" ? [", total ", total] : []));
    if (sum.kind === "exact" && sum.exact !== undefined)
      reader.line(`exact sum ${sum.exact}, rounded once to f32`);
  }
  reader.requireFragments("acc = ", sum.value);
  reader.line("epilogue:");
  reader.steps(epilogue.steps);
  if (rounding) reader.rounding(rounding);
  const digits = out.dtype === "f32" ? 8 : Math.ceil(factsOf(out.dtype).bits / 4);
  reader.requireFragments(`d = ${out.dtype} 0x${out.code.toString(16).padStart(digits, "0")} = `, out.value);
  reader.end();
}

/** Reads the text of one element of a drawn product. Returns false if the product is not supported or empty. */
function readProduct(product: GemmCase, seed: number): boolean {
  using _ = new Scope();
  const { a, b, layout, datapath, useSplitAccumulator, splitK, alpha, outDtype, outScale } = product;
  const directions = directionsOf(layout);
  const operands = {
    a: uploadOperand(backend(), a, directions.a),
    b: uploadOperand(backend(), b, directions.b),
  };
  const options = { ...operands, layout, datapath, useSplitAccumulator, splitK, alpha, outDtype, outScale };
  try {
    const { out } = gemm(options as ExplainGemmOptions);
    if (out.size === 0) return false;
    const position = out.shape.map((size) => seed % size);
    readGemm(explainGemm({ ...options, at: position } as ExplainGemmOptions), seed % 64);
    return true;
  } catch (error) {
    if (error instanceof UnsupportedError) return false;
    throw error;
  }
}

function readQuantization(drawnCase: QuantizeCase, drawnIndex: number): void {
  const { spec, x, random, scale } = drawnCase;
  const [rows, columns] = asMatrix(x.shape);
  if (rows * columns === 0) return;
  for (const direction of DIRECTIONS.filter((name) => drawnCase.usage[name])) {
    const bits = direction === "rowwise" ? drawnCase.randomBits : drawnCase.randomBitsColumnwise;
    const randomBits = bits?.data as Uint32Array | undefined;
    const context = { direction, random, randomBits, scale: Math.fround(scale) };
    const explanation = new QuantizeExplainer(x, spec, context).explain(
      drawnIndex % rows,
      drawnIndex % columns,
    );
    const { at, dtype, input, transform, block, tensorAmax, tensorScale } = explanation;
    const { scaled, rounding, code, codeAt, dequantized, error } = explanation;
    const reader = new Reader(quantizeText(explanation));
    const { quantizer, format, tile, scaleRule, elementScaling } = spec;
    const settings = `${quantizer} ${format} ${tile} ${scaleRule} ${elementScaling}`;
    const hex = (value: number, digits: number): string => `0x${value.toString(16).padStart(digits, "0")}`;
    const positionText = (place: readonly number[] | undefined): string => (place ? ` at [${place}]` : "");
    reader.line(`element [${at}], ${dtype}, in the ${direction} copy by ${settings}`);
    reader.requireFragments("x = ", input);
    if (transform) {
      const [firstRow, endRow] = transform.rows;
      reader.requireFragments(
        `x = Hadamard transform of rows ${firstRow} to ${endRow - 1} = `,
        transform.value,
      );
    }
    if (block) {
      const region = `rows ${block.top} to ${block.bottom - 1}, columns ${block.left} to ${block.right - 1}`;
      reader.requireFragments(`amax of ${region} = `, block.amax.value, positionText(block.amax.at));
    }
    if (tensorAmax) {
      const level = !spec.rowScaled ? "tensor" : direction === "rowwise" ? "row" : "column";
      const givenNote = tensorAmax.given ? ", given" : "";
      reader.requireFragments(
        `G, amax of the ${level}${givenNote} = `,
        tensorAmax.value,
        positionText(tensorAmax.at),
      );
    }
    if (tensorScale) {
      reader.line("scale of the tensor:");
      reader.steps(tensorScale.steps);
    }
    reader.requireFragments("scale, with max = ", factsOf(format).max, ":");
    reader.steps(explanation.scale.steps);
    const storedScale = hex(explanation.scale.code, explanation.scale.dtype === "f32" ? 8 : 2);
    const index = `, index ${explanation.scale.index}`;
    reader.requireFragments(
      `  stored as ${explanation.scale.dtype} ${storedScale} = `,
      explanation.scale.value,
      index,
    );
    reader.line("element:");
    reader.steps(scaled.steps);
    reader.rounding(rounding);
    reader.line(`code ${hex(code, Math.ceil(factsOf(format).bits / 4))} at [${codeAt}]`);
    const formulas = dequantized.steps.map(({ formula }) => formula).join(", ");
    reader.requireFragments(`dequantized: ${formulas} = `, dequantized.value);
    reader.requireFragments("error ", error.absolute, `, relative ${Number(error.relative.toPrecision(4))}`);
    reader.end();
  }
}

describe("the text of an explanation", () => {
  it("shows a number exactly, and as the shortest decimal that parses to it", () => {
    const number = fc.oneof(fc.double(), fc.float(), fc.integer({ min: -2000, max: 2000 }));
    const examples = [0, -0, 999, 1000, -999, -1000, 2 ** -149, 2 ** 127, 0.1, Math.fround(0.1)];
    fc.assert(
      fc.property(number, (x) => requireNumber(numberText(x), x)),
      { numRuns: draws(2000, 200), examples: examples.map((x) => [x]) },
    );
  });

  it.each(["hopper", "blackwell", "ada", "fp32", "exact"] as const)(
    "of a product has its splits, chains, steps and terms: %s",
    (datapath) => {
      const products = gemmCase({ supported: { datapath: [datapath] } });
      fc.assert(
        fc.property(
          products,
          fc.nat(1 << 20),
          (drawnCase, drawnIndex) => void readProduct(drawnCase, drawnIndex),
        ),
        { numRuns: draws(100, 10) },
      );
    },
  );

  it("of a quantization has its amaxes, steps, codes and errors", () => {
    fc.assert(fc.property(quantizeCase(), fc.nat(1 << 20), readQuantization), { numRuns: draws(300, 40) });
  });
});
