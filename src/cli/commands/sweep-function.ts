/** The part of `lockstep sweep` that computes an instruction of the special-function unit. */
import { setImmediate } from "node:timers/promises";
import type { Backend } from "../../backends/backend.js";
import { ArgumentError } from "../../errors.js";
import { SPECIAL_FUNCTIONS, type SpecialFunctionName } from "../../formats/special-functions.js";
import { fromBytes } from "../../ops/create.js";
import { specialFunction } from "../../ops/elementwise/special-function.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Session } from "../session.js";

const CHUNK = 2 ** 24;
/** Results of one call, so that a chunk needs little memory. */
const PART = 2 ** 20;

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
  const { dtype } = SPECIAL_FUNCTIONS[name];
  const [end, patterns] = dtype === "f32" ? [last, CHUNK] : [0, 2 ** 16];
  if (first > end) throw new ArgumentError(`--chunks: ${name} has one chunk, 0; ${first} was given`);
  const backend = await session.backend();
  const progress = session.progress((end - first + 1) * patterns, "results");
  const counts: Counts = { nan: 0, infinite: 0, zero: 0, subnormal: 0, normal: 0 };
  const chunks: ChunkRow[] = [];
  try {
    for (let chunk = first; chunk <= end; chunk++) {
      const sums: [number, number] = [0, 0];
      for (let part = 0; part < patterns; part += PART) {
        const begin = chunk * CHUNK + part;
        const count = Math.min(PART, patterns);
        const results = await resultsOf(backend, name, begin, count);
        digest(results, begin, sums);
        countKinds(results, LIMITS[dtype], counts);
        progress.add(count);
        await setImmediate();
      }
      chunks.push([chunk, ...sums]);
    }
  } finally {
    progress.finish();
  }
  session.result({ function: name, chunks, counts }, [
    ...chunks.map((row) => row.join(" ")),
    KINDS.map((kind) => `${kind} ${counts[kind]}`).join(", "),
  ]);
}

/** The bits of the results of `count` bit patterns from `begin` on. */
async function resultsOf(
  backend: Backend,
  name: SpecialFunctionName,
  begin: number,
  count: number,
): Promise<Uint32Array | Uint16Array> {
  const { dtype } = SPECIAL_FUNCTIONS[name];
  const patterns = dtype === "f32" ? new Uint32Array(count) : new Uint16Array(count);
  for (let i = 0; i < count; i++) patterns[i] = begin + i;
  using scope = new Scope();
  const x = fromBytes(backend, new Uint8Array(patterns.buffer), [count], dtype);
  const out = scope.keep(specialFunction(x, { function: name }));
  const data = await out.data();
  out.dispose();
  return dtype === "f32"
    ? new Uint32Array(data.buffer, data.byteOffset, data.length)
    : new Uint16Array(data.buffer, data.byteOffset, data.length);
}

/** Adds results to the two digests of their chunk; docs/cli.md has the formula. */
function digest(results: Uint32Array | Uint16Array, begin: number, sums: [number, number]): void {
  let [first, second] = sums;
  for (let i = 0; i < results.length; i++) {
    const pattern = begin + i;
    const folded = pattern ^ (pattern >>> 16);
    const low = Math.imul(folded, 0x7feb352d);
    const high = Math.imul(folded, 0x846ca68b);
    const code = (results[i] as number) + 1;
    first = (first + Math.imul(code, (low ^ (low >>> 15)) | 1)) | 0;
    second = (second + Math.imul(code, (high ^ (high >>> 15)) | 1)) | 0;
  }
  sums[0] = first >>> 0;
  sums[1] = second >>> 0;
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
