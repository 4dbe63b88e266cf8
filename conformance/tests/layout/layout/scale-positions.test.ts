/** CUDA kernels read block scales at the positions where the reference's `relayout` puts them. Needs no GPU. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BLOCK_FORMATS } from "../../../../src/formats/block.js";
import { relayoutScales } from "../../../../src/ops/layout/layout.js";
import { copyGeometry } from "../../../../src/tensor/geometry.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../../../../src/tensor/quantized.js";
import { DIRECTIONS } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { asMatrix, elementCount, type Shape, storageBits } from "../../../../src/tensor/shape.js";
import { anyRows, drawnBlock } from "../../../arbitraries/matrices.js";
import { quantizeSpec, scaleLayout } from "../../../arbitraries/specs.js";
import { SpecQuantizer, uploadQuantized } from "../../../operations/quantize/quantized.js";
import { download, fromCodes } from "../../../values/plain.js";
import { derivedSeed, draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();

interface Placed {
  readonly spec: QuantizeSpec;
  readonly shape: Shape;
  readonly direction: Direction;
  readonly layout: ScaleLayout;
}

const cases: fc.Arbitrary<Placed> = quantizeSpec().chain((spec) =>
  fc.record({
    spec: fc.constant(spec),
    shape: anyRows(BLOCK_FORMATS[spec.quantizer].multiple, drawnBlock(spec.tile), 2 ** 17),
    direction: fc.constantFrom(...DIRECTIONS),
    layout: scaleLayout(spec),
  }),
);

/** For each element of the converted scales: 1 + the index of its scale in the logical matrix, and 0 for padding. */
function origins({ spec, shape, direction, layout }: Placed): number[] {
  using _scope = new Scope();
  const logical = copyGeometry(spec, asMatrix(shape), direction, "logical");
  const quantized = new SpecQuantizer(spec, {
    rowwise: direction === "rowwise",
    columnwise: direction === "columnwise",
    scaleLayout: "logical",
  }).makeEmpty(backend(), shape);
  const data = download(quantized.copy(direction).data);
  const positions: number[] = [];
  // byte by byte, because a scale may have only one byte
  for (const scale of [1, 256, 65536]) {
    const digit = (_: unknown, i: number): number => Math.floor((i + 1) / scale) % 256;
    const codes = Array.from({ length: elementCount(logical.scaleShape) }, digit);
    const scaleInv = fromCodes(logical.scaleType, logical.scaleShape, codes);
    const quantizedTensor = uploadQuantized(backend(), spec, shape, direction, "logical", { data, scaleInv });
    download(relayoutScales(quantizedTensor, direction, layout)).codes.forEach((byte, i) => {
      positions[i] = (positions[i] ?? 0) + byte * scale;
    });
  }
  return positions;
}

/**
 * The offset in cuBLASLt's 128x4 layout: tiles of 512 bytes with 32 groups, each of which has 4 lines (32 apart) of 4
 * blocks.
 */
function swizzledOffset(line: number, block: number, blocks: number): number {
  const tile = Math.floor(line / 128) * Math.ceil(blocks / 4) + Math.floor(block / 4);
  return ((tile * 32 + (line % 32)) * 4 + (Math.floor(line / 32) % 4)) * 4 + (block % 4);
}

describe("the placement of scales", () => {
  it("addresses the elements that the reference's relayout fills, and no others", () => {
    fc.assert(
      fc.property(cases, (input) => {
        const { spec, shape, direction, layout } = input;
        const size = asMatrix(shape);
        const placement = copyGeometry(spec, size, direction, layout).placement;
        const lines = placement.lines;
        const blocks = placement.blocks;
        const { scale, scaleType, logicalScale } = copyGeometry(spec, size, direction, "logical");
        // in an "inPlace" copy the columnwise scales are not transposed, so a line is a column
        const isSwapped = direction === "columnwise" && scale === "inPlace";
        const columns = logicalScale[1];
        const expected = origins(input);
        const addressedScales: number[] = new Array(expected.length).fill(0);
        for (let line = 0; line < lines; line++) {
          for (let block = 0; block < blocks; block++) {
            const offset = placement.swizzled
              ? swizzledOffset(line, block, blocks)
              : line * placement.lineStride + block * placement.blockStride;
            addressedScales[offset] = 1 + (isSwapped ? block * columns + line : line * columns + block);
          }
        }
        expect(addressedScales).toEqual(expected);
        expect(placement.bytes).toBe((expected.length * storageBits(scaleType)) / 8);
      }),
      { numRuns: draws(500), seed: derivedSeed(31) },
    );
  });
});
