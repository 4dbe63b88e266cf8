/** transpose and scale layouts: their laws, inverses, padding, threads and refusals. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { BLOCK_FORMATS } from "../../../src/formats/block.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { relayoutScales, swapAxes, transpose } from "../../../src/ops/layout/layout.js";
import { Float8BlockQuantizer } from "../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { copyGeometry } from "../../../src/tensor/geometry.js";
import { DIRECTIONS, QuantizedTensor, type ScaleLayout } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { asMatrix, elementCount } from "../../../src/tensor/shape.js";
import { anyRows, drawnBlock } from "../../arbitraries/matrices.js";
import { words } from "../../arbitraries/random.js";
import { quantizeSpec, scaleLayout } from "../../arbitraries/specs.js";
import { OPERATIONS } from "../../operations/operations.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { assertSame } from "../../values/difference.js";
import { download, fromCodes, upload } from "../../values/plain.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const threads = useThreads();

describeLaws(backend, ["transpose", "swapAxes", "relayout"], { runs: 400, seed: derivedSeed(14) });

describe("results do not depend on the number of threads", () => {
  for (const dtype of ["e2m1", "e4m3", "bf16", "f32"] as const) {
    const x = fromCodes(
      dtype,
      [642, 700],
      words(4, 642 * 700).map((bits) => (dtype === "e2m1" ? bits & 15 : bits)),
    );
    testEqualBits(`transpose of ${dtype}`, threads, (backend) => ({
      out: download(transpose(upload(backend, x))),
    }));
  }
});

describe("results do not depend on the number of threads: swapAxes", () => {
  for (const shape of [
    [3, 70, 5, 64],
    [5, 70, 3, 11, 7],
    [4, 201, 203],
  ]) {
    const x = fromCodes("bf16", shape, words(4, elementCount(shape)));
    testEqualBits(`of [${shape}]`, threads, (backend) => ({
      out: download(swapAxes(upload(backend, x), 1, -2)),
    }));
    testEqualBits(`of [${shape}], the last`, threads, (backend) => ({
      out: download(swapAxes(upload(backend, x), 1, -1)),
    }));
  }
});

describe("inverses", () => {
  it("exchanging two axes twice gives the tensor back", () => {
    fc.assert(
      fc.property(OPERATIONS.swapAxes.arbitrary, ({ x, axis1, axis2 }) => {
        using _scope = new Scope();
        const swappedTensor = swapAxes(upload(backend(), x), axis1, axis2);
        assertSame("the tensor", download(swapAxes(swappedTensor, axis2, axis1)), x);
      }),
      { numRuns: draws(300), seed: derivedSeed(17) },
    );
  });

  it("transposing twice gives the matrix back", () => {
    fc.assert(
      fc.property(OPERATIONS.transpose.arbitrary, ({ x }) => {
        using _scope = new Scope();
        const matrix = upload(backend(), x).reshape(asMatrix(x.shape));
        if (x.dtype === "e2m1" && x.matrix[0] % 2 === 1) return;
        assertSame("the transpose's transpose", download(transpose(transpose(matrix))), download(matrix));
      }),
      { numRuns: draws(300), seed: derivedSeed(15) },
    );
  });

  const cases = quantizeSpec().chain((spec) =>
    fc.record({
      spec: fc.constant(spec),
      shape: anyRows(BLOCK_FORMATS[spec.quantizer].multiple, drawnBlock(spec.tile), 2 ** 15),
      direction: fc.constantFrom(...DIRECTIONS),
      to: scaleLayout(spec),
      seed: fc.nat(),
    }),
  );

  it("scales converted to another layout and back are unchanged", () => {
    fc.assert(
      fc.property(cases, ({ spec, shape, direction, to, seed }) => {
        using _scope = new Scope();
        const usage = { rowwise: direction === "rowwise", columnwise: direction === "columnwise" };
        const quantizer = new SpecQuantizer(spec, { ...usage, scaleLayout: "logical" });
        const quantizedTensor = quantizer.makeEmpty(backend(), shape);
        const copy = quantizedTensor.copy(direction);
        const { scaleType, scaleShape } = copyGeometry(spec, asMatrix(shape), direction, "logical");
        const scales = fromCodes(scaleType, scaleShape, words(seed, elementCount(scaleShape)));
        copy.scaleInv.write(scales.data);
        const relaidCopy = { ...copy, scaleInv: relayoutScales(quantizedTensor, direction, to) };
        const relaidTensor = new QuantizedTensor({
          ...quantizedTensor,
          ops: quantizer,
          scaleLayout: to,
          [direction]: relaidCopy,
        });
        assertSame("the scales", download(relayoutScales(relaidTensor, direction, "logical")), scales);
      }),
      { numRuns: draws(300), seed: derivedSeed(16) },
    );
  });
});

describe("layouts", () => {
  const scalesOf = (layout: ScaleLayout) => {
    const x = tensor(backend(), new Float32Array(32 * 160).fill(448), [32, 160]);
    const quantizedTensor = new MXFP8Quantizer({ columnwise: true, scaleLayout: layout }).quantize(x);
    return DIRECTIONS.map((direction) => download(quantizedTensor.copy(direction).scaleInv));
  };

  testInScope("rowwise scales are padded to 128 rows by 4, columnwise ones to 4 by 128, with zeros", () => {
    const [logical, paddedScales] = [scalesOf("logical"), scalesOf("padded")];
    expect(logical.map(({ shape }) => shape)).toEqual([
      [32, 5],
      [1, 160],
    ]);
    expect(paddedScales.map(({ shape }) => shape)).toEqual([
      [128, 8],
      [4, 256],
    ]);
    for (const scales of paddedScales)
      expect(Array.from(scales.codes).filter((code) => code !== 0)).toHaveLength(160);
  });

  testInScope("a swizzled buffer has row 32 of the scales right after the first four of row 0", () => {
    const quantizedTensor = new MXFP8Quantizer().makeEmpty(backend(), [64, 128]);
    quantizedTensor
      .copy("rowwise")
      .scaleInv.write(Uint8Array.from({ length: 64 * 4 }, (_, i) => Math.floor(i / 4)));
    const swizzled = relayoutScales(quantizedTensor, "rowwise", "swizzled").dataSync();
    expect(Array.from(swizzled.subarray(0, 24))).toEqual(
      [0, 32, 0, 0, 1, 33].flatMap((row) => [row, row, row, row]),
    );
  });

  testInScope("a relayout to the same layout is a copy", () => {
    const quantizedTensor = new MXFP8Quantizer().quantize(
      tensor(backend(), new Float32Array(1024).fill(3), [32, 32]),
    );
    const copy = relayoutScales(quantizedTensor, "rowwise", "logical");
    assertSame("the scales", download(copy), download(quantizedTensor.copy("rowwise").scaleInv));
    expect(copy.address).not.toBe(quantizedTensor.copy("rowwise").scaleInv.address);
  });

  testInScope("leading dimensions are rows of the transpose's columns", () => {
    const x = tensor(backend(), [0, 1, 2, 3, 4, 5, 6, 7], [2, 2, 2]);
    const transposedTensor = transpose(x);
    expect(transposedTensor.shape).toEqual([2, 4]);
    expect(transposedTensor.dataSync()).toEqual(Float32Array.of(0, 2, 4, 6, 1, 3, 5, 7));
    expect(transpose(tensor(backend(), [1, 2]))).toMatchObject({ shape: [2, 1] });
    expect(transpose(empty(backend(), "f32", [0, 3]))).toMatchObject({ shape: [3, 0] });
  });
});

describe("exchanged axes", () => {
  testInScope("are the named ones, from the front or the end", () => {
    const x = tensor(
      backend(),
      Float32Array.from({ length: 12 }, (_, i) => i),
      [2, 3, 2],
    );
    const heads = swapAxes(x, 0, 1);
    expect(heads.shape).toEqual([3, 2, 2]);
    expect([...heads.dataSync()]).toEqual([0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
    assertSame("by negative axes", download(swapAxes(x, -2, -3)), download(heads));
    expect([...swapAxes(x, 2, 0).dataSync()]).toEqual([0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]);
  });

  testInScope("of a matrix transpose it; an axis that is exchanged with itself copies the tensor", () => {
    const x = tensor(backend(), [1, 2, 3, 4, 5, 6], [2, 3]);
    assertSame("the transpose", download(swapAxes(x, 0, 1)), download(transpose(x)));
    const copy = swapAxes(x, 1, -1);
    assertSame("the copy", download(copy), download(x));
    expect(copy.address).not.toBe(x.address);
  });
});

describe("scales that relayout does not support are refused", () => {
  testInScope("axes that do not exist, and codes that share bytes", () => {
    const x = empty(backend(), "f32", [2, 3]);
    for (const axis of [2, -3, 0.5, Number.NaN])
      expect(() => swapAxes(x, 0, axis)).toThrow(
        new ArgumentError(
          `swapAxes: axis2 is ${axis}, and [2,3] has 2 dimensions; give an integer from -2 to 1`,
        ),
      );
    expect(() => swapAxes(empty(backend(), "f32", []), 0, 0)).toThrow(ArgumentError);
    expect(() => swapAxes(empty(backend(), "e2m1", [2, 4]), 0, 1)).toThrow(DTypeError);
  });

  testInScope("FP4 with an odd number of rows", () => {
    const x = empty(backend(), "e2m1", [3, 4]);
    expect(() => transpose(x)).toThrow(ShapeError);
    expect(() => transpose(x)).toThrow(/3 rows.*pad to 4/);
  });

  testInScope("f32 scales swizzled", () => {
    const quantizedTensor = new Float8BlockQuantizer().quantize(empty(backend(), "f32", [4, 128]));
    expect(() => relayoutScales(quantizedTensor, "rowwise", "swizzled")).toThrow(ArgumentError);
  });

  testInScope("scales of a copy that does not exist", () => {
    const quantizedTensor = new MXFP8Quantizer().makeEmpty(backend(), [32, 32]);
    expect(() => relayoutScales(quantizedTensor, "columnwise", "padded")).toThrow(ArgumentError);
    expect(() => relayoutScales(quantizedTensor, "columnwise", "padded")).toThrow(
      /quantize with columnwise usage/,
    );
  });
});
