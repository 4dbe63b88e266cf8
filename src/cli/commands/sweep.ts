/** `lockstep sweep`: encodes all f32 bit patterns, or computes a special function of them, and prints digests of the results. */
import { setImmediate } from "node:timers/promises";
import { ArgumentError } from "../../errors.js";
import { SWEEP_CHUNKS, sweepChunk } from "../../ops/cast/sweep.js";
import { defineCommand } from "../command.js";
import { type Values, value } from "../options.js";
import type { Session } from "../session.js";
import { ENCODING, FORMAT, RANDOM, SPECIAL_FUNCTION } from "../shared-options.js";
import { sweepFunction } from "./sweep-function.js";

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

const CODES = { format: { ...FORMAT, required: false }, ...ENCODING, ...RANDOM } as const;

const OPTIONS = {
  ...CODES,
  function: SPECIAL_FUNCTION,
  chunks: value<ChunkRange>({
    placeholder: "A-B",
    help: "first and last chunk, from 0 to 255; or a single chunk",
    parse: chunkRange,
    fallback: { first: 0, last: SWEEP_CHUNKS - 1 },
    shown: "0-255",
  }),
} as const;

export const sweep = defineCommand({
  name: "sweep",
  summary:
    "encodes all 2^32 f32 bit patterns, or some chunks of 2^24 patterns, and prints two digests of the codes of each chunk",
  details: [
    "A digest is the sum modulo 2^32, over the chunk's bit patterns i, of (code(i) + 1) * (mix(i, k) | 1) with mix(x, k) = { x ^= x >>> 16; x *= k; x ^= x >>> 15 }, where k is 0x7feb352d for the first digest and 0x846ca68b for the second. In 16-bit formats a NaN input counts as code 0xFFFF. For stochastic rounding, the bit pattern is the element index.",
    "With --function in place of --format, the codes are the bits of the results of an instruction of the special-function unit or of a math function of CUDA (docs/special-functions.md), and the numbers of results that are NaN, infinite, zero and subnormal follow. A function of 16 bits has one chunk, of its 2^16 bit patterns.",
  ],
  example: "--format e4m3 --chunks 0",
  inputs: [],
  options: OPTIONS,
  async run({ session, values, usedOptions }) {
    if (usedOptions.has("format") === usedOptions.has("function"))
      throw new ArgumentError(
        usedOptions.has("format")
          ? "--format and --function exclude each other; give one"
          : "--format F is needed, or --function NAME",
      );
    if (values.function === undefined) await sweepCodes(session, values);
    else {
      const codeOption = Object.keys(CODES).find((option) => usedOptions.has(option));
      if (codeOption !== undefined)
        throw new ArgumentError(`--${codeOption} is no option of sweep --function`);
      await sweepFunction(session, { function: values.function, ...values.chunks });
    }
    return 0;
  },
});

async function sweepCodes(session: Session, values: Values<typeof OPTIONS>): Promise<void> {
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
}
