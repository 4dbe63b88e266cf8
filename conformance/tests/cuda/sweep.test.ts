/**
 * A GPU gives the committed digests of all 2^32 inputs for every format, rounding and overflow policy, and for every special
 * function.
 */
import { expect, it } from "vitest";
import { chunksOf, digestFunctionChunk } from "../../../src/cli/commands/function-digests.js";
import { sweepChunk } from "../../../src/ops/cast/sweep.js";
import { committedDigest, committedFunctionDigest, ENCODINGS, SWEEP_RANDOM } from "../harness/digests.js";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";
import { record } from "../harness/gpu/record.js";
import { UNARY_FUNCTION_NAMES } from "../harness/special-functions.js";

/** The number of chunks of 2^24 inputs per encoding: all with CHUNKS=256, else a few of each sign. */
const CHUNKS = Number(process.env.CHUNKS ?? 4);
const STEP = 256 / CHUNKS;

describeOnGpu("all f32 inputs on a GPU", () => {
  const { gpu } = useGpu();
  it.each(ENCODINGS)("$format $rounding $overflow", async (encoding) => {
    for (let i = 0; i < CHUNKS; i++) {
      const chunk = Math.floor(i * STEP + STEP / 2);
      const digest = await sweepChunk(gpu(), chunk, { ...encoding, random: SWEEP_RANDOM });
      expect(digest, `chunk ${chunk}`).toEqual(committedDigest(encoding, chunk));
    }
    const { format, rounding, overflow } = encoding;
    record(gpu(), { group: "sweep", name: `${format} ${rounding} ${overflow}`, runs: CHUNKS * 2 ** 24 });
  });

  it.each(UNARY_FUNCTION_NAMES)("%s", async (name) => {
    const { chunks, patterns } = chunksOf(name);
    const count = Math.min(CHUNKS, chunks);
    for (let i = 0; i < count; i++) {
      const chunk = Math.floor((i + 0.5) * (chunks / count));
      const digest = await digestFunctionChunk(gpu(), name, chunk);
      expect(digest, `chunk ${chunk}`).toEqual(committedFunctionDigest(name, chunk));
    }
    record(gpu(), { group: "sweep", name, runs: count * patterns });
  });
});
