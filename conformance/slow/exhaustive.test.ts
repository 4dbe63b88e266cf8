// All 2^32 f32 inputs through every format, rounding and overflow policy: the reference's codes are the oracle's,
// its digests the committed ones, and where CUDA's own conversions were swept, theirs. About an hour on two
// cores. The counts go to conformance/vectors/exhaustive.json, which docs/conformance.md summarises.
//
// FORMATS=e4m3,bf16 restricts it to some formats.
import { readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Backend, openBackend, SWEEP_CHUNKS, sweepChunk } from "../../src/index.js";
import { committedDigest, ENCODINGS, SWEEP_RANDOM } from "../harness/digests.js";
import { CHUNK, type Encoding, Exhaustion } from "../harness/exhaustive.js";

interface CudaRun extends Encoding {
  readonly chunks: readonly (readonly [chunk: number, first: number, second: number])[];
}

const RESULTS = new URL("../vectors/exhaustive.json", import.meta.url);
const wanted = process.env.FORMATS?.split(",");
const encodings = ENCODINGS.filter(({ format }) => !wanted || wanted.includes(format));

const sameEncoding = (a: Encoding, b: Encoding): boolean =>
  a.format === b.format && a.rounding === b.rounding && a.overflow === b.overflow;

const cuda = ["cuda-digests.json", "cuda-digests-directed.json"].flatMap((name) => {
  const text = readFileSync(new URL(`../vectors/${name}`, import.meta.url), "utf8");
  return (JSON.parse(text) as { runs: CudaRun[] }).runs;
});

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm");
});
afterAll(() => backend.dispose());

it.each(encodings)("$format $rounding $overflow: all 2^32 codes are the oracle's", async (encoding) => {
  const exhaustion = new Exhaustion(encoding);
  const theirs = cuda.find((run) => sameEncoding(run, encoding));
  for (let chunk = 0; chunk < SWEEP_CHUNKS; chunk++) {
    expect(exhaustion.check(backend, chunk)).toBeUndefined();
    const digest = await sweepChunk(backend, chunk, { ...encoding, random: SWEEP_RANDOM });
    expect(digest).toEqual(committedDigest(encoding, chunk));
    if (theirs) expect(digest).toEqual(theirs.chunks[chunk]?.slice(1));
  }
  record({ ...encoding, inputs: SWEEP_CHUNKS * CHUNK, cuda: theirs !== undefined });
});

interface Result extends Encoding {
  readonly inputs: number;
  /** Whether CUDA's digests of the same encoding were compared as well. */
  readonly cuda: boolean;
}

/** Adds a result to those of earlier runs. */
function record(result: Result): void {
  let results: Result[] = [];
  try {
    results = JSON.parse(readFileSync(RESULTS, "utf8")) as Result[];
  } catch {
    // the first result
  }
  const kept = results.filter((each) => !sameEncoding(each, result));
  const ordered = ENCODINGS.flatMap((encoding) =>
    [...kept, result].filter((each) => sameEncoding(each, encoding)),
  );
  writeFileSync(RESULTS, `[\n${ordered.map((each) => JSON.stringify(each)).join(",\n")}\n]\n`);
}
