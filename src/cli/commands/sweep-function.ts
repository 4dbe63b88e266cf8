/** The part of `lockstep sweep` for an instruction of the special-function unit, or a math function of CUDA. */
import { setImmediate } from "node:timers/promises";
import { ArgumentError } from "../../errors.js";
import {
  hasTwoArguments,
  SPECIAL_FUNCTIONS,
  type SpecialFunctionName,
} from "../../formats/special-functions.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Session } from "../session.js";
import { chunksOf, digestFunctionChunk } from "./function-digests.js";

/** The bits of infinity and of the least normal number of each dtype, without a sign. */
const LIMITS = {
  f32: { infinity: 0x7f800000, minNormal: 0x800000 },
  bf16: { infinity: 0x7f80, minNormal: 0x80 },
  f16: { infinity: 0x7c00, minNormal: 0x400 },
} as const satisfies Readonly<Record<WideDType, object>>;

const KINDS = ["nan", "infinite", "zero", "subnormal", "normal"] as const;
type Counts = Record<(typeof KINDS)[number], number>;

type ChunkRow = [chunk: number, first: number, second: number];

/** Digests all results of chunks `first` to `last` of a function, and counts their kinds. */
export async function sweepFunction(
  session: Session,
  { function: name, first, last }: { function: SpecialFunctionName; first: number; last: number },
): Promise<void> {
  if (hasTwoArguments(name))
    throw new ArgumentError(`--function: ${name} has two arguments; a sweep takes functions of one`);
  const { chunks: chunkCount, patterns } = chunksOf(name);
  const end = Math.min(last, chunkCount - 1);
  if (first > end) throw new ArgumentError(`--chunks: ${name} has one chunk, 0; ${first} was given`);
  const backend = await session.backend();
  const progress = session.progress((end - first + 1) * patterns, "results");
  const counts: Counts = { nan: 0, infinite: 0, zero: 0, subnormal: 0, normal: 0 };
  const limits = LIMITS[SPECIAL_FUNCTIONS[name].dtype];
  const chunks: ChunkRow[] = [];
  try {
    for (let chunk = first; chunk <= end; chunk++) {
      const digests = await digestFunctionChunk(backend, name, chunk, (results) => {
        countKinds(results, limits, counts);
        progress.add(results.length);
        return setImmediate();
      });
      chunks.push([chunk, ...digests]);
    }
  } finally {
    progress.finish();
  }
  session.result({ function: name, chunks, counts }, [
    ...chunks.map((row) => row.join(" ")),
    KINDS.map((kind) => `${kind} ${counts[kind]}`).join(", "),
  ]);
}

function countKinds(
  results: Uint32Array | Uint16Array,
  { infinity, minNormal }: { infinity: number; minNormal: number },
  counts: Counts,
): void {
  const mask = infinity > 0xffff ? 0x7fffffff : 0x7fff;
  for (const bits of results) {
    const magnitude = bits & mask;
    if (magnitude > infinity) counts.nan++;
    else if (magnitude === infinity) counts.infinite++;
    else if (magnitude === 0) counts.zero++;
    else if (magnitude < minNormal) counts.subnormal++;
    else counts.normal++;
  }
}
