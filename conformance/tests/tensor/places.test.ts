/** The scale of an element is at the position where every layout of a quantized matrix stores it. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { blockFormat, isTensorWide, scaleSpan } from "../../../src/formats/block.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { copyGeometry } from "../../../src/tensor/geometry.js";
import { linePlace, scaleIndex, swizzledIndex } from "../../../src/tensor/places.js";
import { DIRECTIONS } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import { words } from "../../arbitraries/random.js";
import { layoutsOf, QUANTIZERS, quantizeSpec } from "../../arbitraries/specs.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { swizzledOffset } from "../../oracle/layout/layout.js";
import { download } from "../../values/plain.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });

it("the scales of lines and blocks have the swizzled order of the oracle, and no two have the same place", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 11 }), (lines, blocks) => {
      const placesBy = (indexOf: typeof swizzledIndex) =>
        Array.from({ length: lines * blocks }, (_, index) =>
          indexOf(Math.floor(index / blocks), index % blocks, blocks),
        );
      const positions = placesBy(swizzledIndex);
      expect(positions).toEqual(placesBy(swizzledOffset));
      expect(new Set(positions).size).toBe(positions.length);
      expect(Math.max(...positions)).toBeLessThan(512 * Math.ceil(lines / 128) * Math.ceil(blocks / 4));
    }),
    { numRuns: draws(100), examples: [[129, 1]] },
  );
});

/** Quantizers that compute their scales. */
const SCALING = QUANTIZERS.filter((name) => blockFormat(name).scaleSource !== "given");

const cases = quantizeSpec(SCALING).chain((spec) =>
  fc.record({
    spec: fc.constant(spec),
    rows: fc.integer({ min: 1, max: 300 }),
    columns: fc.integer({ min: 1, max: 9 }).map((count) => count * blockFormat(spec.quantizer).multiple),
    direction: fc.constantFrom(...DIRECTIONS),
    layout: fc.constantFrom(...layoutsOf(spec)),
    seed: fc.nat(),
  }),
);

const oneRow = (options: { readonly stochastic?: boolean; readonly rht?: boolean }) => {
  const [direction, layout] = ["columnwise", "logical"] as const;
  return { spec: makeSpec("nvfp4", options), rows: 1, columns: 16, direction, layout, seed: 0 };
};

it("the scale of an element has the same code in every layout", () => {
  fc.assert(
    fc.property(cases, ({ spec, rows, columns, direction, layout, seed }) => {
      using _scope = new Scope();
      // magnitudes of 40 binades: almost every block has another scale
      const values = Float32Array.from(
        words(seed, rows * columns),
        (bits) => (1 + (bits % 97) / 97) * 2 ** (((bits >>> 8) % 40) - 20),
      );
      const wide = tensor(backend(), values, [rows, columns]);
      const x = spec.rht ? castTo(wide, "bf16") : wide;
      const random = { seed: BigInt(seed), offset: 0n };
      const usage = { rowwise: direction === "rowwise", columnwise: direction === "columnwise" };
      const [ownScales = [], logicalScales = []] = [layout, "logical" as const].map((scaleLayout) => {
        const quantizedTensor = new SpecQuantizer(spec, { ...usage, scaleLayout }, { random }).quantize(x);
        return download(quantizedTensor.copy(direction).scaleInv).codes;
      });
      const geometry = copyGeometry(spec, [rows, columns], direction, layout);
      const { logicalScale, blocksFirst } = copyGeometry(spec, [rows, columns], direction, "logical");
      const [lines, length] = isTensorWide(spec.tile) ? [rows * columns, rows * columns] : scaleSpan(spec);
      const mismatches: unknown[] = [];
      for (let element = 0; element < rows * columns; element += 7) {
        const [row, column] = [Math.floor(element / columns), element % columns];
        const [line, blockIndex] = direction === "rowwise" ? [row, column] : [column, row];
        const [i, j] = [Math.floor(line / lines), Math.floor(blockIndex / length)];
        const code = logicalScales[blocksFirst ? j * logicalScale[1] + i : i * logicalScale[1] + j];
        const scale = ownScales[scaleIndex(spec, geometry, linePlace(geometry, row, column))];
        if (code === undefined || scale !== code) mismatches.push([row, column, code, scale]);
      }
      expect(mismatches).toEqual([]);
    }),
    {
      numRuns: draws(100, 15),
      // stochastic rounding takes random bits, the Hadamard transform bf16
      examples: [[oneRow({ stochastic: true })], [oneRow({ rht: true })]],
    },
  );
});
