/**
 * The code of an element does not depend on its neighbours: kernels encode sixteen elements at a time if they can, and in another
 * way if fewer are left or one of them is NaN.
 */
import { describe, expect, it } from "vitest";
import { BLOCK_FORMAT_NAMES, blockFormat } from "../../../../src/formats/block.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { WIDE_DTYPES, type WideDType } from "../../../../src/tensor/shape.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { codeEdges } from "../../arbitraries/code-edges.js";
import { scaledSpecs } from "../../arbitraries/scaled-specs.js";
import { sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });
const LAYOUT = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;

/** Zeros, subnormals, ties of several formats, infinities and NaN of several payloads, of both signs, as f32. */
const WORDS = [
  0x00000000, 0x00000001, 0x007fffff, 0x00800000, 0x3e800000, 0x3f400000, 0x3f800000, 0x3fa00000, 0x40200000,
  0x43e00000, 0x43e80000, 0x7f400000, 0x7f7fffff, 0x7f800000, 0x7f810000, 0x7fc00000, 0x7fff0000, 0x7fffffff,
].flatMap((bits) => [bits, (bits | 0x80000000) >>> 0]);
const AMAXES = [0, 1, 0x3f800000, 0x43e00000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7fffffff, 0xffffffff];

const floats = (patterns: readonly number[]): Float32Array =>
  new Float32Array(Uint32Array.from(patterns).buffer);

const nameOf = ({ quantizer, format, scaleRule, elementScaling }: QuantizeSpec): string =>
  `${quantizer} ${format} ${scaleRule} ${elementScaling}`;

/** The codes of a row, one for each element or two in a byte. */
function codesOf(spec: QuantizeSpec, row: Float32Array, dtype: WideDType, amax?: number): readonly number[] {
  using _scope = new Scope();
  const x = castTo(tensor(backend(), row, [1, row.length]), dtype);
  const scaleOptions = amax === undefined ? {} : { amax: tensor(backend(), floats([amax]), [1]) };
  const quantizedTensor = new SpecQuantizer(spec, LAYOUT, scaleOptions).quantize(x);
  return Array.from(quantizedTensor.copy("rowwise").data.dataSync() as Uint8Array);
}

describe.each(WIDE_DTYPES)("of %s", (dtype) => {
  const names = BLOCK_FORMAT_NAMES.filter(
    (name) => blockFormat(name).scaleSource === "whole" && blockFormat(name).multiple === 1,
  ).flatMap(scaledSpecs);
  it.each(
    sampleCases(names.filter(({ tile }) => tile === "tensor").map((spec) => [nameOf(spec), spec] as const)),
  )("%s: many elements under a given amax have the codes that each has alone", (_, spec) => {
    for (const amax of AMAXES) {
      const separateCodes = WORDS.flatMap((pattern) => codesOf(spec, floats([pattern]), dtype, amax));
      expect(codesOf(spec, floats([...WORDS, ...WORDS]), dtype, amax)).toEqual([
        ...separateCodes,
        ...separateCodes,
      ]);
    }
  });

  const blocks = BLOCK_FORMAT_NAMES.filter((name) => blockFormat(name).multiple > 1).flatMap(scaledSpecs);
  it.each(sampleCases(blocks.map((spec) => [nameOf(spec), spec] as const)))(
    "%s: a block has the codes that it has beside a block with NaN",
    (_, spec) => {
      const size = 64;
      const finite = WORDS.filter((pattern) => (pattern & 0x7fffffff) < 0x7f800000);
      for (let offset = 0; offset < finite.length; offset += 3) {
        const block = Array.from(
          { length: size },
          (_, i) => finite[(i * 5 + offset) % finite.length] as number,
        );
        const withNaN = block.map((pattern, i) => (i % 7 === 3 ? 0x7fff0000 : pattern));
        const plainCodes = codesOf(spec, floats([...block, ...block]), dtype);
        const codesWithNaN = codesOf(spec, floats([...block, ...withNaN]), dtype);
        expect(codesWithNaN.slice(0, plainCodes.length / 2)).toEqual(
          plainCodes.slice(0, plainCodes.length / 2),
        );
      }
    },
  );

  it.each(blocks.map((spec) => [nameOf(spec), spec] as const))(
    "%s: midpoints of codes have the codes that they have beside a block with NaN",
    (_, spec) => {
      const size = 128;
      const edges = codeEdges(spec.format);
      const max = edges.at(-1) as number;
      for (let offset = 0; offset < edges.length; offset += size / 2) {
        const block = Float32Array.from({ length: size }, (_, i) => {
          const edge = edges[(i + offset) % edges.length] as number;
          return i % 8 === 0 ? max : i & 1 ? edge : -edge;
        });
        const withNaN = block.map((value, i) => (i % 7 === 3 ? Number.NaN : value));
        const plainCodes = codesOf(spec, Float32Array.of(...block, ...block), dtype);
        const codesWithNaN = codesOf(spec, Float32Array.of(...block, ...withNaN), dtype);
        expect(codesWithNaN.slice(0, plainCodes.length / 2)).toEqual(
          plainCodes.slice(0, plainCodes.length / 2),
        );
      }
    },
  );
});
