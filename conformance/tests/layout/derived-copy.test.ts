/** A columnwise copy that is derived from the rowwise one is bitwise equal to a copy that is quantized from the source. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { BLOCK_FORMATS, isSquare, isTensorWide } from "../../../src/formats/block.js";
import { tensor } from "../../../src/ops/create.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { WIDE_DTYPES } from "../../../src/tensor/shape.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import { layoutsOf, QUANTIZERS, specsOf } from "../../arbitraries/specs.js";
import { wideTensor } from "../../arbitraries/wide.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { downloadQuantized, SpecQuantizer } from "../../operations/quantize/quantized.js";
import { fromCodes, upload } from "../../values/plain.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

const SPECS = QUANTIZERS.flatMap((name) => specsOf(name));
const isDerived = ({ tile, stochastic, fourOverSix }: QuantizeSpec): boolean =>
  isTensorWide(tile) || (isSquare(tile) && !stochastic && fourOverSix === "none");
const DERIVED = SPECS.filter(isDerived);
const REFUSED = SPECS.filter((spec) => !isDerived(spec));

const inputs = () => ({
  scale: tensor(backend(), [64]),
  random: { seed: 7n, offset: 0n },
});

/** Rules under which a row of zeros may get NaN codes; a derived copy then needs whole tiles. */
const OF_WHOLE_TILES = ["twoLevelQuotient", "twoLevelProduct", "twoLevelDivisor"];

/** A spec with such a rule, a scale layout that it supports, and a tensor to quantize. Rows need not be whole tiles. */
function quantization(specs: readonly QuantizeSpec[]) {
  return fc.constantFrom(...specs).chain((spec) => {
    const { multiple } = BLOCK_FORMATS[spec.quantizer];
    const across = multiple === 1 ? 16 : multiple;
    return fc
      .tuple(
        fc.integer({ min: 0, max: 70 }),
        fc.integer({ min: 0, max: Math.floor(150 / across) }),
        fc.constantFrom(1, 2),
      )
      .chain(([rows, columns, lead]) =>
        fc.record({
          spec: fc.constant(spec),
          scaleLayout: fc.constantFrom(...layoutsOf(spec)),
          x: wideTensor([lead, rows, columns * across], spec.rht ? { dtype: "bf16" } : {}),
        }),
      );
  });
}

const ZEROS = fromCodes("bf16", [1, 80], new Uint16Array(80));

const square = (
  name: "nvfp4" | "mxfp8" | "mxfp4",
  tile: "16x16" | "32x32",
  rows: number,
  scaleRule?: "twoLevelQuotient" | "twoLevelProduct" | "twoLevelDivisor",
) => ({
  spec: makeSpec(name, { tile, ...(scaleRule ? { scaleRule } : {}) }),
  scaleLayout: "logical" as const,
  x: fromCodes(
    "bf16",
    [rows, 64],
    Uint16Array.from({ length: 64 * rows }, (_, i) => 0x3f00 + ((i * 7) % 300)),
  ),
});

describe("the columnwise copy of scales of tensors and square tiles", () => {
  it("is derived with the bits of the copy that is quantized from the source", () => {
    fc.assert(
      fc.property(quantization(DERIVED), ({ spec, scaleLayout, x }) => {
        using _scope = new Scope();
        const source = upload(backend(), x);
        const make = (columnwise: boolean) =>
          new SpecQuantizer(spec, { rowwise: true, columnwise, scaleLayout }, inputs());
        const quantizedTensor = make(false).quantize(source);
        const rows = x.shape.slice(0, -1).reduce((product, length) => product * length, 1);
        if (OF_WHOLE_TILES.includes(spec.scaleRule) && rows % 16 !== 0) {
          expect(() => quantizedTensor.updateUsage({ columnwise: true })).toThrow(
            "rows do not fill the last tile",
          );
          return;
        }
        const derived = quantizedTensor.updateUsage({ columnwise: true });
        assertSameAnswer(downloadQuantized(derived), downloadQuantized(make(true).quantize(source)));
        // the derived copy is independent: the other one can be dropped, and the derived one can be written
        derived.updateUsage({ rowwise: false }).quantize_(source);
      }),
      {
        numRuns: draws(150),
        examples: [
          [square("nvfp4", "16x16", 32)],
          [square("nvfp4", "16x16", 33)],
          [square("mxfp8", "32x32", 64)],
          [square("mxfp8", "32x32", 65)],
          [square("mxfp4", "32x32", 31)],
          [square("nvfp4", "16x16", 48, "twoLevelProduct")],
          // a tensor of zeros, whose tiles have codes of NaN
          [{ ...square("nvfp4", "16x16", 1, "twoLevelQuotient"), x: ZEROS }],
          [{ ...square("nvfp4", "16x16", 1, "twoLevelDivisor"), x: ZEROS }],
        ],
      },
    );
  });

  it("is refused of every other quantization, with the reason", () => {
    fc.assert(
      fc.property(quantization(REFUSED), ({ spec, scaleLayout, x }) => {
        using _scope = new Scope();
        const quantizedTensor = new SpecQuantizer(
          spec,
          { rowwise: true, columnwise: false, scaleLayout },
          inputs(),
        ).quantize(upload(backend(), x));
        expect(() => quantizedTensor.updateUsage({ columnwise: true })).toThrow(ArgumentError);
        const why = !isSquare(spec.tile) ? "lie along rows" : spec.stochastic ? "random bits" : "4over6";
        expect(() => quantizedTensor.updateUsage({ columnwise: true })).toThrow(why);
      }),
      { numRuns: draws(30) },
    );
  });

  it("has members of its own under every nominal type", () => {
    using _scope = new Scope();
    for (const dtype of WIDE_DTYPES) {
      const quantizedTensor = new SpecQuantizer(
        makeSpec("nvfp4", { tile: "16x16" }),
        { rowwise: true, columnwise: false, scaleLayout: "logical" },
        inputs(),
      ).quantize(upload(backend(), fromCodes(dtype, [16, 16], new Uint16Array(256))));
      expect(new Set(quantizedTensor.updateUsage({ columnwise: true }).members).size).toBe(6);
    }
  });
});
