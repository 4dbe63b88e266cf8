// All 2^32 f32 inputs through every format, rounding and overflow policy: the reference's codes equal the oracle's.
// Takes two hours on one core. The counts are written to conformance/vectors/exhaustive.json, which docs/conformance.md
// summarises.
//
// FORMATS=e4m3,bf16 selects formats; RESUME=1 skips the encodings that exhaustive.json already has.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Backend, openBackend, SWEEP_CHUNKS, sweepChunk } from "../../../src/index.js";
import { committedDigest, ENCODINGS, SWEEP_RANDOM } from "../harness/digests.js";
import { CHUNK, type Encoding, Exhaustion } from "../harness/exhaustive.js";

const RESULTS = new URL("../../vectors/exhaustive.json", import.meta.url);
const expected = process.env.FORMATS?.split(",");
const encodings = ENCODINGS.filter(
  (encoding) =>
    (!expected || expected.includes(encoding.format)) &&
    !(process.env.RESUME && recordedResults().some((entry) => sameEncoding(entry, encoding))),
);

function sameEncoding(a: Encoding, b: Encoding): boolean {
  return a.format === b.format && a.rounding === b.rounding && a.overflow === b.overflow;
}

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm");
});
afterAll(() => backend.dispose());

it.each(encodings)("$format $rounding $overflow: all 2^32 codes are the oracle's", async (encoding) => {
  const exhaustion = new Exhaustion(encoding);
  for (let chunk = 0; chunk < SWEEP_CHUNKS; chunk++) {
    expect(exhaustion.check(backend, chunk)).toBeUndefined();
    if (encoding.rounding !== "stochastic") continue;
    const digest = await sweepChunk(backend, chunk, { ...encoding, random: SWEEP_RANDOM });
    expect(digest).toEqual(committedDigest(encoding, chunk));
  }
  record({ ...encoding, inputs: SWEEP_CHUNKS * CHUNK });
});

interface Result extends Encoding {
  readonly inputs: number;
}

function recordedResults(): Result[] {
  return existsSync(RESULTS) ? (JSON.parse(readFileSync(RESULTS, "utf8")) as Result[]) : [];
}

/** Adds a result to the results of earlier runs. */
function record(result: Result): void {
  const otherResults = recordedResults().filter((otherResult) => !sameEncoding(otherResult, result));
  const orderedResults = ENCODINGS.flatMap((encoding) =>
    [...otherResults, result].filter((candidate) => sameEncoding(candidate, encoding)),
  );
  writeFileSync(RESULTS, `[\n${orderedResults.map((record) => JSON.stringify(record)).join(",\n")}\n]\n`);
}
