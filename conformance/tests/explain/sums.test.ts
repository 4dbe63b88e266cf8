/**
 * Every number in the explanation of a sum follows from the operands by datapath.md, in exact arithmetic that shares no code with
 * it, for products whose groups, steps and chains cancel and whose scales are at the limits of their formats.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../../src/errors.js";
import { explainGemm } from "../../../src/explain/gemm.js";
import type { ExplainedFactor } from "../../../src/explain/operands.js";
import type { ExplainedDotAdd, ExplainedSum, ExplainedTerm } from "../../../src/explain/sums.js";
import type { DotAdd } from "../../../src/formats/datapath.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { Scope } from "../../../src/tensor/scope.js";
import { gemmCase } from "../../operations/gemm/arbitrary.js";
import { directionsOf, type GemmCase } from "../../operations/gemm/case.js";
import { multiplied, oracleOperand, uploadOperand } from "../../operations/gemm/operand.js";
import {
  add,
  bf16,
  compare,
  floorLog2,
  fma,
  magnitude,
  minus,
  mul,
  ofNumber,
  plus,
  powerOfTwo,
  type Rational,
  rational,
  roundToNearest,
  times,
  toNumber,
  truncate,
} from "../../oracle/core/rational.js";
import { type ProductRule, productRule } from "../../oracle/gemm/datapath.js";
import type { OracleOperand } from "../../oracle/gemm/gemm.js";
import { download } from "../../values/plain.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { withCancellingTerms } from "./cancelling.js";

const backend = useBackend();
const ZERO = rational(0n);
const TF32 = { fractionBits: 10, minExponent: -126, maxExponent: 127 };

/** Truncates toward zero to a multiple of 2^grid. */
const truncateTo = (a: Rational, grid: number): Rational =>
  times(rational(truncate(times(a, powerOfTwo(-grid)))), powerOfTwo(grid));

/** The exponent of a number; undefined for zero. */
function exponentOf(x: number, minExponent: number): number | undefined {
  return x === 0 || !Number.isFinite(x) ? undefined : Math.max(floorLog2(ofNumber(x)), minExponent);
}

/** The value that a datapath multiplies for an element, and its exponent (datapath.md §1, §3). */
function factorOf(operand: OracleOperand, line: number, k: number, staging: ProductRule["staging"]) {
  const element = operand.lines[line]?.[k] as number;
  const scale = operand.scale?.(line, k) ?? 1;
  const product =
    Number.isFinite(element) && Number.isFinite(scale)
      ? times(ofNumber(element), ofNumber(scale))
      : undefined;
  const scaleExponent = exponentOf(scale, operand.scaleMinExponent ?? -127) ?? 0;
  const elementExponent = exponentOf(element, operand.minExponent);
  switch (staging) {
    case "plain":
      return { value: element, exponent: elementExponent };
    case "bf16": {
      const value = product ? bf16(product) : element * scale;
      return { value, exponent: exponentOf(value, -126) };
    }
    case "tf32": {
      const value = Number.isFinite(element) ? roundToNearest(ofNumber(element), TF32) : element;
      return { value, exponent: exponentOf(value, -126) };
    }
    case "scaled": {
      const value = product ? toNumber(product) : element * scale;
      return {
        value,
        exponent: elementExponent === undefined || value === 0 ? undefined : elementExponent + scaleExponent,
      };
    }
    case "grouped":
      return { value: product ? toNumber(product) : element * scale, exponent: scaleExponent };
  }
}

/** Fails unless a factor agrees with the operand. */
function requireFactor(
  explainedFactor: ExplainedFactor,
  expected: ReturnType<typeof factorOf>,
  scale: number | undefined,
) {
  expect(explainedFactor.value).toEqual(expected.value === 0 ? explainedFactor.value : expected.value);
  expect(explainedFactor.value === 0).toBe(expected.value === 0);
  expect(explainedFactor.exponent).toBe(expected.exponent);
  expect(explainedFactor.scale).toEqual(scale);
}

/**
 * Fails unless a term is the exact sum of its products, `kept` and `cut` are its parts above and below the grid, and its exponent
 * is the first product's (undefined if all products are 0).
 */
function requireTerm(term: ExplainedTerm, grid: number): void {
  const { products, value, exponent, kept, cut } = term;
  for (const { x, w, product } of products)
    expect(compare(ofNumber(product), times(ofNumber(x.value), ofNumber(w.value)))).toBe(0);
  const exact = products.map(({ product }) => ofNumber(product)).reduce(plus, ZERO);
  expect(compare(ofNumber(value), exact)).toBe(0);
  const [firstProduct] = products;
  const hasNonzero = products.some(({ product }) => product !== 0);
  const firstExponent = (firstProduct?.x.exponent ?? Number.NaN) + (firstProduct?.w.exponent ?? Number.NaN);
  expect(exponent).toBe(hasNonzero ? firstExponent : undefined);
  expect(compare(ofNumber(kept), truncateTo(exact, grid))).toBe(0);
  expect(compare(ofNumber(cut), minus(exact, truncateTo(exact, grid)))).toBe(0);
}

/** Fails unless a step adds its terms to the accumulator by the rule. */
function requireStep(step: ExplainedDotAdd, rule: DotAdd): void {
  const { accumulator, terms, exponent, grid, sum, result, exact } = step;
  if (grid === undefined) {
    const addends = [
      accumulator.value,
      ...terms.flatMap(({ products }) => products.map(({ product }) => product)),
    ];
    const nonFinite = addends.filter((value) => !Number.isFinite(value));
    expect(nonFinite.length).toBeGreaterThan(0);
    const hasNaN = nonFinite.some(Number.isNaN) || new Set(nonFinite).size > 1;
    for (const shownSum of [sum, result, exact]) expect(shownSum).toBe(hasNaN ? Number.NaN : nonFinite[0]);
    return;
  }
  const exponentOfC = exponentOf(accumulator.value, -126) ?? rule.zeroAccumulator;
  expect(accumulator.exponent).toBe(exponentOfC);
  expect(exponent).toBe(
    Math.max(exponentOfC, ...terms.map((term) => term.exponent ?? Number.NEGATIVE_INFINITY)),
  );
  expect(grid).toBe((exponent as number) - rule.alignBits);
  for (const term of terms) {
    expect(term.products.length).toBeLessThanOrEqual(rule.group);
    requireTerm(term, grid);
  }
  const c = ofNumber(accumulator.value);
  expect(compare(ofNumber(accumulator.kept), truncateTo(c, grid))).toBe(0);
  expect(compare(ofNumber(accumulator.cut), minus(c, truncateTo(c, grid)))).toBe(0);
  const total = [c, ...terms.map(({ value }) => ofNumber(value))]
    .map((addend) => truncateTo(addend, grid))
    .reduce(plus);
  expect(compare(ofNumber(sum), total)).toBe(0);
  expect(result).toBe(roundAccumulator(total, rule.fractionBits));
  const exactSum = [c, ...terms.map(({ value }) => ofNumber(value))].reduce(plus);
  const distance = magnitude(minus(exactSum, ofNumber(exact)));
  expect(compare(distance, times(magnitude(exactSum), powerOfTwo(-53)))).toBeLessThanOrEqual(0);
}

/** A sum in an accumulator with this many fraction bits. */
function roundAccumulator(sum: Rational, fractionBits: number): number {
  if (sum.num === 0n) return 0;
  if (compare(magnitude(sum), powerOfTwo(128)) >= 0) return sum.num < 0n ? -Infinity : Infinity;
  return toNumber(truncateTo(sum, Math.max(floorLog2(sum), -126) - fractionBits));
}

interface Context {
  readonly x: OracleOperand;
  readonly w: OracleOperand;
  readonly row: number;
  readonly column: number;
  readonly productRules: ProductRule;
}

/** Fails unless each number of a sum follows from the operands. */
function requireSum(sum: ExplainedSum, { x, w, row, column, productRules }: Context): void {
  const { staging, rule, promotion } = productRules;
  const scaleOf = (operand: OracleOperand, line: number, k: number) => operand.scale?.(line, k);
  const requireFactors = (k: number, factorOfX: ExplainedFactor, factorOfW: ExplainedFactor) => {
    requireFactor(factorOfX, factorOf(x, row, k, staging), scaleOf(x, row, k));
    requireFactor(factorOfW, factorOf(w, column, k, staging), scaleOf(w, column, k));
  };
  if (sum.kind !== "tensorCore") {
    for (const { k, x: factorOfX, w: factorOfW } of sum.products) requireFactors(k, factorOfX, factorOfW);
    expect(sum.value).toBe(sum.products.at(-1)?.total ?? 0);
    return;
  }
  let value = 0;
  for (const [i, split] of sum.splits.entries()) {
    let total = 0;
    for (const chain of split.chains) {
      let previousEnd = 0;
      for (const step of chain.dotAdds) {
        expect(step.accumulator.value).toBe(previousEnd);
        for (const { products } of step.terms)
          for (const { k, x: factorOfX, w: factorOfW } of products) requireFactors(k, factorOfX, factorOfW);
        requireStep(step, rule as DotAdd);
        previousEnd = step.result;
      }
      expect(chain.sum).toBe(previousEnd);
      expect(chain.promotion === undefined).toBe(promotion === "none");
      const [sX, sW] = [scaleOf(x, row, chain.from) ?? 1, scaleOf(w, column, chain.from) ?? 1];
      if (promotion === "add") total = add(total, previousEnd);
      else if (promotion === "scaleProduct") total = fma(previousEnd, mul(sX, sW), total);
      else if (promotion === "scaleChain") total = fma(mul(previousEnd, sX), sW, total);
      else total = previousEnd;
      if (chain.promotion) {
        expect(chain.promotion.total).toBe(total);
        expect(chain.promotion.steps.at(-1)).toMatchObject({ name: "total", value: total });
        const shownSteps = new Map(chain.promotion.steps.map(({ name, value }) => [name, value]));
        for (const [name, expected] of [
          ["sX", sX],
          ["sW", sW],
        ] as const)
          if (shownSteps.has(name)) expect(shownSteps.get(name)).toBe(expected);
      }
    }
    expect(split.sum).toBe(total);
    value = i === 0 ? total : add(value, total);
    if (i > 0) expect(sum.steps[i - 1]?.value).toBe(value);
  }
  expect(sum.value).toBe(value);
}

/** Explains elements of a product. Returns whether a group of it cancels; undefined if the product is refused. */
function compareProduct(drawnCase: GemmCase, drawnIndices: readonly number[]): boolean | undefined {
  using _scope = new Scope();
  const { a, b, layout, datapath, useSplitAccumulator, splitK, alpha, outDtype, outScale } = drawnCase;
  const directions = directionsOf(layout);
  const options = {
    a: uploadOperand(backend(), a, directions.a),
    b: uploadOperand(backend(), b, directions.b),
    ...{ layout, datapath, useSplitAccumulator, splitK, alpha, outDtype, outScale },
  };
  const out = tryGemm(options);
  if (!out) return undefined;
  const productRules = productRule(
    datapath,
    multiplied(b),
    multiplied(a),
    useSplitAccumulator,
  ) as ProductRule;
  const [x, w] = [oracleOperand(b), oracleOperand(a)];
  const columns = out.shape.at(-1) as number;
  const { codes } = download(out);
  let cancels = false;
  for (const drawnIndex of codes.length === 0 ? [] : drawnIndices) {
    const index = drawnIndex % codes.length;
    let remainingIndex = index;
    const position = out.shape.toReversed().map((size) => {
      const index = remainingIndex % size;
      remainingIndex = Math.floor(remainingIndex / size);
      return index;
    });
    const explanation = explainGemm({ ...options, at: position.toReversed() });
    expect(explanation.out.code).toBe(codes[index]);
    const [row, column] = [Math.floor(index / columns), index % columns];
    requireSum(explanation.sum, { x, w, row, column, productRules });
    const steps =
      explanation.sum.kind === "tensorCore" ? explanation.sum.splits.flatMap(({ chains }) => chains) : [];
    cancels ||= steps.some(({ dotAdds }) =>
      dotAdds.some(({ terms }) => terms.some(({ value, exponent }) => value === 0 && exponent !== undefined)),
    );
  }
  return cancels;
}

function tryGemm(options: Parameters<typeof gemm>[0]) {
  try {
    return gemm(options).out;
  } catch (error) {
    if (error instanceof UnsupportedError) return undefined;
    throw error;
  }
}

const indexDraws = fc.array(fc.nat(1 << 20), { minLength: 2, maxLength: 2 });

describe("the explanation of a sum", () => {
  it("shows numbers that follow from the operands, where groups, steps and chains cancel and scales are extreme", () => {
    fc.assert(
      fc.property(gemmCase(), fc.nat(), indexDraws, (drawnCase, seed, drawnIndices) => {
        compareProduct(withCancellingTerms(drawnCase, seed), drawnIndices);
      }),
      { numRuns: draws(50) },
    );
  });

  it("aligns a group that cancels to zero by its exponents, as the sum of FP4 does", () => {
    let count = 0;
    const fp4 = gemmCase({ supported: { datapath: ["blackwell"], "b.source.spec.format": ["e2m1"] } });
    fc.assert(
      fc.property(fp4, fc.nat(), indexDraws, (drawnCase, seed, drawnIndices) => {
        if (compareProduct(withCancellingTerms(drawnCase, seed), drawnIndices)) count++;
      }),
      { numRuns: draws(30, 16), seed: derivedSeed(21) },
    );
    expect(count).toBeGreaterThan(0);
  });

  it.each([
    ["blackwell", "scaled"],
    ["hopper", "scaled"],
    ["blackwell", "quantized"],
  ] as const)(
    "shows numbers that follow from the operands on %s, of %s operands with extreme scales",
    (datapath, kind) => {
      const supported = { datapath: [datapath], "a.source.kind": [kind], "b.source.kind": [kind] };
      let count = 0;
      fc.assert(
        fc.property(gemmCase({ supported }), fc.nat(), indexDraws, (drawnCase, seed, drawnIndices) => {
          if (compareProduct(withCancellingTerms(drawnCase, seed | 16), drawnIndices) !== undefined) count++;
        }),
        { numRuns: draws(30) },
      );
      expect(count).toBeGreaterThan(0);
    },
  );
});
