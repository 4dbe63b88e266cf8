/**
 * Chunks of the results of the special functions have the committed digests. An H200 returned these digests for all 2^32 inputs.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { chunksOf, digestFunctionChunk } from "../../../../src/cli/commands/function-digests.js";
import type { SpecialFunctionName } from "../../../../src/formats/special-functions.js";
import { committedFunctionDigest } from "../../harness/digests.js";
import { derivedSeed, sampleCases } from "../../harness/draws.js";
import { UNARY_FUNCTION_NAMES } from "../../harness/special-functions.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();

/** A chunk, selected by `SEED`. */
function drawnChunk(name: SpecialFunctionName, index: number): number {
  const chunks = fc.nat({ max: chunksOf(name).chunks - 1 });
  return fc.sample(chunks, { numRuns: 1, seed: derivedSeed(5209 + index) })[0] as number;
}

const cases = UNARY_FUNCTION_NAMES.map((name, index) => ({ name, chunk: drawnChunk(name, index) }));

it.each(sampleCases(cases, 2))("$name, chunk $chunk", async ({ name, chunk }) => {
  expect(await digestFunctionChunk(backend(), name, chunk)).toEqual(committedFunctionDigest(name, chunk));
});

it("every function has a digest of every chunk", () => {
  for (const name of UNARY_FUNCTION_NAMES)
    for (let chunk = 0; chunk < chunksOf(name).chunks; chunk++) committedFunctionDigest(name, chunk);
  expect(() => committedFunctionDigest("tanh.approx.f16", 1)).toThrow(RangeError);
});
