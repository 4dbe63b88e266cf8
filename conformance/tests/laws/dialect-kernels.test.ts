/** Kernels of any dialect, and of any recipe that a quantizer accepts, can be tested: correct ones pass, wrong ones fail. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { unstoredFields, withExpectedNaN } from "../../../src/cli/subject/expectation.js";
import { notesOf, supportOf } from "../../../src/cli/subject/support.js";
import { quantizerOf } from "../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect } from "../../../src/dialects/table.js";
import { blockFormat } from "../../../src/formats/block.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import type { Supported } from "../../arbitraries/supported.js";
import { compareWith } from "../../laws/run.js";
import { supportedInputs } from "../../laws/supported.js";
import type { Answer } from "../../operations/operation.js";
import { ORACLE } from "../../operations/operations.js";
import type { QuantizeCase } from "../../operations/quantize/quantize.js";
import { fromCodes, PlainTensor } from "../../values/plain.js";
import { draws, sampleCases } from "../harness/draws.js";

const FEW = { runs: 2, seed: 1 } as const;
/** The largest input, so that the oracle answers quickly. */
const MAX_ELEMENTS = 2048;
/** Small inputs with one copy, which the oracle answers quickly. */
const ROWWISE: Supported = { "usage.columnwise": [false], scaleLayout: ["logical"], noop: [null] };

const specsOf = (dialect: (typeof DIALECT_NAMES)[number]) => {
  const { forms }: Dialect = DIALECTS[dialect];
  return forms.flatMap(
    ({ quantizer, formats = blockFormat(quantizer).elements, tiles = blockFormat(quantizer).tiles }) =>
      formats.flatMap((format) =>
        tiles.map((tile) => quantizerOf({ dialect, quantizer, format, tile }).spec),
      ),
  );
};

function draw(supported: Supported, numRuns: number): readonly QuantizeCase[] {
  const { quantize } = supportedInputs("quantize", { ...ROWWISE, ...supported });
  if (!quantize) throw new Error("no inputs");
  return fc.sample(quantize, { numRuns, seed: 1 });
}

/** Dialects with unusual inputs or outputs: an amax epsilon or limit that no other draw uses, and a tensor that is not stored. */
const REFUSED = ["deepseek-ue8m0", "fbgemm-fp8-ub1200", "torchao-nvfp4"] as const;

const isSmall = ({ x }: QuantizeCase): boolean => x.codes.length <= MAX_ELEMENTS;

/** The answer with the lowest bit of one code flipped. */
function withFlippedBit(answer: Answer): Answer {
  return Object.fromEntries(
    Object.entries(answer).map(([name, tensor]) => {
      if (!name.endsWith("data") || tensor.codes.length === 0) return [name, tensor];
      const codes = Array.from(tensor.codes, (code, i) => (i === 0 ? code ^ 1 : code));
      return [name, fromCodes(tensor.dtype, tensor.shape, codes)];
    }),
  );
}

describe.each(sampleCases(DIALECT_NAMES, 5))("kernels of %s", (dialect) => {
  it("receive each spec of the dialect, and no NaN and infinity that its package treats in its own way", () => {
    const { nonFinite = {} }: Dialect = DIALECTS[dialect];
    for (const spec of specsOf(dialect)) {
      const recipe = Object.fromEntries(
        Object.entries(spec).map(([name, value]) => [`spec.${name}`, [value]]),
      );
      const { fields } = supportOf("quantize", { ...recipe, dialect });
      for (const { spec: drawnSpec, x } of draw(fields, 3)) {
        expect(drawnSpec).toEqual(spec);
        if (nonFinite.nan !== undefined) expect(x.hasNaN).toBe(false);
        if (nonFinite.infinity !== undefined) expect(x.hasInfinity).toBe(false);
      }
    }
  });

  it("agree if they are right, and differ if one bit is wrong", async () => {
    const { fields } = supportOf("quantize", { dialect, ...ROWWISE });
    const supported = {
      quantize: { ...fields, "x.dtype": ["f32"], "x.shape.length": [2], "x.isEmpty": [false] },
    };
    const { quantize } = supportedInputs("quantize", supported.quantize);
    const inputs = { quantize: (quantize as fc.Arbitrary<QuantizeCase>).filter(isSmall) };
    const options = { ...FEW, inputs, comparing: true };
    const correctReport = await compareWith({ quantize: ORACLE.quantize }, ORACLE, options);
    expect(correctReport.laws.map(({ runs, failure }) => [runs, failure])).toEqual([[FEW.runs, undefined]]);
    // shrinking and explaining a counterexample takes seconds
    if (!REFUSED.some((name) => name === dialect)) return;
    const wrongKernel = async (input: QuantizeCase) => withFlippedBit(await ORACLE.quantize(input));
    expect((await compareWith({ quantize: wrongKernel }, ORACLE, options)).ok).toBe(false);
  });

  it("have notes on non-finite inputs exactly for the dialects that exclude some", () => {
    const { nonFinite = {} }: Dialect = DIALECTS[dialect];
    const notes = notesOf(supportOf("quantize", { dialect }));
    for (const reason of Object.values(nonFinite)) expect(notes.join("\n")).toContain(reason);
    expect(notes.length > 0).toBe(Object.keys(nonFinite).length > 0);
    const support = supportOf("quantize", {
      dialect,
      "x.hasNaN": [true, false],
      "x.hasInfinity": [true, false],
    });
    expect(notesOf(support).filter((note) => note.startsWith("no input"))).toEqual([]);
  });
});

describe("recipes of any numbers", () => {
  const epsilon = fc.oneof(
    fc.constantFrom(Math.fround(1e-12) * 448, Math.fround(1e-4), 1e-300),
    fc.double({ min: 0, max: 1e6, noNaN: true }),
  );

  it("are drawn", () => {
    fc.assert(
      fc.property(
        fc.constantFrom("fp8-block", "fp8-row", "fp8-current", "int8-row", "int4-group"),
        epsilon,
        fc.integer({ min: 0, max: 40 }),
        (quantizer, amaxEpsilon, exponent) => {
          const limits = blockFormat(quantizer).options.includes("amaxLimit");
          const amaxLimit = limits && exponent > 0 ? Math.max(amaxEpsilon, 2 ** exponent / 3) : 0;
          const spec = makeSpec(quantizer, { amaxEpsilon, amaxLimit });
          const fieldsOfSpec = Object.entries(spec).map(
            ([name, value]) => [`spec.${name}`, [value]] as const,
          );
          for (const input of draw(Object.fromEntries(fieldsOfSpec), 3)) expect(input.spec).toEqual(spec);
        },
      ),
      { numRuns: draws(20) },
    );
  });

  it("are refused where a quantizer refuses them", () => {
    for (const fields of [
      { "spec.amaxEpsilon": [-1] },
      { "spec.amaxEpsilon": ["1"] },
      { "spec.e4m3Max": [300] },
    ])
      expect(() => draw(fields, 1)).toThrow(/no input of quantize is supported/);
  });
});

describe("answers of dialects", () => {
  it("may leave out a scale of the tensor that is always 1, and no other", () => {
    const amax = { "rowwise.data": undefined, "rowwise.amax": undefined } as never;
    const optional = (scaleRule: string) => unstoredFields({ spec: { scaleRule } }, amax);
    expect(optional("e4m3Quotient")).toEqual(["rowwise.amax"]);
    expect(optional("e4m3HalfUp")).toEqual(["rowwise.amax"]);
    for (const rule of ["twoLevel", "twoLevelQuotient", "twoLevelDivisor", "e8m0Up"])
      expect(optional(rule)).toEqual([]);
  });

  it("have NaN of either sign only where a package was recorded, and only where NaN is right", () => {
    const expected = new PlainTensor("e4m3", [3], Uint8Array.of(0x7f, 0x7f, 0x7e));
    const codes = Uint8Array.of(0xff, 0x7e, 0xff);
    expect([...withExpectedNaN("torchao-fp8-row", codes, expected)]).toEqual([0x7f, 0x7e, 0xff]);
    for (const profile of ["te", "ocp-mxfp8", undefined] as const)
      expect(withExpectedNaN(profile, codes, expected)).toBe(codes);
  });
});

describe("dequantizations", () => {
  it("are drawn within what a subject supports", () => {
    const supported: Supported = {
      "spec.quantizer": ["mxfp8"],
      "spec.format": ["e4m3"],
      "spec.tile": ["1x32"],
      direction: ["rowwise"],
      scaleLayout: ["logical"],
      dtype: ["f32"],
    };
    const { dequantize } = supportedInputs("dequantize", supported);
    const inputs = fc.sample(dequantize ?? fc.constant(undefined as never), { numRuns: draws(50), seed: 1 });
    for (const input of inputs) {
      expect([input.spec.quantizer, input.spec.format, input.spec.tile]).toEqual(["mxfp8", "e4m3", "1x32"]);
      expect([input.direction, input.scaleLayout, input.dtype]).toEqual(["rowwise", "logical", "f32"]);
    }
  });
});
