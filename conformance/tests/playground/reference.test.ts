/** The playground's answers: quantized matrices, their elements, and dot products. */
import * as fc from "fast-check";
import {
  BLOCK_FORMATS,
  type BlockFormat,
  decode,
  dequantizeAs,
  encode,
  explainDifference,
  gemm,
  quantizerOf,
  Scope,
  type Tensor,
  tensor,
} from "lockstep";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { bitsOf, floatOf } from "../../../playground/src/data/numbers.js";
import {
  answerOrReason,
  CHOICES,
  choiceOf,
  compare,
  costOf,
  differenceAt,
  explainElement,
  explainProduct,
  type Operand,
  openReference,
  quantize,
  scaleIndex,
} from "../../../playground/src/reference/index.js";
import { draws, sampleCases } from "../harness/draws.js";

type Backend = Awaited<ReturnType<typeof openReference>>;

let backend: Backend;
beforeAll(async () => {
  backend = await openReference();
});
afterAll(async () => {
  expect(backend.memoryUse().live).toBe(0);
  await backend.dispose();
});

/** Any f32, and often one near the values of a narrow format: few bits of fraction, and exponents near 0. */
const singleRow = fc.oneof(
  fc.integer({ min: 0, max: 2 ** 32 - 1 }).map(floatOf),
  fc
    .record({
      sign: fc.constantFrom(-1, 1),
      units: fc.integer({ min: 0, max: 255 }),
      exponent: fc.integer({ min: -24, max: 12 }),
    })
    .map(({ sign, units, exponent }) => sign * units * 2 ** exponent),
);

/** Matrices of any size, padding needed or not, with values of any magnitude. */
const matrix = fc
  .record({
    rows: fc.integer({ min: 1, max: 70 }),
    columns: fc.integer({ min: 1, max: 140 }),
    seed: fc.array(singleRow.filter(Number.isFinite), { minLength: 1, maxLength: 40 }),
    dtype: fc.constantFrom("bf16", "f32", "f16"),
  })
  .map(
    ({ rows, columns, seed, dtype }) =>
      ({
        rows,
        columns,
        dtype,
        values: Float32Array.from(
          { length: rows * columns },
          (_, i) => seed[(i * 7) % seed.length] as number,
        ),
      }) as const,
  );

describe("a quantized matrix", () => {
  it.each(sampleCases(CHOICES, 6))(
    "under $dialect, $quantizer, $format, $tile has the codes, scales and values of the dialect",
    (choice) => {
      fc.assert(
        fc.property(matrix, (input) => {
          const { rows, columns } = input;
          const quantizedInput = quantize(backend, input, choice);
          const { multiple }: BlockFormat = BLOCK_FORMATS[choice.quantizer];
          const width = Math.ceil(columns / multiple) * multiple;
          const paddedValues = Float32Array.from({ length: rows * width }, (_, i) => {
            const [row, column] = [Math.floor(i / width), i % width];
            return column < columns ? (input.values[row * columns + column] as number) : 0;
          });
          const scope = new Scope();
          const wide = tensor(backend, paddedValues, [rows, width]);
          const x =
            input.dtype === "f32" ? wide : encode(wide, { format: input.dtype, overflow: "nonfinite" });
          const { dialect, quantizer, format, tile } = choice;
          const quantizedTensor = quantizerOf({ dialect, quantizer, format, tile }).quantize(x);
          const values = (
            dequantizeAs(quantizedTensor, { dialect, dtype: "f32" }) as Tensor<"f32">
          ).dataSync();
          const elements = decode(quantizedTensor.copy("rowwise").data).dataSync();
          for (let row = 0; row < rows; row++)
            for (let column = 0; column < columns; column++) {
              const [position, from] = [row * columns + column, row * width + column];
              if (!Object.is(quantizedInput.values[position], values[from]))
                throw new Error(`value ${position}`);
              if (!Object.is(quantizedInput.elements[position], elements[from]))
                throw new Error(`element ${position}`);
            }
          scope.dispose();
        }),
        { numRuns: draws(4) },
      );
    },
  );

  it("differs from another where codes or values do, and its elements are explained as they are", () => {
    const choices = fc.constantFrom(...CHOICES);
    fc.assert(
      fc.property(matrix, choices, choices, fc.nat(), (drawnInput, firstChoice, secondChoice, seed) => {
        const pair = compare(
          quantize(backend, drawnInput, firstChoice),
          quantize(backend, drawnInput, secondChoice),
        );
        const { a, b } = pair;
        const position = seed % a.inputs.length;
        const coordinates = [Math.floor(position / a.columns), position % a.columns] as const;
        const [firstSteps, secondSteps] = [
          explainElement(a, ...coordinates),
          explainElement(b, ...coordinates),
        ];
        const difference = differenceAt(a, b, position);
        expect(pair.different.includes(position)).toBe(!Object.is(a.values[position], b.values[position]));
        if (difference !== "none") expect(explainDifference(firstSteps, secondSteps).words).not.toEqual([]);
        for (const [q, explainedElement] of [[a, firstSteps] as const, [b, secondSteps] as const]) {
          const scale = scaleIndex(q, ...coordinates);
          expect(explainedElement.input).toBe(q.inputs[position]);
          expect(explainedElement.code).toBe(q.codes[position]);
          expect(explainedElement.scale.code).toBe(q.scales.codes[scale]);
          expect(explainedElement.dequantized.value).toBe(q.values[position]);
          const { top = 0, bottom = q.rows, left = 0, right = q.columns } = explainedElement.block ?? {};
          const { block, scales } = q;
          expect([top, left]).toEqual([
            coordinates[0] - (coordinates[0] % Math.max(block.rows, scales.lineRows)),
            coordinates[1] - (coordinates[1] % block.columns),
          ]);
          expect(coordinates[0] < bottom && coordinates[1] < right).toBe(true);
          const { error, largestError, codesUsed } = costOf(q);
          expect(codesUsed).toBe(new Set(q.codes).size);
          const input = q.inputs[position] as number;
          if (Number.isFinite(input) && !Number.isNaN(largestError))
            expect(largestError).toBeGreaterThanOrEqual(Math.abs((q.values[position] as number) - input));
          expect(error >= 0 || q.values.some(Number.isNaN)).toBe(true);
        }
      }),
      { numRuns: draws(60) },
    );
  });
});

/** Operands for which gemm multiplies the same kind on both sides, and some of two kinds. */
const OPERANDS: readonly (readonly [Operand, Operand])[] = [
  ...(["e4m3", "e5m2", "bf16", "f16", "e2m1"] as const).map((format) => [format, format] as const),
  ...CHOICES.filter(({ dialect }) => dialect === "te").map((choice) => [choice, choice] as const),
  [choiceOf("te/fp8-block/e4m3/1x128") as Operand, choiceOf("te/fp8-block/e4m3/128x128") as Operand],
  ["e4m3", "e5m2"],
];

describe("a dot product", () => {
  const settings = fc.record({
    depth: fc.integer({ min: 1, max: 500 }),
    x: fc.array(
      singleRow.filter((x) => Math.abs(x) < 500),
      { minLength: 1, maxLength: 30 },
    ),
    w: fc.array(
      singleRow.filter((x) => Math.abs(x) < 500),
      { minLength: 1, maxLength: 31 },
    ),
    operands: fc.constantFrom(...OPERANDS),
    datapath: fc.constantFrom("hopper", "ada", "blackwell", "exact", "fp32"),
    splitAccumulator: fc.boolean(),
    splitK: fc.constantFrom(1, 1, 2, 4),
  } as const);

  it("has the sum of gemm for operands with and without scales, or the reason why there is none", () => {
    const quantizers = new Set<string>();
    fc.assert(
      fc.property(
        settings,
        ({ depth, x, w, operands: [firstOperand, secondOperand], datapath, splitAccumulator, splitK }) => {
          const longRows = (values: readonly number[]) =>
            Float32Array.from({ length: depth }, (_, i) => values[i % values.length] as number);
          const answer = answerOrReason(() =>
            explainProduct(backend, longRows(x), longRows(w), {
              ...{ x: firstOperand, w: secondOperand, datapath, splitAccumulator, splitK },
            }),
          );
          const scope = new Scope();
          const operand = (values: readonly number[], choice: Operand) => {
            const multiple =
              typeof choice === "string" ? 2 : (BLOCK_FORMATS[choice.quantizer] as BlockFormat).multiple;
            const paddedMultiple = Math.max(multiple, 128);
            const paddedValues = new Float32Array(Math.ceil(depth / paddedMultiple) * paddedMultiple);
            paddedValues.set(longRows(values));
            const paddedRow = tensor(backend, paddedValues, [1, paddedValues.length]);
            return typeof choice === "string"
              ? encode(paddedRow, { format: choice })
              : quantizerOf(choice).quantize(paddedRow);
          };
          const result = answerOrReason(() => {
            const products = {
              x: operand(x, firstOperand),
              w: operand(w, secondOperand),
              outDtype: "f32",
            } as const;
            return gemm({ ...products, datapath, useSplitAccumulator: splitAccumulator, splitK: 1 });
          });
          if (typeof answer === "string") expect(answer).not.toBe("");
          else {
            quantizers.add(
              `${answer.explained.plan.datapath} ${typeof firstOperand === "string" ? "plain" : firstOperand.quantizer}`,
            );
            expect(answer.depth).toBe(depth);
            if (splitK === 1 && typeof result === "object") {
              const [sum] = result.out.dataSync();
              expect(bitsOf(answer.explained.out.value)).toBe(bitsOf(sum as number));
            }
            const { steps, sums, exactSums, explained } = answer;
            expect(steps.length > 0).toBe(answer.row.dotAdd !== undefined);
            expect(sums.at(-1)?.[1]).toBe(explained.sum.value);
            expect(sums.every(([end]) => exactSums[end - 1]?.[0] === end)).toBe(true);
            if (answer.row.dotAdd) expect(sums).toHaveLength(steps.length);
          }
          scope.dispose();
        },
      ),
      { numRuns: 250 },
    );
    for (const quantizer of ["fp8-current", "fp8-block", "mxfp8", "nvfp4"])
      expect([...quantizers].filter((name) => name.endsWith(` ${quantizer}`)).length).toBeGreaterThan(1);
  });

  it("shows what Hopper's FP8 sums lose: 255 products below the last bit of a large one", () => {
    const withFirst = (value: number) =>
      Float32Array.from({ length: 256 }, (_, i) => (i === 0 ? value : 0.5));
    const {
      explained,
      exact: exactResult,
      fp32,
      steps,
    } = explainProduct(backend, withFirst(448), withFirst(16), {
      ...{ x: "e4m3", w: "e4m3", datapath: "hopper", splitAccumulator: false, splitK: 1 },
    });
    expect([explained, exactResult, fp32].map(({ out }) => out.value)).toEqual([7168, 7231.75, 7231.75]);
    expect(steps[0]?.step.grid).toBe(12 - 13);
    expect(steps[1]?.step.terms.every(({ kept, value }) => kept === 0 && value === 0.25)).toBe(true);
  });

  it("in two splits of K loses only in the first, which has the large product", () => {
    const withFirst = (value: number) =>
      Float32Array.from({ length: 256 }, (_, i) => (i === 0 ? value : 0.5));
    const { explained, steps } = explainProduct(backend, withFirst(448), withFirst(16), {
      ...{ x: "e4m3", w: "e4m3", datapath: "hopper", splitAccumulator: false, splitK: 2 },
    });
    // 128 products of 0.25 are exact in the second split
    expect(explained.out.value).toBe(7168 + 32);
    expect(steps.map(({ split }) => split)).toEqual([0, 0, 0, 0, 1, 1, 1, 1]);
  });
});
