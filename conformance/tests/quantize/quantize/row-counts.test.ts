/**
 * Matrices with any number of rows. The columnwise copy equals the copy of the matrix padded with rows of zeros to whole blocks,
 * and the rowwise copy has the first rows of the padded matrix's copy. No product depends on the padding.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, tileSize } from "../../../../src/formats/block.js";
import { type DatapathFamily, datapathFor } from "../../../../src/formats/datapath.js";
import { factsOf } from "../../../../src/formats/derive.js";
import { tensorScaleRole } from "../../../../src/formats/scale-rules.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { relayoutScales } from "../../../../src/ops/layout/layout.js";
import type { QuantizedTensor, QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { DIRECTIONS, type Direction } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { asMatrix, elementCount, type WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { wideMatrix } from "../../../arbitraries/matrices.js";
import { quantizeSpec, scaleLayout, sourceType, usage } from "../../../arbitraries/specs.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { assertSame } from "../../../values/difference.js";
import { download, fromCodes, type PlainTensor, upload } from "../../../values/plain.js";
import { derivedSeed, draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();

/** The quantizers whose blocks fill whole columns. */
const WHOLE = BLOCK_FORMAT_NAMES.filter((name) => BLOCK_FORMATS[name].multiple > 1);

const RANDOM = { seed: 5n, offset: 3n };
const rows = fc.oneof(fc.integer({ min: 1, max: 130 }), fc.constantFrom(1, 7, 15, 17, 31, 33));

/** x, padded with rows of zeros. */
function zeroFilled<D extends WideDType>(x: PlainTensor<D>, multiple: number): PlainTensor<D> {
  const [actualRows, columns] = x.matrix;
  const paddedRows = Math.ceil(actualRows / multiple) * multiple;
  return fromCodes(
    x.dtype,
    [paddedRows, columns],
    [...x.codes, ...new Array<number>((paddedRows - actualRows) * columns).fill(0)],
  );
}

/** The first elements, as many as `shapeSource` has. */
function firstOf(x: PlainTensor, shapeSource: PlainTensor): PlainTensor {
  return fromCodes(x.dtype, shapeSource.shape, [...x.codes].slice(0, elementCount(shapeSource.shape)));
}

function scalesOf(quantizedTensor: QuantizedTensor, direction: Direction): PlainTensor {
  return download(relayoutScales(quantizedTensor, direction, "logical"));
}

const choices = quantizeSpec(WHOLE).chain((spec) => {
  const { multiple } = BLOCK_FORMATS[spec.quantizer];
  const columns = fc.integer({ min: 1, max: 3 }).map((count) => count * multiple);
  return fc.tuple(rows, columns, sourceType(spec)).chain(([count, unitsOfColumns, dtype]) =>
    fc.record({
      spec: fc.constant(spec),
      multiple: fc.constant(multiple),
      usage: usage(),
      layout: scaleLayout(spec),
      x: wideMatrix({
        dtype,
        shape: [count, unitsOfColumns],
        block: tileSize(spec.tile)[1],
        max: factsOf(spec.format).max,
      }),
    }),
  );
});

describe("a matrix of any number of rows", () => {
  it("is quantized as the first rows of the matrix with zeros below, and columnwise as that matrix", () => {
    fc.assert(
      fc.property(choices, ({ spec, multiple, usage: copies, layout, x }) => {
        using _scope = new Scope();
        const quantizer = new SpecQuantizer(spec, { ...copies, scaleLayout: layout }, { random: RANDOM });
        const [actual, expected] = [x, zeroFilled(x, multiple)].map((tensor) =>
          quantizer.quantize(upload(backend(), tensor)),
        ) as [QuantizedTensor, QuantizedTensor];
        expect(actual.shape).toEqual(x.shape);
        for (const direction of DIRECTIONS.filter((direction) => copies[direction])) {
          const [actualCopy, paddedCopy] = [actual.copy(direction), expected.copy(direction)];
          const [codes, scales] = [download(actualCopy.data), scalesOf(actual, direction)];
          if (direction === "columnwise") {
            assertSame("the shapes", download(actualCopy.data), download(paddedCopy.data));
            assertSame("the scales", scales, scalesOf(expected, direction));
          } else {
            expect(actualCopy.data.shape).toEqual(asMatrix(x.shape));
            assertSame("the codes", codes, firstOf(download(paddedCopy.data), codes));
            assertSame("the scales", scales, firstOf(scalesOf(expected, direction), scales));
          }
          const [amax, paddedAmax] = [
            actualCopy.amax && download(actualCopy.amax),
            paddedCopy.amax && download(paddedCopy.amax),
          ];
          if (amax && paddedAmax) assertSame("the amax", amax, firstOf(paddedAmax, amax));
        }
        const values = download(actual.dequantize("f32"));
        expect(values.shape).toEqual(x.shape);
        assertSame("the values", values, firstOf(download(expected.dequantize("f32")), values));
      }),
      { numRuns: draws(600), seed: derivedSeed(41) },
    );
  });
});

const FAMILIES: readonly DatapathFamily[] = ["exact", "fp32", "hopper", "blackwell", "ada"];

/** The datapaths that multiply two operands of a spec. */
function familiesOf({ quantizer, format, tile }: QuantizeSpec): readonly DatapathFamily[] {
  const { scale } = BLOCK_FORMATS[quantizer];
  const operand = { format, scales: { format: scale, lines: 1, length: tileSize(tile)[1], pow2: true } };
  return FAMILIES.filter((family) => datapathFor(family, operand, operand, true).ok);
}

/** All three products of a linear layer: of `x` [M, K], `w` [N, K] and the gradient `dy` [M, N]. */
function productsOf(
  spec: QuantizeSpec,
  datapath: DatapathFamily,
  [x, w, dy]: readonly [Tensor<WideDType>, Tensor<WideDType>, Tensor<WideDType>],
) {
  const layout = { rowwise: true, columnwise: true, scaleLayout: "logical" } as const;
  const quantizer = new SpecQuantizer(spec, layout, { random: RANDOM });
  // the weight is not transformed, because its other factor, the rowwise gradient, is not
  const ofWeights = new SpecQuantizer({ ...spec, rht: false, rhtSigns: 0 }, layout, { random: RANDOM });
  const [xq, wq, dq] = [quantizer.quantize(x), ofWeights.quantize(w), quantizer.quantize(dy)];
  const options = { datapath, outDtype: "f32" } as const;
  return {
    fprop: download(gemm({ x: xq, w: wq, ...options }).out),
    dgrad: download(gemm({ a: wq, b: dq, layout: "NN", ...options }).out),
    wgrad: download(gemm({ a: xq, b: dq, layout: "NT", ...options }).out),
  };
}

/** The specs of operands that a product supports: without a tensor scale that divides. */
const multipliable = quantizeSpec(WHOLE).filter(({ scaleRule }) => tensorScaleRole(scaleRule) !== "divisor");

/** A row-scaled matrix has several rows: a single amax multiplies the result in another order (numerics.md §5.10). */
const setting = multipliable.chain((spec) =>
  fc.tuple(
    fc.constant(spec),
    fc.constantFrom(...familiesOf(spec)),
    spec.rowScaled ? rows.filter((count) => count > 1) : rows,
  ),
);

const matrices = setting.chain(([spec, family, count]) => {
  const [block, { max }] = [tileSize(spec.tile)[1], factsOf(spec.format)];
  const side = fc.integer({ min: 1, max: 2 }).map((count) => count * BLOCK_FORMATS[spec.quantizer].multiple);
  return fc.tuple(side, side, sourceType(spec)).chain(([k, n, dtype]) => {
    const shapeOf = (a: number, b: number) => wideMatrix({ dtype, shape: [a, b], block, max });
    return fc.record({
      spec: fc.constant(spec),
      family: fc.constant(family),
      x: shapeOf(count, k),
      w: shapeOf(n, k),
      dy: shapeOf(count, n),
    });
  });
});

describe("the products of a linear layer with any number of rows", () => {
  it("are those of the rows with zeros below", () => {
    fc.assert(
      fc.property(matrices, ({ spec, family, x, w, dy }) => {
        using _scope = new Scope();
        const { multiple } = BLOCK_FORMATS[spec.quantizer];
        const quantizeBoth = (a: PlainTensor<WideDType>, b: PlainTensor<WideDType>) =>
          productsOf(spec, family, [upload(backend(), a), upload(backend(), w), upload(backend(), b)]);
        const actual = quantizeBoth(x, dy);
        const paddedResult = quantizeBoth(zeroFilled(x, multiple), zeroFilled(dy, multiple));
        expect(actual.fprop.shape).toEqual([x.shape[0], w.shape[0]]);
        for (const name of ["fprop", "dgrad"] as const)
          assertSame(name, actual[name], firstOf(paddedResult[name], actual[name]));
        assertSame("wgrad", actual.wgrad, paddedResult.wgrad);
      }),
      { numRuns: draws(300), seed: derivedSeed(43) },
    );
  });
});
