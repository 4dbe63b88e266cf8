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
import { Draws, damageFiles, type Files } from "./malformed-files.js";

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

/** Files of every form: files of libraries, GGUF files, files of this library, and a model of several shards. */
async function filesOfForms(backend: Backend): Promise<readonly Files[]> {
  const formFiles: Files[] = FIXTURES.map((name) => ({ path: "", files: filesOf(join(VECTORS, name)) }));
  for (const name of readdirSync(GGUF).filter((fileName) => fileName.endsWith(".gguf")))
    formFiles.push({ path: name, files: new Map([[name, readFileSync(join(GGUF, name))]]) });
  await inFolder(async (folder) => {
    for (const target of ["lockstep-mxfp8", "lockstep-nvfp4"]) {
      await convertTo(backend, join(VECTORS, "original"), join(folder, target), target);
      formFiles.push({ path: "", files: filesOf(join(folder, target)) });
    }
  });
  const nvfp4 = filesOf(join(VECTORS, "ct-nvfp4"));
  const wholeFile = nvfp4.get("model.safetensors") ?? new Uint8Array();
  const length = Number(new DataView(wholeFile.buffer, wholeFile.byteOffset).getBigUint64(0, true));
  const names = Object.keys(JSON.parse(new TextDecoder().decode(wholeFile.subarray(8, 8 + length))));
  const map = Object.fromEntries(
    names.filter((name) => name !== "__metadata__").map((name) => [name, "model.safetensors"]),
  );
  const index = Buffer.from(JSON.stringify({ metadata: { total_size: wholeFile.length }, weight_map: map }));
  formFiles.push({ path: "", files: new Map([...nvfp4, ["model.safetensors.index.json", index]]) });
  formFiles.push({
    path: "model.safetensors.index.json",
    files: new Map([...nvfp4, ["model.safetensors.index.json", index]]),
  });
  return formFiles;
}

const ARRAYS = ["Uint8Array", "Uint16Array", "Uint32Array", "Float32Array", "Float64Array"] as const;

/** Calls `body`, and returns the size of the largest array that it allocated, in bytes. */
async function largestArray(body: () => Promise<void>): Promise<number> {
  let largest = 0;
  const note = (count: unknown, size: number): void => {
    if (typeof count === "number" && count * size > largest) largest = count * size;
  };
  const arraysBefore = ARRAYS.map((name) => globalThis[name]);
  const { alloc, allocUnsafe } = Buffer;
  ARRAYS.forEach((name) => {
    const constructorOf = globalThis[name];
    const size = constructorOf.BYTES_PER_ELEMENT;
    const watchedArray: unknown = new Proxy(constructorOf, {
      construct(target, values: unknown[], newTarget): object {
        note(values[0], size);
        return Reflect.construct(target, values, newTarget === watchedArray ? target : newTarget);
      },
    });
    Object.assign(globalThis, { [name]: watchedArray });
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
      Object.assign(globalThis, { [name]: arraysBefore[i] });
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

async function judge(path: string, conversion?: Conversion): Promise<Outcome> {
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

/** Requires that undamaged files give no error, so that the errors of damaged files are due to their damage. */
async function requireUndamaged(formFiles: readonly Files[], folder: string): Promise<void> {
  for (const { path, files } of formFiles) {
    const inputFolder = join(folder, "in");
    mkdirSync(inputFolder, { recursive: true });
    for (const [name, bytes] of files) writeFileSync(join(inputFolder, name), bytes);
    const outcomes: Outcome[] = [];
    await largestArray(async () => void outcomes.push(await judge(join(inputFolder, path))));
    const hasDrawnCodes = [...files.keys()].some((name) => name === "gguf-codes.gguf");
    expect([[...files.keys()], outcomes]).toEqual([
      [...files.keys()],
      [hasDrawnCodes ? "findings" : "sound"],
    ]);
    rmSync(inputFolder, { recursive: true });
  }
}

/** The number of files of each outcome, and the maximum processor time of one file, in ms. */
export interface Tally {
  readonly outcomes: Readonly<Record<Outcome, number>>;
  readonly longestMs: number;
  /** The size of the largest allocated array for each byte of the files, if nothing was converted. */
  readonly largest: number;
}

/** The damaged files to try: `runs` seeds from `seed` on. One of `converted` files is converted too. */
export interface Trial {
  readonly seed: number;
  readonly runs: number;
  readonly conversionInterval: number;
}

/** Tries damaged files. Throws for the first one that breaks the law, with its seed. */
export async function tryDamaged(
  backend: Backend,
  { seed, runs, conversionInterval }: Trial,
): Promise<Tally> {
  const folder = mkdtempSync(join(MEMORY, "lockstep-malformed-"));
  try {
    const formFiles = await filesOfForms(backend);
    expect(formFiles.length).toBeGreaterThan(20);
    await requireUndamaged(formFiles, folder);
    const openBefore = openFiles();
    const outcomes: Record<Outcome, number> = { error: 0, findings: 0, sound: 0 };
    let [longestMs, mostBytesPerByte] = [0, 0];
    for (let fileSeed = seed; fileSeed < seed + runs; fileSeed++) {
      const draws = new Draws(fileSeed);
      const { path, files } = damageFiles(draws, draws.oneOf(formFiles));
      const target = draws.nextBelow(conversionInterval) === 0 ? draws.oneOf(TARGETS) : undefined;
      const conversion =
        target === undefined ? undefined : { backend, to: target, output: join(folder, "out") };
      const inputFolder = join(folder, "in");
      mkdirSync(inputFolder, { recursive: true });
      let size = 0;
      for (const [name, bytes] of files) {
        writeFileSync(join(inputFolder, name), bytes);
        size += bytes.length;
      }
      const start = process.cpuUsage();
      let largest = 0;
      try {
        largest = await largestArray(async () => {
          outcomes[await judge(join(inputFolder, path), conversion)]++;
        });
      } catch (error) {
        throw new Error(`seed ${fileSeed}, to ${target}: ${String(error)}`, { cause: error });
      }
      const { user, system } = process.cpuUsage(start);
      const spentMs = (user + system) / 1000;
      longestMs = Math.max(longestMs, spentMs);
      if (spentMs > LONGEST_MS) throw new Error(`seed ${fileSeed}, to ${target}: took ${spentMs} ms`);
      if (!conversion && size > 0)
        mostBytesPerByte = Math.max(mostBytesPerByte, (largest - MODULE_BYTES) / size);
      if (largest > FACTOR * size + MODULE_BYTES)
        throw new Error(`seed ${fileSeed}, to ${target}: asked for ${largest} bytes for files of ${size}`);
      for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true, force: true });
    }
    expect(openFiles(), "files that stay open").toBeLessThanOrEqual(openBefore + 2);
    return { outcomes, longestMs, largest: mostBytesPerByte };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Prints the outcomes of files. */
export function tell({ seed, runs }: Trial, { outcomes, longestMs, largest }: Tally): void {
  console.log(
    `${runs} files from seed ${seed} on: ${JSON.stringify(outcomes)}, the longest ${longestMs.toFixed(0)} ms, the largest array ${largest.toFixed(2)} bytes for each byte`,
  );
}
