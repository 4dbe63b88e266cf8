/**
 * Damaged files of every form: each gives a report or a typed error, soon, and asks for no more memory than its size allows.
 * RUNS and SEED of the environment change how many files are made, and which.
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
import { afterAll, expect, it } from "vitest";
import { convert } from "../../../src/cli/checkpoints/convert/convert.js";
import { planFor } from "../../../src/cli/checkpoints/convert/plan-for.js";
import { targetNamed } from "../../../src/cli/checkpoints/convert/targets.js";
import { inspect, survey } from "../../../src/cli/checkpoints/inspect.js";
import { openCheckpoint } from "../../../src/cli/checkpoints/stored/open.js";
import { LockstepError } from "../../../src/errors.js";
import { useBackend } from "../harness/suite.js";
import { convertTo, errorsIn, FIXTURES, GGUF, inFolder, VECTORS } from "./checkpoints.js";
import { Draws, damaged, type Files } from "./malformed-files.js";

const RUNS = Number(process.env.RUNS ?? 3000);
const SEED = Number(process.env.SEED ?? 1);
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
/** One of so many files is converted too. */
const CONVERTED = 8;
const LONGEST_MS = 5000;
/** What one array may have: 8 bytes for each code of 1 bit in the files, and what readers take of any file. */
const allowed = (size: number): number => 64 * size + (4 << 20);

const MEMORY = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();
const folder = mkdtempSync(join(MEMORY, "lockstep-malformed-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const backend = useBackend({ threads: 1, datapath: "hopper" });

function filesOf(path: string): Map<string, Uint8Array> {
  return new Map(readdirSync(path).map((name) => [name, readFileSync(join(path, name))]));
}

/** Files of every form: those of libraries, GGUF, those of this library, and a model of several shards. */
async function forms(): Promise<readonly Files[]> {
  const all: Files[] = FIXTURES.map((name) => ({ path: "", files: filesOf(join(VECTORS, name)) }));
  for (const name of readdirSync(GGUF).filter((each) => each.endsWith(".gguf")))
    all.push({ path: name, files: new Map([[name, readFileSync(join(GGUF, name))]]) });
  await inFolder(async (room) => {
    for (const to of ["lockstep-mxfp8", "lockstep-nvfp4"]) {
      await convertTo(backend(), join(VECTORS, "original"), join(room, to), to);
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

/** Calls `body`, and returns the largest array that it asked for, in bytes. */
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

/** What became of a file. */
type Outcome = "error" | "findings" | "sound";

async function judged(path: string, to: string | undefined): Promise<Outcome> {
  try {
    const checkpoint = await openCheckpoint(path);
    try {
      const report = await inspect(checkpoint, await survey(checkpoint));
      JSON.stringify(report);
      if (to !== undefined) {
        const plan = await planFor(checkpoint, {
          target: targetNamed(to),
          backend: () => Promise.resolve(backend()),
        });
        await convert(checkpoint, plan, join(folder, "out"), { force: false, onBytes: () => {} });
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

it(
  `${RUNS} damaged files from seed ${SEED} on give reports or typed errors`,
  async () => {
    const all = await forms();
    expect(all.length).toBeGreaterThan(20);
    for (const { path, files } of all) {
      const place = join(folder, "in");
      mkdirSync(place, { recursive: true });
      for (const [name, bytes] of files) writeFileSync(join(place, name), bytes);
      const whole: Outcome[] = [];
      await largestArray(async () => void whole.push(await judged(join(place, path), undefined)));
      const ofDraws = [...files.keys()].some((name) => name === "gguf-codes.gguf");
      expect([[...files.keys()], whole]).toEqual([[...files.keys()], [ofDraws ? "findings" : "sound"]]);
      rmSync(place, { recursive: true });
    }
    const opened = openFiles();
    const outcomes: Record<Outcome, number> = { error: 0, findings: 0, sound: 0 };
    let worst = 0;
    for (let seed = SEED; seed < SEED + RUNS; seed++) {
      const draws = new Draws(seed);
      const { path, files } = damaged(draws, draws.of(all));
      const to = draws.below(CONVERTED) === 0 ? draws.of(TARGETS) : undefined;
      const place = join(folder, "in");
      mkdirSync(place, { recursive: true });
      let size = 0;
      for (const [name, bytes] of files) {
        writeFileSync(join(place, name), bytes);
        size += bytes.length;
      }
      const start = performance.now();
      let largest = 0;
      try {
        largest = await largestArray(async () => {
          outcomes[await judged(join(place, path), to)]++;
        });
      } catch (error) {
        throw new Error(`seed ${seed}, to ${to}: ${String(error)}`, { cause: error });
      }
      const spent = performance.now() - start;
      worst = Math.max(worst, spent);
      if (spent > LONGEST_MS) throw new Error(`seed ${seed}, to ${to}: took ${spent} ms`);
      if (largest > allowed(size))
        throw new Error(`seed ${seed}, to ${to}: asked for ${largest} bytes for files of ${size}`);
      for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true, force: true });
    }
    console.log(
      `${RUNS} files from seed ${SEED} on: ${JSON.stringify(outcomes)}, the longest ${worst.toFixed(0)} ms`,
    );
    expect(openFiles(), "files that stay open").toBeLessThanOrEqual(opened + 2);
    if (RUNS >= 1000) {
      expect(outcomes.error).toBeGreaterThan(RUNS / 10);
      expect(outcomes.findings).toBeGreaterThan(RUNS / 50);
      expect(outcomes.sound).toBeGreaterThan(RUNS / 100);
    }
  },
  600_000 + RUNS * 20,
);
