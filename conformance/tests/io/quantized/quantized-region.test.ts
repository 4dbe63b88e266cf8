/** A region of a quantized tensor in a file equals the region of the whole tensor: codes, scales, amaxes and values. */
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { openCheckpoint } from "../../../../src/checkpoints/api/open.js";
import type { MatrixRegion } from "../../../../src/checkpoints/regions/region.js";
import { ArgumentError } from "../../../../src/errors.js";
import { BLOCK_FORMATS, isLineWide, isTensorWide, tileSize } from "../../../../src/formats/block.js";
import { saveTensors } from "../../../../src/io/tensors.js";
import type { QuantizedTensor, QuantizeSpec, ScaleLayout } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { DType, WideDType } from "../../../../src/tensor/shape.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { quantizeSpec, scaleLayout, sourceType } from "../../../arbitraries/specs.js";
import { wideTensor } from "../../../arbitraries/wide.js";
import { assertSameAnswer } from "../../../laws/laws.js";
import type { Answer } from "../../../operations/operation.js";
import { downloadQuantized, SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { assertSame } from "../../../values/difference.js";
import { download, fromCodes, type PlainTensor, upload } from "../../../values/plain.js";
import { derivedSeed, draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { useFolder } from "../folder.js";

const backend = useBackend();
let path = "";
useFolder((folder) => {
  path = join(folder, "model.safetensors");
});

/** A matrix, its quantization, and a region that begins at a whole tile. */
interface Case {
  readonly spec: QuantizeSpec;
  /** Whether there is also a columnwise copy. */
  readonly columnwise: boolean;
  readonly layout: ScaleLayout;
  readonly x: PlainTensor<WideDType>;
  readonly region: MatrixRegion;
}

/** Regions begin at multiples of these numbers of rows and columns, by the definition of tiles. */
function stepOf({ quantizer, tile }: QuantizeSpec): readonly [rows: number, columns: number] {
  const [rows, columns] = isOfLines(tile) ? [1, 2] : tileSize(tile);
  return [rows, Math.max(columns, BLOCK_FORMATS[quantizer].multiple)];
}

const isOfLines = (tile: QuantizeSpec["tile"]): boolean => isTensorWide(tile) || isLineWide(tile);

/** The beginning of a region in multiples of `step`, and its size in multiples of `unit`. */
function aRange(
  size: number,
  step: number,
  unit: number,
): fc.Arbitrary<{ readonly begin: number; readonly count: number }> {
  return fc.nat(Math.ceil(size / step) - 1).chain((start) =>
    fc.record({
      begin: fc.constant(start * step),
      count: fc.integer({ min: 1, max: (size - start * step) / unit }).map((n) => n * unit),
    }),
  );
}

function aCase(): fc.Arbitrary<Case> {
  return quantizeSpec().chain((spec) => {
    const [rowStep, columnStep] = stepOf(spec);
    const { multiple } = BLOCK_FORMATS[spec.quantizer];
    const rows = fc.integer({ min: 1, max: rowStep > 32 ? 2 * rowStep : 4 * rowStep + 4 });
    const columns = fc.integer({ min: 1, max: multiple === 1 ? 3 * columnStep : 5 });
    return fc.tuple(rows, columns).chain(([height, drawnWidth]) => {
      const width = drawnWidth * multiple;
      const rowRange = aRange(height, rowStep, 1);
      const columnRange = aRange(width, columnStep, multiple);
      return fc.record({
        spec: fc.constant(spec),
        columnwise: fc.boolean(),
        layout: scaleLayout(spec),
        x: sourceType(spec).chain((dtype) => wideTensor([height, width], { dtype })),
        region: fc.tuple(rowRange, columnRange).map(([row, column]) => {
          return { row: row.begin, rows: row.count, column: column.begin, columns: column.count };
        }),
      });
    });
  });
}

/** A region of a matrix as plain data. */
function sliceRegion<D extends DType>(
  x: PlainTensor<D>,
  { row, column, rows, columns }: MatrixRegion,
): PlainTensor<D> {
  const [, width] = x.matrix;
  const { codes } = x;
  const cutCodes = Array.from({ length: rows * columns }, (_, i) => {
    return codes[(row + Math.floor(i / columns)) * width + column + (i % columns)] as number;
  });
  return fromCodes(x.dtype, [rows, columns], cutCodes);
}

/** The tensors of a region of the rowwise copy, which has logical scales, by the definition of tiles. */
function membersOf(quantizedTensor: QuantizedTensor, region: MatrixRegion): Answer {
  const { quantizer, tile, rowScaled } = quantizedTensor.spec;
  const [data, scaleInv] = [
    download(quantizedTensor.copy("rowwise").data),
    download(quantizedTensor.copy("rowwise").scaleInv),
  ];
  const { amax } = quantizedTensor.copy("rowwise");
  const ofRows = { row: region.row, rows: region.rows, column: 0, columns: 1 };
  const [height, width] = isOfLines(tile) ? [1, 1] : tileSize(tile);
  const lines = BLOCK_FORMATS[quantizer].replicates ? 1 : height;
  const scales = isLineWide(tile)
    ? ofRows
    : {
        row: region.row / lines,
        rows: Math.ceil(region.rows / lines),
        column: region.column / width,
        columns: Math.ceil(region.columns / width),
      };
  const line = (x: Tensor): PlainTensor => fromCodes(x.dtype, [x.size, 1], download(x).codes);
  const rows = (x: Tensor): PlainTensor =>
    fromCodes(x.dtype, [region.rows], sliceRegion(line(x), ofRows).codes);
  return {
    "rowwise.data": sliceRegion(data, region),
    "rowwise.scaleInv": isTensorWide(tile) ? scaleInv : sliceRegion(scaleInv, scales),
    ...(amax ? { "rowwise.amax": rowScaled ? rows(amax) : download(amax) } : {}),
  };
}

const RANDOM = { seed: 7n, offset: 3n } as const;

/** Quantizes the matrix with scales in the layout. Quantizers with a caller's scale use 33 * 2^-6. */
function quantizeCase({ spec, columnwise, x }: Case, scaleLayout: ScaleLayout): QuantizedTensor {
  const scale = upload(backend(), fromCodes("f32", [1], [0x3f040000])) as Tensor<"f32">;
  const source = upload(backend(), x) as Tensor<WideDType>;
  const layout = { rowwise: true, columnwise, scaleLayout };
  return new SpecQuantizer(spec, layout, { scale, random: RANDOM }).quantize(source);
}

async function readRegion(testCase: Case): Promise<QuantizedTensor> {
  await saveTensors(path, { w: quantizeCase(testCase, testCase.layout) });
  const checkpoint = await openCheckpoint(path);
  try {
    return await checkpoint.readQuantized("w", backend(), testCase.region);
  } finally {
    await checkpoint.close();
  }
}

/** A tensor with an amax for each row, of which two rows are read. */
const ROW_SCALED: Case = {
  spec: makeSpec("nvfp4", { rowScaled: true }),
  columnwise: false,
  layout: "logical",
  x: fromCodes(
    "f32",
    [8, 16],
    new Array(8 * 16).fill(0).map((_, i) => 0x3f800000 + (i << 20)),
  ),
  region: { row: 4, rows: 2, column: 0, columns: 16 },
};

describe("a region of a quantized tensor in a file", () => {
  it("has the codes, scales, amaxes and values of that region of the whole tensor", async () => {
    await fc.assert(
      fc.asyncProperty(aCase(), async (testCase) => {
        using _scope = new Scope();
        const region = await readRegion(testCase);
        const wholeTensor = quantizeCase(testCase, "logical");
        assertSameAnswer(downloadQuantized(region), membersOf(wholeTensor, testCase.region));
        const values = download(wholeTensor.dequantize("f32")) as PlainTensor<"f32">;
        assertSame("values", download(region.dequantize("f32")), sliceRegion(values, testCase.region));
        expect([region.shape, region.dtype, region.spec]).toEqual([
          [testCase.region.rows, testCase.region.columns],
          wholeTensor.dtype,
          testCase.spec,
        ]);
      }),
      { numRuns: draws(150), seed: derivedSeed(341), examples: [[ROW_SCALED]] },
    );
  });

  it("is refused unless it consists of columns that the quantizer takes", async () => {
    await fc.assert(
      fc.asyncProperty(aCase(), fc.nat(), async (testCase, n) => {
        using _scope = new Scope();
        const { multiple } = BLOCK_FORMATS[testCase.spec.quantizer];
        const columns = (n % testCase.region.columns) + 1;
        const pendingRead = readRegion({ ...testCase, region: { ...testCase.region, columns } });
        if (columns % multiple === 0) expect((await pendingRead).shape[1]).toBe(columns);
        else await expect(pendingRead).rejects.toThrow(ArgumentError);
      }),
      { numRuns: draws(60), seed: derivedSeed(342) },
    );
  });
});
