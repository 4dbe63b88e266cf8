// Some chunks of the exhaustive sweep, chosen around the limits of each format. conformance/tests/slow runs all chunks.

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runOn } from "../../../src/backends/run.js";
import {
  ArgumentError,
  type Backend,
  factsOf,
  type OpArgs,
  type OpName,
  openBackend,
  SWEEP_CHUNKS,
  sweepChunk,
} from "../../../src/index.js";
import { committedDigest, ENCODINGS, SWEEP_RANDOM } from "../harness/digests.js";
import { sampleCases } from "../harness/draws.js";
import { type Encoding, Exhaustion } from "../harness/exhaustive.js";

interface CudaRun extends Encoding {
  readonly chunks: readonly (readonly [chunk: number, first: number, second: number])[];
}

/** The chunk that contains a positive value. */
function chunkOf(value: number): number {
  return (new Uint32Array(Float32Array.of(value).buffer)[0] as number) >>> 24;
}

/** The chunks of the smallest and the largest value, the chunks of their negatives, and one chunk that depends on `index`. */
function edgeChunks({ format }: Encoding, index: number): number[] {
  const { max, minPositive } = factsOf(format);
  const edges = [chunkOf(minPositive), chunkOf(max)];
  return [...new Set([...edges, (edges[index % 2] as number) | 128, (index * 37) % SWEEP_CHUNKS])];
}

describe("the committed digests", () => {
  for (const name of ["cuda-digests.json", "cuda-digests-directed.json"]) {
    const text = readFileSync(new URL(`../../vectors/${name}`, import.meta.url), "utf8");
    const { runs } = JSON.parse(text) as { runs: CudaRun[] };
    it.each(runs)(
      "of $format $rounding $overflow equal the digests of CUDA's own conversion, all 256",
      (run) => {
        expect(run.chunks).toHaveLength(SWEEP_CHUNKS);
        for (const [chunk, ...pair] of run.chunks) expect(committedDigest(run, chunk)).toEqual(pair);
      },
    );
  }
});

describe("encode over all inputs of a chunk", () => {
  let backend: Backend;
  beforeAll(async () => {
    backend = await openBackend("wasm", { threads: 2 });
  });
  afterAll(async () => {
    expect(backend.memoryUse().live).toBe(0);
    await backend.dispose();
  });

  it.each(sampleCases(ENCODINGS.map((encoding, index) => ({ ...encoding, index }))))(
    "$format $rounding $overflow has the committed digest",
    async ({ index, ...encoding }) => {
      for (const chunk of edgeChunks(encoding, index)) {
        const digest = await sweepChunk(backend, chunk, { ...encoding, random: SWEEP_RANDOM });
        expect(digest, `chunk ${chunk}`).toEqual(committedDigest(encoding, chunk));
      }
    },
  );

  it("refuses a chunk number outside 0 to 255", async () => {
    const options = { format: "e4m3", rounding: "tiesToEven", overflow: "saturate" } as const;
    for (const chunk of [-1, SWEEP_CHUNKS, SWEEP_CHUNKS + 1, 1.5, Number.NaN])
      await expect(sweepChunk(backend, chunk, options), String(chunk)).rejects.toThrow(ArgumentError);
  });

  it("frees the memory that it allocates, also outside of a scope", async () => {
    const { live, blocks } = backend.memoryUse();
    await sweepChunk(backend, 0, { format: "e4m3", rounding: "tiesToEven", overflow: "saturate" });
    expect(backend.memoryUse()).toMatchObject({ live, blocks });
  });

  it.each(sampleCases(ENCODINGS.filter((_, i) => i % 5 === 0)))(
    "$format $rounding $overflow has the oracle's codes at its largest value",
    (encoding) => {
      const exhaustion = new Exhaustion(encoding);
      expect(exhaustion.check(backend, chunkOf(factsOf(encoding.format).max))).toBeUndefined();
    },
  );

  it("a backend that rounds ties away is caught at the first tie it breaks", () => {
    const brokenBackend: Backend = Object.create(backend, {
      run: {
        value: (op: OpName, args: OpArgs[OpName]) =>
          runOn(
            backend,
            op,
            op === "encode" ? { ...(args as OpArgs["encode"]), rounding: "tiesToAway" } : args,
          ),
      },
    });
    const exhaustion = new Exhaustion({ format: "e4m3", rounding: "tiesToEven", overflow: "saturate" });
    // 0.5 + 2^-5 lies halfway between the codes 0x30 and 0x31
    expect(exhaustion.check(brokenBackend, 0x3f)).toEqual({
      bits: 0x3f080000,
      actual: 0x31,
      expected: [0x30],
    });
  });
});
