/**
 * Chunks of the results of the special functions have the committed digests. An H200 returned those of the measured functions for
 * all 2^32 inputs.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { chunksOf, digestFunctionChunk } from "../../../../src/cli/commands/function-digests.js";
import {
  SPECIAL_FUNCTIONS,
  type SpecialFunctionName,
  type SpecialFunctionRow,
} from "../../../../src/formats/special-functions.js";
import { committedChunks, committedFunctionDigest } from "../../harness/digests.js";
import { sampled, seeded } from "../../harness/draws.js";
import { NAMES_OF_ONE } from "../../harness/special-functions.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();
const rowOf = (name: SpecialFunctionName): SpecialFunctionRow => SPECIAL_FUNCTIONS[name];

/** A chunk with a digest, which `SEED` chooses. */
function drawnChunk(name: SpecialFunctionName, index: number): number {
  const chunks = fc.constantFrom(...committedChunks(name));
  return fc.sample(chunks, { numRuns: 1, seed: seeded(5209 + index) })[0] as number;
}

const cases = NAMES_OF_ONE.map((name, index) => ({ name, chunk: drawnChunk(name, index) }));

it.each(sampled(cases, 2))("$name, chunk $chunk", async ({ name, chunk }) => {
  expect(await digestFunctionChunk(backend(), name, chunk)).toEqual(committedFunctionDigest(name, chunk));
});

it("every measured function has a digest of every chunk, and every other one some digests", () => {
  for (const name of NAMES_OF_ONE.filter((each) => rowOf(each).measured === undefined))
    for (const chunk of committedChunks(name)) committedFunctionDigest(name, chunk);
  for (const name of NAMES_OF_ONE.filter((each) => rowOf(each).measured !== undefined))
    for (let chunk = 0; chunk < chunksOf(name).chunks; chunk++) committedFunctionDigest(name, chunk);
  expect(() => committedFunctionDigest("tanh.approx.f16", 1)).toThrow(RangeError);
});
