/**
 * Damaged files of every form: each gives a report or a typed error within a short time, and allocates no more memory than its
 * size allows.
 */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { planConversion } from "../../../../src/checkpoints/convert/plan/plan.js";
import { parseTarget } from "../../../../src/checkpoints/convert/targets/named.js";
import { writeConversion } from "../../../../src/checkpoints/convert/write.js";
import { inspectFiles } from "../../../../src/checkpoints/inspect.js";
import { openCheckpointFiles } from "../../../../src/checkpoints/stored/open.js";
import { surveyFiles } from "../../../../src/checkpoints/survey.js";
import { LockstepError } from "../../../../src/errors.js";
import { convertTo, errorsIn, FIXTURES, GGUF, inFolder, VECTORS } from "./checkpoints.js";
import { Draws, damaged, type Files } from "./malformed-files.js";

const TARGETS = [
  "bf16",
  "f32",
  "ct-nvfp4",
  "gguf-mxfp4",
  "gguf-nvfp4",
  "lockstep-mxfp8",
  "torchao-mxfp8-rceil",
  "ct-int8-channel",
  "modelopt-fp8-block",
  "fbgemm-fp8",
];
const LONGEST_MS = 5000;
/** The maximum length of an array for each byte of the files, for values of packed codes. */
const FACTOR = 16;
/** The memory that a conversion needs for any files: the module of the reference. */
const MODULE_BYTES = 1 << 17;
const MEMORY = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

function filesOf(path: string): Map<string, Uint8Array> {
  return new Map(readdirSync(path).map((name) => [name, readFileSync(join(path, name))]));
}

/** Files of every form: those of libraries, GGUF, those of this library, and a model of several shards. */
async function forms(backend: Backend): Promise<readonly Files[]> {
  const all: Files[] = FIXTURES.map((name) => ({ path: "", files: filesOf(join(VECTORS, name)) }));
  for (const name of readdirSync(GGUF).filter((each) => each.endsWith(".gguf")))
    all.push({ path: name, files: new Map([[name, readFileSync(join(GGUF, name))]]) });
  await inFolder(async (room) => {
    for (const to of ["lockstep-mxfp8", "lockstep-nvfp4"]) {
      await convertTo(backend, join(VECTORS, "original"), join(room, to), to);
      all.push({ path: "", files: filesOf(join(room, to)) });
    }
  });
  const nvfp4 = filesOf(join(VECTORS, "ct-nvfp4"));
  const whole = nvfp4.get("model.safetensors") ?? new Uint8Array();
  const length = Number(new DataView(whole.buffer, whole.byteOffset).getBigUint64(0, true));
  const names = Object.keys(JSON.parse(new TextDecoder().decode(whole.subarray(8, 8 + length))));
  const map = Object.fromEntries(
    names.filter((name) => name !== "__metadata__").map((name) => [name, "model.safetensors"]),
  );
  const index = Buffer.from(JSON.stringify({ metadata: { total_size: whole.length }, weight_map: map }));
  all.push({ path: "", files: new Map([...nvfp4, ["model.safetensors.index.json", index]]) });
  all.push({
    path: "model.safetensors.index.json",
    files: new Map([...nvfp4, ["model.safetensors.index.json", index]]),
  });
  return all;
}

const ARRAYS = ["Uint8Array", "Uint16Array", "Uint32Array", "Float32Array", "Float64Array"] as const;

/** Calls `body`, and returns the size of the largest array that it allocated, in bytes. */
async function largestArray(body: () => Promise<void>): Promise<number> {
  let largest = 0;
  const note = (count: unknown, size: number): void => {
    if (typeof count === "number" && count * size > largest) largest = count * size;
  };
  const before = ARRAYS.map((name) => globalThis[name]);
  const { alloc, allocUnsafe } = Buffer;
  ARRAYS.forEach((name) => {
    const own = globalThis[name];
    const size = own.BYTES_PER_ELEMENT;
    const watched: unknown = new Proxy(own, {
      construct(target, values: unknown[], as): object {
        note(values[0], size);
        return Reflect.construct(target, values, as === watched ? target : as);
      },
    });
    Object.assign(globalThis, { [name]: watched });
  });
  Buffer.alloc = (count) => {
    note(count, 1);
    return alloc(count);
  };
  Buffer.allocUnsafe = (count) => {
    note(count, 1);
    return allocUnsafe(count);
  };
  try {
    await body();
  } finally {
    ARRAYS.forEach((name, i) => {
      Object.assign(globalThis, { [name]: before[i] });
    });
    Object.assign(Buffer, { alloc, allocUnsafe });
  }
  return largest;
}

/** The number of files that this process has open; 0 where the system does not say. */
function openFiles(): number {
  return existsSync("/proc/self/fd") ? readdirSync("/proc/self/fd").length : 0;
}

/** The outcome for a file. */
type Outcome = "error" | "findings" | "sound";

interface Conversion {
  readonly backend: Backend;
  readonly to: string;
  readonly output: string;
}

async function judged(path: string, conversion?: Conversion): Promise<Outcome> {
  try {
    const checkpoint = await openCheckpointFiles(path);
    try {
      const report = await inspectFiles(checkpoint, await surveyFiles(checkpoint));
      JSON.stringify(report);
      if (conversion) {
        const { backend, to, output } = conversion;
        const plan = await planConversion(checkpoint, {
          target: parseTarget(to),
          backend: () => Promise.resolve(backend),
        });
        await writeConversion(checkpoint, plan, output);
      }
      return errorsIn(report.findings).length > 0 ? "findings" : "sound";
    } finally {
      await checkpoint.close();
    }
  } catch (error) {
    if (error instanceof LockstepError) return "error";
    throw error;
  }
}

/** Undamaged files give no error, so that errors of the others are due to their damage. */
async function requireWhole(all: readonly Files[], folder: string): Promise<void> {
  for (const { path, files } of all) {
    const place = join(folder, "in");
    mkdirSync(place, { recursive: true });
    for (const [name, bytes] of files) writeFileSync(join(place, name), bytes);
    const whole: Outcome[] = [];
    await largestArray(async () => void whole.push(await judged(join(place, path))));
    const ofDraws = [...files.keys()].some((name) => name === "gguf-codes.gguf");
    expect([[...files.keys()], whole]).toEqual([[...files.keys()], [ofDraws ? "findings" : "sound"]]);
    rmSync(place, { recursive: true });
  }
}

/** The number of files of each outcome, and the maximum processor time of one file, in ms. */
export interface Tally {
  readonly outcomes: Readonly<Record<Outcome, number>>;
  readonly worst: number;
  /** The size of the largest allocated array for each byte of the files, if nothing was converted. */
  readonly largest: number;
}

/** The damaged files to try: `runs` seeds from `seed` on. One of `converted` files is converted too. */
export interface Trial {
  readonly seed: number;
  readonly runs: number;
  readonly converted: number;
}

/** Tries damaged files. Throws for the first one that breaks the law, with its seed. */
export async function tryDamaged(backend: Backend, { seed, runs, converted }: Trial): Promise<Tally> {
  const folder = mkdtempSync(join(MEMORY, "lockstep-malformed-"));
  try {
    const all = await forms(backend);
    expect(all.length).toBeGreaterThan(20);
    await requireWhole(all, folder);
    const opened = openFiles();
    const outcomes: Record<Outcome, number> = { error: 0, findings: 0, sound: 0 };
    let [worst, most] = [0, 0];
    for (let each = seed; each < seed + runs; each++) {
      const draws = new Draws(each);
      const { path, files } = damaged(draws, draws.of(all));
      const to = draws.below(converted) === 0 ? draws.of(TARGETS) : undefined;
      const conversion = to === undefined ? undefined : { backend, to, output: join(folder, "out") };
      const place = join(folder, "in");
      mkdirSync(place, { recursive: true });
      let size = 0;
      for (const [name, bytes] of files) {
        writeFileSync(join(place, name), bytes);
        size += bytes.length;
      }
      const start = process.cpuUsage();
      let largest = 0;
      try {
        largest = await largestArray(async () => {
          outcomes[await judged(join(place, path), conversion)]++;
        });
      } catch (error) {
        throw new Error(`seed ${each}, to ${to}: ${String(error)}`, { cause: error });
      }
      const { user, system } = process.cpuUsage(start);
      const spent = (user + system) / 1000;
      worst = Math.max(worst, spent);
      if (spent > LONGEST_MS) throw new Error(`seed ${each}, to ${to}: took ${spent} ms`);
      if (!conversion && size > 0) most = Math.max(most, (largest - MODULE_BYTES) / size);
      if (largest > FACTOR * size + MODULE_BYTES)
        throw new Error(`seed ${each}, to ${to}: asked for ${largest} bytes for files of ${size}`);
      for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true, force: true });
    }
    expect(openFiles(), "files that stay open").toBeLessThanOrEqual(opened + 2);
    return { outcomes, worst, largest: most };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Prints the outcomes of files. */
export function tell({ seed, runs }: Trial, { outcomes, worst, largest }: Tally): void {
  console.log(
    `${runs} files from seed ${seed} on: ${JSON.stringify(outcomes)}, the longest ${worst.toFixed(0)} ms, the largest array ${largest.toFixed(2)} bytes for each byte`,
  );
}
