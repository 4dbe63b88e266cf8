/** `lockstep sweep`: encodes all f32 bit patterns and prints digests of the codes. */
import { setImmediate } from "node:timers/promises";
import { ArgumentError } from "../../errors.js";
import { SWEEP_CHUNKS, sweepChunk } from "../../ops/cast/sweep.js";
import { defineCommand } from "../command.js";
import { value } from "../options.js";
import { ENCODING, FORMAT, RANDOM } from "../shared-options.js";

interface ChunkRange {
  readonly first: number;
  readonly last: number;
}

function chunkRange(text: string): ChunkRange {
  const [, from = "", to = from] = /^(\d{1,3})(?:-(\d{1,3}))?$/.exec(text) ?? [];
  const range = { first: Number(from), last: Number(to) };
  if (from !== "" && range.first <= range.last && range.last < SWEEP_CHUNKS) return range;
  throw new ArgumentError(`"${text}" is not A-B with 0 <= A <= B <= ${SWEEP_CHUNKS - 1}`);
}

export const sweep = defineCommand({
  name: "sweep",
  summary:
    "encodes all 2^32 f32 bit patterns, or some chunks of 2^24 patterns, and prints two digests of the codes of each chunk",
  details: [
    "A digest is the sum modulo 2^32, over the chunk's bit patterns i, of (code(i) + 1) * (mix(i, k) | 1) with mix(x, k) = { x ^= x >>> 16; x *= k; x ^= x >>> 15 }, where k is 0x7feb352d for the first digest and 0x846ca68b for the second. In 16-bit formats a NaN input counts as code 0xFFFF. For stochastic rounding, the bit pattern is the element index.",
  ],
  example: "--format e4m3 --chunks 0",
  inputs: [],
  options: {
    format: FORMAT,
    ...ENCODING,
    ...RANDOM,
    chunks: value<ChunkRange>({
      placeholder: "A-B",
      help: "first and last chunk, from 0 to 255; or a single chunk",
      parse: chunkRange,
      fallback: { first: 0, last: SWEEP_CHUNKS - 1 },
      shown: "0-255",
    }),
  },
  async run({ session, values }) {
    const { format, rounding, overflow, seed, offset } = values;
    const { first, last } = values.chunks;
    const backend = await session.backend();
    const progress = session.progress((last - first + 1) * 2 ** 24, "codes");
    const chunks: [chunk: number, first: number, second: number][] = [];
    try {
      for (let chunk = first; chunk <= last; chunk++) {
        chunks.push([
          chunk,
          ...(await sweepChunk(backend, chunk, { format, rounding, overflow, random: { seed, offset } })),
        ]);
        progress.add(2 ** 24);
        await setImmediate();
      }
    } finally {
      progress.finish();
    }
    const stochastic = rounding === "stochastic" ? { seed, offset } : {};
    session.result(
      { format, rounding, overflow, ...stochastic, chunks },
      chunks.map((row) => row.join(" ")),
    );
    return 0;
  },
});
