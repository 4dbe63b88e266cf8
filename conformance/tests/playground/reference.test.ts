/** The playground's answers: the neighbours and decisions of a rounding, quantized matrices, and the steps of a dot product. */
import * as fc from "fast-check";
import {
  BLOCK_FORMATS,
  type BlockFormat,
  decode,
  encode,
  factsOf,
  gemm,
  quantizerOf,
  ROUNDINGS,
  SCALAR_FORMATS,
  type ScalarFormat,
  Scope,
  type Tensor,
  tensor,
} from "lockstep";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { bitsOf, floatOf } from "../../../playground/src/data/numbers.js";
import {
  CHOICES,
  compare,
  costOf,
  differenceAt,
  explainElement,
  explainProduct,
  openReference,
  quantize,
  reasons,
  roundAll,
  scaleIndex,
} from "../../../playground/src/reference/index.js";

type Backend = Awaited<ReturnType<typeof openReference>>;

let backend: Backend;
beforeAll(async () => {
  backend = await openReference();
});
afterAll(async () => {
  expect(backend.memoryUse().live).toBe(0);
  await backend.dispose();
});

const FORMATS = Object.keys(SCALAR_FORMATS) as ScalarFormat[];

/** Any f32, and often one near the values of a narrow format: few bits of fraction, and exponents near 0. */
const single = fc.oneof(
  fc.integer({ min: 0, max: 2 ** 32 - 1 }).map(floatOf),
  fc
    .record({
      sign: fc.constantFrom(-1, 1),
      units: fc.integer({ min: 0, max: 255 }),
      exponent: fc.integer({ min: -24, max: 12 }),
    })
    .map(({ sign, units, exponent }) => sign * units * 2 ** exponent),
);

describe("a rounded number", () => {
  it("lies between neighbours that have no other value between them, and the decision says which it became", () => {
    fc.assert(
      fc.property(
        single,
        fc.constantFrom(...FORMATS),
        fc.constantFrom(...ROUNDINGS),
        (x, format, rounding) => {
          const [rounded] = roundAll(backend, [x], format, { rounding, overflow: "saturate" });
          if (!rounded) throw new Error("there is no answer");
          const { input, below, above, result, decision, position } = rounded;
          const { max, minPositive } = factsOf(format);
          const { signed, subnormals } = SCALAR_FORMATS[format];
          expect(Object.is(input, signed ? x : Math.abs(x)) || Number.isNaN(x)).toBe(true);
          if (Number.isNaN(input)) {
            expect(decision).toBe("nan");
            return;
          }
          if (Math.abs(input) > max) {
            expect([decision, Math.abs(result.value)]).toEqual(["beyond", max]);
            return;
          }
          if (!subnormals && input < minPositive) {
            expect([decision, result.value]).toEqual(["tooSmall", minPositive]);
            return;
          }
          expect(below.value).toBeLessThanOrEqual(input);
          expect(above.value).toBeGreaterThanOrEqual(input);
          expect([below.code, above.code]).toContain(result.code);
          if (decision === "exact")
            expect([below, result, above].every(({ value }) => value === input)).toBe(true);
          else {
            // codes of a sign are in the order of their magnitudes; between zeros of both signs lies none
            expect(position).toBe((input - below.value) / (above.value - below.value));
            const sign = signed ? 2 ** (factsOf(format).bits - 1) : 2 ** 32;
            const crossesZero = below.value < 0 && above.value === 0;
            const [low, high] = [below.code % sign, crossesZero ? 0 : above.code % sign];
            expect(Math.abs(low - high)).toBe(1);
            if (decision === "tie") expect(position).toBe(0.5);
            if (decision === "up") expect([position > 0.5, result.code]).toEqual([true, above.code]);
            if (decision === "down") expect([position < 0.5, result.code]).toEqual([true, below.code]);
            if (decision === "directed")
              expect(["toOdd", "towardZero", "towardPositive", "towardNegative"]).toContain(rounding);
            if (decision === "drawn") expect(rounding).toBe("stochastic");
          }
        },
      ),
      { numRuns: 1500 },
    );
  });

  it("has ties exactly at midpoints, of which e2m1 has these", () => {
    const ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5];
    const rounded = roundAll(backend, ties, "e2m1", { rounding: "tiesToEven", overflow: "saturate" });
    expect(rounded.map(({ decision, result }) => [decision, result.value])).toEqual(
      [0, 1, 1, 2, 2, 4, 4].map((value) => ["tie", value]),
    );
  });
});

/** Matrices of any size, padding needed or not, with values of any magnitude. */
const matrix = fc
  .record({
    rows: fc.integer({ min: 1, max: 70 }),
    columns: fc.integer({ min: 1, max: 140 }),
    seed: fc.array(single.filter(Number.isFinite), { minLength: 1, maxLength: 40 }),
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
  it.each(CHOICES)(
    "under $dialect, $quantizer, $format, $tile has the codes, scales and values of the quantizer",
    (choice) => {
      fc.assert(
        fc.property(matrix, (given) => {
          const { rows, columns } = given;
          const made = quantize(backend, given, choice);
          const { multiple }: BlockFormat = BLOCK_FORMATS[choice.quantizer];
          const up = (size: number) => Math.ceil(size / multiple) * multiple;
          const padded = Float32Array.from({ length: up(rows) * up(columns) }, (_, i) => {
            const [row, column] = [Math.floor(i / up(columns)), i % up(columns)];
            return row < rows && column < columns ? (given.values[row * columns + column] as number) : 0;
          });
          const scope = new Scope();
          const wide = tensor(backend, padded, [up(rows), up(columns)]);
          const x =
            given.dtype === "f32" ? wide : encode(wide, { format: given.dtype, overflow: "nonfinite" });
          const { dialect, quantizer, format, tile } = choice;
          const quantized = quantizerOf({ dialect, quantizer, format, tile }).quantize(x);
          const values = (quantized.dequantize("f32") as Tensor<"f32">).dataSync();
          const elements = decode(quantized.copy("rowwise").data).dataSync();
          for (let row = 0; row < rows; row++)
            for (let column = 0; column < columns; column++) {
              const [at, from] = [row * columns + column, row * up(columns) + column];
              if (!Object.is(made.values[at], values[from])) throw new Error(`value ${at}`);
              if (!Object.is(made.elements[at], elements[from])) throw new Error(`element ${at}`);
              const scale = made.scales.values[scaleIndex(made, row, column)] as number;
              const product = Math.fround(scale * (made.elements[at] as number));
              // NVFP4's factor is rounded in another order, so the last bits may differ
              const isNear =
                Math.abs(product - (made.values[at] as number)) <= 2 ** -22 * Math.abs(product) + 2 ** -149;
              if (Number.isFinite(made.values[at]) && Number.isFinite(product) && !isNear)
                throw new Error(`scale ${at}: ${product}, ${made.values[at]}`);
            }
          scope.dispose();
        }),
        { numRuns: 4 },
      );
    },
  );

  it("differs from another where codes or values do, and its elements are explained", () => {
    const choices = fc.constantFrom(...CHOICES);
    fc.assert(
      fc.property(matrix, choices, choices, fc.nat(), (given, first, second, where) => {
        const pair = compare(quantize(backend, given, first), quantize(backend, given, second));
        const { a, b } = pair;
        const at = where % a.inputs.length;
        const place = [Math.floor(at / a.columns), at % a.columns] as const;
        const [one, other] = [explainElement(backend, a, ...place), explainElement(backend, b, ...place)];
        const difference = differenceAt(a, b, at);
        expect(pair.different.includes(at)).toBe(!Object.is(a.values[at], b.values[at]));
        expect(difference === "none" || reasons(one, other, [first.format, second.format]).length > 0).toBe(
          true,
        );
        for (const [q, answer] of [[a, one] as const, [b, other] as const]) {
          expect(answer.value).toBe(q.values[at]);
          const [top, end] = answer.block.rows;
          const [left, right] = answer.block.columns;
          expect(place[0] >= top && place[0] < end && place[1] >= left && place[1] < right).toBe(true);
          let amax = 0;
          for (let row = top; row < end; row++)
            for (let column = left; column < right; column++)
              amax = Math.max(amax, Math.abs(q.inputs[row * q.columns + column] as number));
          expect(answer.amax).toBe(amax);
          const { error, largestError, codesUsed } = costOf(q);
          expect(codesUsed).toBe(new Set(q.codes).size);
          const input = q.inputs[at] as number;
          if (Number.isFinite(input) && !Number.isNaN(largestError))
            expect(largestError).toBeGreaterThanOrEqual(Math.abs(answer.value - input));
          expect(error >= 0 || q.values.some(Number.isNaN)).toBe(true);
        }
      }),
      { numRuns: 60 },
    );
  });
});

/** `sum` truncated toward zero to a number of fraction bits, in the exponent range of f32 (datapath.md §1). */
function truncated(sum: number, fractionBits: number): number {
  const exponent = sum === 0 ? -126 : Math.max(-126, Math.floor(Math.log2(Math.abs(sum))));
  const grid = 2 ** (exponent - fractionBits);
  return Math.trunc(sum / grid) * grid;
}

describe("a dot product", () => {
  const depth = fc.integer({ min: 1, max: 300 });
  const operands = fc.record({
    depth,
    x: fc.array(
      single.filter((x) => Math.abs(x) < 500),
      { minLength: 1, maxLength: 30 },
    ),
    w: fc.array(
      single.filter((x) => Math.abs(x) < 500),
      { minLength: 1, maxLength: 31 },
    ),
    format: fc.constantFrom("e4m3", "e5m2", "bf16", "f16"),
    datapath: fc.constantFrom("hopper", "ada", "blackwell", "exact", "fp32"),
    splitAccumulator: fc.boolean(),
  } as const);

  it("has the sum of gemm, and steps whose kept terms add up to the sum after each", () => {
    fc.assert(
      fc.property(operands, ({ depth: k, x, w, ...settings }) => {
        const long = (values: readonly number[]) =>
          Float32Array.from({ length: k }, (_, i) => values[i % values.length] as number);
        const answer = explainProduct(backend, long(x), long(w), settings);
        const coded = (values: readonly number[]) => {
          return encode(tensor(backend, long(values), [1, k]), { format: settings.format });
        };
        const scope = new Scope();
        const [a, b] = [coded(x), coded(w)];
        const { datapath, splitAccumulator: useSplitAccumulator } = settings;
        const { out } = gemm({ x: a, w: b, datapath, useSplitAccumulator, outDtype: "f32" });
        expect(bitsOf(answer.result)).toBe(bitsOf(out.dataSync()[0] as number));
        scope.dispose();
        expect(answer.ends.at(-1)).toBe(k);
        const { dotAdd } = answer.row;
        expect(answer.steps).toHaveLength(dotAdd ? answer.ends.length : 0);
        for (const { accumulator, terms, before, after, from } of answer.steps) {
          const kept = terms.reduce((sum, term) => sum + term.kept, accumulator.kept);
          expect(after).toBe(truncated(kept, dotAdd?.fractionBits ?? 0) + 0);
          const isFirst = from === 0 || (answer.chains > 0 && from % answer.chains === 0);
          if (isFirst) expect(before).toBe(0);
        }
        for (const [i, { before }] of answer.steps.entries())
          if (before !== 0) expect(before).toBe(answer.steps[i - 1]?.after);
      }),
      { numRuns: 150 },
    );
  });

  it("shows what Hopper's FP8 sums lose: 255 products below the last bit of a large one", () => {
    const first = (value: number) => Float32Array.from({ length: 256 }, (_, i) => (i === 0 ? value : 0.5));
    const answer = explainProduct(backend, first(448), first(16), {
      format: "e4m3",
      datapath: "hopper",
      splitAccumulator: false,
    });
    expect([answer.result, answer.exact, answer.fp32]).toEqual([7168, 7231.75, 7231.75]);
    expect(answer.steps[0]?.unit).toBe(12 - 13);
    expect(answer.steps[1]?.terms.every(({ kept, product }) => kept === 0 && product === 0.25)).toBe(true);
  });
});
