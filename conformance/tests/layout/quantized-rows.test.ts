/** Slices of rows of quantized tensors: bitwise equal to quantized slices, and to rows of dequantized values. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import {
  BLOCK_FORMATS,
  isLineWide,
  isTensorWide,
  tileSize,
  underivable,
} from "../../../src/formats/block.js";
import { sliceRows, splitRows } from "../../../src/ops/layout/quantized-rows.js";
import type { QuantizeInputs } from "../../../src/ops/quantize/quantize.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import { shardAmaxes } from "../../../src/quantizers/shard.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizeSpec,
  type ScaleLayout,
  type Usage,
} from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { roundUp, type WideDType } from "../../../src/tensor/shape.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import {
  QUANTIZERS,
  quantizeSpec,
  scaleLayout,
  sourceType,
  specAmong,
  usage,
} from "../../arbitraries/specs.js";
import { wideTensor } from "../../arbitraries/wide.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { downloadQuantized, SpecQuantizer } from "../../operations/quantize/quantized.js";
import { assertSame } from "../../values/difference.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();
const BOTH = { rowwise: true, columnwise: true } as const;

/** Rows that share scales in one of the copies, by the definition of tiles. */
function blockOf({ tile }: QuantizeSpec, { rowwise, columnwise }: Usage): number {
  if (isTensorWide(tile)) return 1;
  const [height, width] = tileSize(tile);
  return Math.max(rowwise ? height : 1, columnwise && !isLineWide(tile) ? width : 1);
}

/** A quantization, and the first and last row of a slice of whole blocks. */
interface Case {
  readonly spec: QuantizeSpec;
  readonly copies: Usage;
  readonly layout: ScaleLayout;
  readonly x: PlainTensor<WideDType>;
  readonly start: number;
  readonly end: number;
}

/** Stochastic quantizations have rows in multiples of 16, as the random bits of a part of a matrix require. */
function caseOf(specs: fc.Arbitrary<QuantizeSpec>): fc.Arbitrary<Case> {
  return fc.tuple(specs, usage()).chain(([spec, copies]) => {
    const step = spec.stochastic ? roundUp(blockOf(spec, copies), 16) : blockOf(spec, copies);
    const { multiple } = BLOCK_FORMATS[spec.quantizer];
    const columns = multiple === 1 ? fc.constantFrom(0, 1, 5, 16, 129) : fc.constantFrom(0, 1, 2, 5);
    const blocks = fc.integer({ min: 0, max: step > 32 ? 2 : 5 });
    const rest = fc.integer({ min: 0, max: spec.stochastic ? 0 : step - 1 });
    return fc
      .tuple(blocks, rest, fc.nat(), fc.nat(), columns)
      .chain(([count, extraRows, a, b, unitsOfColumns]) => {
        const rows = count * step + extraRows;
        const bounds = [...Array.from({ length: count + 1 }, (_, i) => i * step), rows];
        const [bound, otherBound] = [a, b].map((index) => bounds[index % bounds.length] as number) as [
          number,
          number,
        ];
        return fc.record({
          spec: fc.constant(spec),
          copies: fc.constant(copies),
          layout: scaleLayout(spec),
          x: sourceType(spec).chain((dtype) => wideTensor([rows, unitsOfColumns * multiple], { dtype })),
          start: fc.constant(Math.min(bound, otherBound)),
          end: fc.constant(Math.max(bound, otherBound)),
        });
      });
  });
}

const RANDOM = { seed: 7n, offset: 3n } as const;
const scale = (): Tensor<"f32"> => upload(backend(), fromCodes("f32", [1], [0x42810000])) as Tensor<"f32">;

function quantizeCase({ spec, copies, layout, x }: Case) {
  const source = upload(backend(), x) as Tensor<WideDType>;
  const inputs = { scale: scale(), random: RANDOM };
  return { source, t: new SpecQuantizer(spec, { ...copies, scaleLayout: layout }, inputs).quantize(source) };
}

/** Rows of a matrix as plain data. */
function rowsOf<D extends WideDType>(x: PlainTensor<D>, start: number, end: number): PlainTensor<D> {
  const [, columns] = x.matrix;
  const codes = Array.from(x.codes).slice(start * columns, end * columns);
  return fromCodes(x.dtype, [end - start, columns], codes);
}

const anyCase = caseOf(quantizeSpec());

/** Both copies have an amax for each of their lines: rows of the rowwise copy, columns of the columnwise copy. */
const AMAXES_OF_LINES: Case = {
  ...{ spec: makeSpec("nvfp4", { tile: "1x16", rowScaled: true }), copies: BOTH, layout: "logical" },
  ...{
    x: fromCodes(
      "f32",
      [32, 16],
      words(1, 512).map((bits) => 0x3f800000 + (bits >>> 7)),
    ),
    start: 16,
    end: 32,
  },
};

describe("rows of a quantized tensor", () => {
  it("have the bits of the quantized rows, under the amax and the random bits of the full tensor", () => {
    fc.assert(
      fc.property(anyCase, (testCase) => {
        using _scope = new Scope();
        const { spec, copies, layout, x, start, end } = testCase;
        const { source, t: quantizedTensor } = quantizeCase(testCase);
        const [rows, columns] = x.matrix;
        const [amax, amaxColumnwise] = shardAmaxes(spec, source, source);
        const amaxes: QuantizeInputs = usesAmax(spec) ? { amax, amaxColumnwise: amaxColumnwise ?? amax } : {};
        const inputs: QuantizeInputs = {
          ...{ scale: scale(), random: RANDOM, ...amaxes },
          ...(spec.stochastic && source.size > 0
            ? { part: { rows, columns, row: start, column: 0, width: columns, stride: columns } }
            : {}),
        };
        const fullQuantizer = new SpecQuantizer(spec, { ...copies, scaleLayout: layout }, inputs);
        const expected = downloadQuantized(fullQuantizer.quantize(upload(backend(), rowsOf(x, start, end))));
        const actual = downloadQuantized(sliceRows(quantizedTensor, start, end));
        // scales and amaxes of columns stay the ones of the full tensor
        const isOfColumns = isLineWide(spec.tile) || spec.rowScaled;
        for (const answer of [actual, expected])
          for (const name of Object.keys(answer))
            if (isOfColumns && name.startsWith("columnwise"))
              delete (answer as Record<string, unknown>)[name];
        assertSameAnswer(actual, expected);
      }),
      { numRuns: draws(800), seed: derivedSeed(211) },
    );
  });

  it("have the values of those rows, in each copy", () => {
    fc.assert(
      fc.property(anyCase, (testCase) => {
        using _scope = new Scope();
        const { x, start, end } = testCase;
        const { t: quantizedTensor } = quantizeCase(testCase);
        const slice = sliceRows(quantizedTensor, start, end);
        expect([slice.shape, slice.dtype, slice.usage]).toEqual([
          [end - start, x.matrix[1]],
          quantizedTensor.dtype,
          testCase.copies,
        ]);
        for (const otherDirection of DIRECTIONS.filter(
          (_, i) => testCase.copies[DIRECTIONS[1 - i] as Direction],
        )) {
          const [fullTensor, part] = [quantizedTensor, slice].map((copies) => {
            const oneCopy = copies.share().updateUsage({ [otherDirection]: false });
            return download(oneCopy.dequantize("f32")) as PlainTensor<"f32">;
          }) as [PlainTensor<"f32">, PlainTensor<"f32">];
          assertSame(`values without ${otherDirection}`, part, rowsOf(fullTensor, start, end));
        }
        // negative bounds count from the end
        const [rows] = x.matrix;
        if (start < rows && end < rows)
          assertSameAnswer(
            downloadQuantized(sliceRows(quantizedTensor, start - rows, end - rows)),
            downloadQuantized(slice),
          );
      }),
      { numRuns: draws(400), seed: derivedSeed(212), examples: [[AMAXES_OF_LINES]] },
    );
  });

  it("are the parts of a split", () => {
    fc.assert(
      fc.property(anyCase, fc.boolean(), (testCase, byNumber) => {
        using _scope = new Scope();
        const { x, start, end, spec, copies } = testCase;
        const { t: quantizedTensor } = quantizeCase(testCase);
        const [rows] = x.matrix;
        const step = blockOf(spec, copies) * 2;
        const bounds = byNumber
          ? [...Array.from({ length: Math.max(1, Math.ceil(rows / step)) }, (_, i) => i * step), rows]
          : [0, start, end, rows];
        const sizes = bounds.slice(1).map((bound, i) => bound - (bounds[i] as number));
        const groups = splitRows(quantizedTensor, byNumber ? step : sizes);
        expect(groups.map(({ shape }) => shape[0])).toEqual(sizes);
        groups.forEach((rowGroup, i) => {
          const slice = sliceRows(quantizedTensor, bounds[i] as number, bounds[i + 1]);
          assertSameAnswer(downloadQuantized(rowGroup), downloadQuantized(slice));
        });
      }),
      { numRuns: draws(200), seed: derivedSeed(213) },
    );
  });

  it("give the columnwise copy that the full tensor gives", () => {
    const derivable = specAmong(QUANTIZERS, (spec) => underivable(spec, 1) === undefined);
    fc.assert(
      fc.property(caseOf(derivable as fc.Arbitrary<QuantizeSpec>), (testCase) => {
        using _scope = new Scope();
        const { t: quantizedTensor } = quantizeCase({
          ...testCase,
          copies: { rowwise: true, columnwise: false },
        });
        const { start, end } = testCase;
        if (
          !isTensorWide(testCase.spec.tile) &&
          !testCase.copies.rowwise &&
          start % tileSize(testCase.spec.tile)[0] !== 0
        )
          return;
        const slice = sliceRows(quantizedTensor, start, end).updateUsage({ columnwise: true });
        const expected = sliceRows(quantizedTensor.updateUsage({ columnwise: true }), start, end);
        assertSameAnswer(downloadQuantized(slice), downloadQuantized(expected));
      }),
      { numRuns: draws(200), seed: derivedSeed(214) },
    );
  });

  it("are refused where a bound lies inside a block of rows", () => {
    fc.assert(
      fc.property(anyCase, fc.nat(), fc.boolean(), (testCase, boundIndex, isStart) => {
        using _scope = new Scope();
        const { spec, copies, x } = testCase;
        const { t: quantizedTensor } = quantizeCase(testCase);
        const [rows] = x.matrix;
        const bound = boundIndex % (rows + 1);
        const block = blockOf(spec, copies);
        const isWhole = bound % block === 0 || bound === rows;
        const liveBefore = backend().memoryUse().live;
        const make = () =>
          (isStart
            ? sliceRows(quantizedTensor, bound, rows)
            : sliceRows(quantizedTensor, 0, bound)
          ).dispose();
        const split = () => splitRows(quantizedTensor, [bound, rows - bound]).map((part) => part.dispose());
        if (isWhole) {
          make();
          split();
        } else {
          for (const call of [make, split]) {
            expect(call).toThrow(ArgumentError);
            expect(call).toThrow(`row ${bound} of ${rows} lies inside a block of the `);
            expect(call).toThrow(`give bounds at multiples of `);
          }
        }
        expect(backend().memoryUse().live).toBe(liveBefore);
      }),
      { numRuns: draws(300), seed: derivedSeed(215) },
    );
  });
});

const usesAmax = ({ quantizer, rowScaled }: QuantizeSpec): boolean =>
  quantizer === "fp8-current" || (quantizer === "nvfp4" && !rowScaled);

describe("slices of the first of several dimensions", () => {
  const quantizeRowsWith = (quantizer: Quantizer, rows: number) =>
    quantizer.quantize(upload(backend(), fromCodes("bf16", [rows, 64], words(5, rows * 64))));

  testInScope("are rows of the matrix", () => {
    const quantizedTensor = quantizeRowsWith(new MXFP8Quantizer(BOTH), 128);
    const slice = sliceRows(quantizedTensor.reshape([4, 2, 16, 64]), 1, 3);
    expect(slice.shape).toEqual([2, 2, 16, 64]);
    assertSameAnswer(
      downloadQuantized(slice.reshape([64, 64])),
      downloadQuantized(sliceRows(quantizedTensor, 32, 96)),
    );
  });

  testInScope("have separate memory, into which quantize_ writes as into any quantized tensor", () => {
    const quantizer = new MXFP8Quantizer(BOTH);
    const [quantizedTensor, next] = [
      quantizeRowsWith(quantizer, 64),
      upload(backend(), fromCodes("bf16", [32, 64], words(6, 2048))),
    ];
    const bytesBefore = downloadQuantized(quantizedTensor);
    const slice = sliceRows(quantizedTensor, 32).quantize_(next as Tensor<WideDType>);
    assertSameAnswer(downloadQuantized(slice), downloadQuantized(quantizer.quantize(next)));
    assertSameAnswer(downloadQuantized(quantizedTensor), bytesBefore);
  });

  testInScope("are refused with the reason", () => {
    const quantizedTensor = quantizeRowsWith(new MXFP8Quantizer(BOTH), 100);
    expect(() => sliceRows(quantizedTensor, 5)).toThrow(
      new ArgumentError(
        "sliceRows: row 5 of 100 lies inside a block of the columnwise copy, in which 32 rows share scales; give bounds at multiples of 32 rows, or drop that copy by updateUsage({ columnwise: false })",
      ),
    );
    expect(sliceRows(quantizedTensor.updateUsage({ columnwise: false }), 5, 9).shape).toEqual([4, 64]);
    const tiles = quantizeRowsWith(new Float8BlockQuantizer({ tile: "128x128" }), 200);
    expect(() => splitRows(tiles, 64)).toThrow(
      "row 64 of 200 lies inside a block of the rowwise copy, in which 128 rows share scales; give bounds at multiples of 128 rows, or dequantize first",
    );
    const perTensorRows = quantizeRowsWith(new Float8CurrentScalingQuantizer(BOTH), 7);
    expect(() => sliceRows(perTensorRows.reshape([7, 64]), 3, 2)).toThrow(ArgumentError);
    expect(() => sliceRows(perTensorRows, 0, 8)).toThrow(
      "sliceRows: end is 8; dimension 0 of t [7,64] has 7 slices; give an integer from -7 to 7",
    );
    expect(() => splitRows(perTensorRows, [3, 3])).toThrow(
      "rows has the sum 6, and the first dimension of t is 7",
    );
    expect(() => splitRows(perTensorRows, 0)).toThrow(ArgumentError);
    const tall = new MXFP8Quantizer().makeEmpty(backend(), [2 ** 40, 0]);
    expect(() => splitRows(tall, 2)).toThrow(
      "rows is 2, which gives 549755813888 parts of [1099511627776,0]",
    );
    expect(splitRows(tall, 2 ** 39).map(({ shape }) => shape[0])).toEqual([2 ** 39, 2 ** 39]);
    const row = new MXFP8Quantizer().quantize(upload(backend(), fromCodes("bf16", [64], words(5, 64))));
    expect(() => sliceRows(row, 0)).toThrow(ShapeError);
    expect(sliceRows(row.reshape([1, 64]), 0).shape).toEqual([1, 64]);
  });
});
