/**
 * A backend whose kernels take whole blocks only composes operations to quantize any number of rows. With the reference's
 * operations, the composition is bitwise equal to the reference.
 */

import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { QuantizeArgs } from "../../../../src/backends/ops.js";
import { runOn } from "../../../../src/backends/run.js";
import { quantizeWholeBlocks, supportsWholeBlocks } from "../../../../src/backends/steps/whole-blocks.js";
import { BLOCK_FORMATS, isSquare } from "../../../../src/formats/block.js";
import { factsOf } from "../../../../src/formats/derive.js";
import { scalesZeros } from "../../../../src/formats/scale-rules.js";
import { fromBytes, zeros } from "../../../../src/ops/create.js";
import type { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { asMatrix, byteLength, type WideDType } from "../../../../src/tensor/shape.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { drawnBlock, wideMatrix } from "../../../arbitraries/matrices.js";
import { quantizeSpec, scaleLayout, sourceType, usage } from "../../../arbitraries/specs.js";
import { assertSameAnswer } from "../../../laws/laws.js";
import { downloadQuantized, SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { PlainTensor, upload } from "../../../values/plain.js";
import { derivedSeed, draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();
const ONE = new PlainTensor("f32", [1], Float32Array.of(1));

const cases = quantizeSpec().chain((spec) => {
  const columns = fc
    .integer({ min: 0, max: 3 })
    .map((count) => count * Math.max(BLOCK_FORMATS[spec.quantizer].multiple, 16));
  return fc
    .tuple(fc.integer({ min: 0, max: 130 }), columns, sourceType(spec))
    .chain(([rows, unitsOfColumns, dtype]) =>
      fc.record({
        spec: fc.constant(spec),
        usage: usage(),
        layout: scaleLayout(spec),
        noop: fc.constantFrom(undefined, 0, 1),
        shards: fc.constantFrom(1, 2, 3),
        x: wideMatrix({
          dtype,
          shape: [rows, unitsOfColumns],
          block: drawnBlock(spec.tile),
          max: factsOf(spec.format).max,
        }),
      }),
    );
});

/** The scales of rows of zeros have other codes than 0, but lines of padding are zero bytes. */
const ZEROS_HAVE_SCALES = {
  spec: makeSpec("nvfp4", { scaleRule: "twoLevelDivisor", elementScaling: "divideAdd" }),
  usage: { rowwise: true, columnwise: false },
  layout: "padded",
  noop: undefined,
  shards: 1,
  x: new PlainTensor("f32", [1, 16], new Float32Array(16)),
} as const;

/** x with rows of zeros below. */
function zeroFilled(x: Tensor<WideDType>, rows: number): Tensor<WideDType> {
  const shape = [rows, asMatrix(x.shape)[1]];
  const bytes = new Uint8Array(byteLength(x.dtype, shape));
  bytes.set(backend().memory.readSync(x.address, x.byteLength));
  return fromBytes(backend(), bytes, shape, x.dtype) as Tensor<WideDType>;
}

describe("a quantization by kernels for whole blocks", () => {
  it("gives the reference's bits for any number of rows, and writes nothing if the flag is 1", () => {
    let refusalCount = 0;
    fc.assert(
      fc.property(cases, ({ spec, usage: copies, layout, noop, shards, x }) => {
        using _scope = new Scope();
        const source = upload(backend(), x);
        const [rows, columns] = x.matrix;
        const quantizeAgain = (): QuantizedTensor => {
          const quantizedTensor = new SpecQuantizer(spec, { ...copies, scaleLayout: layout }).makeEmpty(
            backend(),
            x.shape,
            x.dtype,
          );
          for (const { address, byteLength: bytes } of quantizedTensor.members)
            backend().memory.write(address, new Uint8Array(bytes).fill(0xa5));
          return quantizedTensor;
        };
        const [expected, actual] = [quantizeAgain(), quantizeAgain()];
        const flag = zeros(backend(), "f32", [1]);
        if (noop !== undefined) flag.write(Float32Array.of(noop));
        const scaleOptions = spec.quantizer === "fp8-delayed" ? { scale: upload(backend(), ONE) } : {};
        const part = { rows, columns: columns * shards, row: 0, column: 0, width: columns, stride: columns };
        const args = (quantizedTensor: QuantizedTensor): QuantizeArgs => ({
          x: source,
          spec,
          random: { seed: 3n, offset: 4n },
          part: spec.stochastic && columns > 0 ? part : undefined,
          noop: noop === undefined ? undefined : flag,
          rowwise: quantizedTensor.rowwise,
          columnwise: quantizedTensor.columnwise,
          ...scaleOptions,
        });
        const support = supportsWholeBlocks(args(actual));
        if (!support.ok) {
          refusalCount++;
          const { tile, scaleRule } = spec;
          expect(isSquare(tile) || scalesZeros(scaleRule)).toBe(true);
          expect(noop !== undefined && layout !== "logical" && copies.rowwise).toBe(true);
          expect(rows % BLOCK_FORMATS[spec.quantizer].multiple).not.toBe(0);
          expect(support.reason).toMatch(/noop.*tiles that \d+ rows do not fill.*pad to \d+ rows/);
          return;
        }
        runOn(backend(), "quantize", args(expected));
        quantizeWholeBlocks(args(actual), {
          zeroFilled,
          quantize(tensor) {
            expect(asMatrix(tensor.x.shape)[0] % BLOCK_FORMATS[spec.quantizer].multiple).toBe(0);
            runOn(backend(), "quantize", tensor);
          },
        });
        assertSameAnswer(downloadQuantized(actual), downloadQuantized(expected));
      }),
      { numRuns: draws(1000), seed: derivedSeed(47), examples: [[ZEROS_HAVE_SCALES]] },
    );
    expect(refusalCount).toBeGreaterThan(0);
  });
});
