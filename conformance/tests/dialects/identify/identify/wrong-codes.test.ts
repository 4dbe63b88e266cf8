/** A few wrong codes are reported as errors, with their number, position and cause, and never explained by random bits. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { identifyDialect } from "../../../../../src/dialects/identify/identify.js";
import { quantizerOf } from "../../../../../src/dialects/quantizer-of.js";
import type { DialectName } from "../../../../../src/dialects/table.js";
import { tensor } from "../../../../../src/ops/create.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import { splitmix32 } from "../../../../arbitraries/random.js";
import { drawsOr, SEED } from "../../../harness/draws.js";
import { useBackend } from "../../../harness/suite.js";

const backend = useBackend({ threads: 1 });
const RUNS = drawsOr(3);
const DIALECTS = [
  "ocp-mxfp8",
  "torchao-mxfp8-floor",
  "deepseek-fp8-block",
] as const satisfies readonly DialectName[];
const SIZE = [4, 128] as const;

it("says how many codes differ, and the first of them", () => {
  const flips = fc.uniqueArray(fc.nat({ max: SIZE[0] * SIZE[1] - 1 }), { minLength: 1, maxLength: 3 });
  const law = fc.property(fc.constantFrom(...DIALECTS), fc.nat(), flips, (dialect, seed, places) => {
    using _scope = new Scope();
    const next = splitmix32(seed);
    const values = Float32Array.from({ length: SIZE[0] * SIZE[1] }, () => (next() / 2 ** 32 - 0.5) * 16);
    const x = tensor(backend(), values, SIZE);
    const { data, scaleInv } = quantizerOf({ dialect }).quantize(x).copy("rowwise");
    const codes = Uint8Array.from(data.dataSync() as Uint8Array);
    // changes a code to one of its neighbours, which random bits could or could not have chosen
    for (const place of places) codes[place] = (codes[place] as number) ^ 1;
    const identification = identifyDialect(x, {
      codes: tensor(backend(), codes, SIZE, "u8"),
      scales: scaleInv,
    });
    const random = identification.readings.flatMap(({ elements }) =>
      elements.filter((element) => element.rounding === "stochastic"),
    );
    expect(random).toEqual([]);
    if (!identification.nearest) return;
    expect(identification.nearest.codes).toEqual({ different: places.length, of: codes.length });
    const firstPlace = Math.min(...places);
    expect(identification.words).toContain(
      `the code at [${Math.floor(firstPlace / SIZE[1])}, ${firstPlace % SIZE[1]}]`,
    );
  });
  fc.assert(law, { numRuns: RUNS, seed: SEED });
});
