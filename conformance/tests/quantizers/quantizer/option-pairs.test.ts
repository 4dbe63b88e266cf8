/** Every option value of a quantizer together with every value of every other option, in every layout. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BLOCK_FORMATS } from "../../../../src/formats/block.js";
import { factsOf } from "../../../../src/formats/derive.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { covering, product, tuplesAmong } from "../../../arbitraries/covering.js";
import { drawnBlock, wideMatrix } from "../../../arbitraries/matrices.js";
import { optionsOf, QUANTIZERS } from "../../../arbitraries/specs.js";
import { assertSameAnswer } from "../../../laws/laws.js";
import { quantizeOperation } from "../../../operations/quantize/quantize.js";
import { nameOf, type ToldSpec, toldTogether } from "../../arbitraries/quantizations.js";
import { derivedSeed, sampleCases } from "../../harness/draws.js";
import { testInScope, useBackend } from "../../harness/suite.js";

describe("rows chosen to cover a table of options", () => {
  it("have every combination of values that any row has, and are few", () => {
    const table = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 2, maxLength: 5 });
    fc.assert(
      fc.property(table, fc.nat({ max: 6 }), fc.constantFrom(1, 2, 3), (sizes, forbiddenCount, strength) => {
        const options = Object.fromEntries(
          sizes.map((size, i) => [`o${i}`, Array.from({ length: size }, (_, choice) => choice)]),
        );
        const rows = product(options).filter((row) => row.o0 !== row.o1 || row.o0 !== forbiddenCount);
        const chosenRows = covering(rows, strength);
        expect(tuplesAmong(chosenRows, strength)).toEqual(tuplesAmong(rows, strength));
        const largestSizes = sizes.toSorted((a, b) => b - a).slice(0, strength);
        expect(chosenRows.length).toBeLessThanOrEqual(2 * largestSizes.reduce((n, size) => n * size, 1));
      }),
    );
  });
});

describe.each(QUANTIZERS)("%s", (name) => {
  const backend = useBackend({ threads: 2 });
  const pairs = toldTogether(name, 2);

  it("has each field of a spec among its options, or a single value for it", () => {
    const { quantizer: _, ...defaults } = makeSpec(name, {});
    const options = optionsOf(name);
    for (const [field, value] of Object.entries(defaults)) {
      const values: readonly unknown[] = options[field as keyof typeof options] ?? [value];
      expect(values[0], field).toBe(value);
      const met = new Set(pairs.map(({ spec }) => spec[field as keyof typeof spec]));
      expect(met, field).toEqual(new Set(values));
    }
  });

  /** A matrix of a few blocks in each direction from `wideMatrix`, ragged if the quantizer allows it. */
  const matrix = ({ spec, dtype }: ToldSpec) => {
    const { multiple } = BLOCK_FORMATS[name];
    const block = drawnBlock(spec.tile);
    const shape = multiple === 1 ? [block + 3, block + 5] : [3 * multiple, 5 * multiple];
    return wideMatrix({ dtype, shape, block, max: factsOf(spec.format).max });
  };

  for (const sampleCase of sampleCases(pairs, 2, QUANTIZERS.indexOf(name))) {
    testInScope(nameOf(sampleCase), () => {
      const { dtype: _, ...options } = sampleCase;
      for (const x of fc.sample(matrix(sampleCase), { numRuns: 1, seed: derivedSeed(1) })) {
        const input = { ...options, x, random: { seed: 5n, offset: 9n }, scale: 0.3 };
        assertSameAnswer(quantizeOperation.run(backend(), input), quantizeOperation.oracle(input));
      }
    });
  }
});
