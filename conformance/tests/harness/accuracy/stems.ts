/**
 * Compiles single stems (modules) of the reference and calls them on raw memory, for laws that the public API cannot
 * test.
 */
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { CALLS } from "#reference";
import { sourceHash } from "../../../../scripts/source-hash.mjs";
import { type Exactly, type ExportArgs, taskMemory } from "../../../../src/backends/wasm/call.js";
import type { ExportName } from "../../../../src/backends/wasm/instance.js";
import { IS_FULL } from "../full.js";

type Call = (...args: number[]) => number;

/** The arguments that a job adds to each part. */
interface Part {
  readonly scratch?: number;
  readonly begin?: number;
  readonly end?: number;
}

export interface Stems {
  /** Calls an export of the reference by named arguments, for a part of its range. */
  readonly run: <K extends ExportName, A extends ExportArgs<K>>(
    name: K,
    args: A & Exactly<A, ExportArgs<K>>,
    part: Part,
  ) => void;
  readonly call: Readonly<Record<string, Call>>;
  /** The exports without the wrapper, for functions without 64-bit integers. */
  readonly direct: Readonly<Record<string, Call>>;
  /** Copies an array to newly allocated memory, 16-byte aligned; returns its address. */
  readonly put: (array: ArrayBufferView) => number;
  /** Allocates memory and fills it with 0xAA, so that unwritten bytes are recognisable. */
  readonly allocate: (bytes: number) => number;
  readonly f32: (address: number, length: number) => Float32Array;
  readonly u16: (address: number, length: number) => Uint16Array;
  /** Rounds numbers to a wide type in newly allocated memory; returns its address. */
  readonly putWide: (type: number, values: readonly number[]) => number;
  /** The values of an array of a wide type. */
  readonly getWide: (type: number, address: number, length: number) => number[];
  /** Frees everything that `put` and `allocate` returned. */
  readonly reset: () => void;
}

const FLAGS =
  "--runtime minimal --noAssert --importMemory --sharedMemory --initialMemory 32 --maximumMemory 65536 --enable simd --enable threads";
/** Optimization takes three quarters of the time of the compiler, so that only a full run optimizes stems as the reference. */
const LEVEL = IS_FULL ? "-O3" : "-O0";

/** The stems of assembly/ that tests call. A group is one module; `operators` exports functions with names of `functions`. */
const STEMS = {
  functions: [
    "core/math",
    "core/reduce",
    "core/wide",
    "elementwise/activation",
    "elementwise/gated",
    "rows/loss",
    "rows/norm",
    "rows/softmax",
    "update/optimizer",
  ],
  operators: ["core/wide", "elementwise/operators.gen"],
  special: ["core/wide", "core/special-functions", "core/special-instructions", "elementwise/math-functions"],
} as const;

type Group = keyof typeof STEMS;

/** Returns the module of a group. It stays in build/ until a source of assembly/ or this file changes. */
async function compileGroup(group: Group): Promise<Uint8Array<ArrayBuffer>> {
  const prefix = `stems${LEVEL}-${group}-`;
  const name = `${prefix}${sourceHash([fileURLToPath(import.meta.url)]).slice(0, 16)}.wasm`;
  const cachePath = join("build", name);
  if (existsSync(cachePath)) return new Uint8Array(readFileSync(cachePath));
  const { default: asc } = await import("assemblyscript/asc");
  const source = STEMS[group].map((stem) => `export * from "./${stem}";\n`).join("");
  let binary = new Uint8Array();
  const { error, stderr } = await asc.main(
    ["assembly/stems.ts", "--outFile", "stems.wasm", LEVEL, ...FLAGS.split(" ")],
    {
      readFile: (file, directory) => {
        if (file.endsWith("stems.ts")) return source;
        const path = join(directory, file);
        return existsSync(path) ? readFileSync(path, "utf8") : null;
      },
      writeFile: (file, contents) => {
        if (file.endsWith(".wasm") && typeof contents !== "string") binary = new Uint8Array(contents);
      },
    },
  );
  if (error) throw new Error(`${stderr.toString()}${error.message}`);
  // another worker may read or write the module of the same sources at the same time
  for (const file of readdirSync("build"))
    if (file.startsWith(prefix) && !file.startsWith(name)) rmSync(join("build", file), { force: true });
  const temporary = `${cachePath}.${process.pid}`;
  writeFileSync(temporary, binary);
  renameSync(temporary, cachePath);
  return binary;
}

/** The address of the task of `run`. Memory from FREE on is allocated. */
const TASK = 1 << 19;
const HEAP = 1 << 20;

/** Opens the stems of a group with memory of their own. */
export async function openStems(group: Group = "functions"): Promise<Stems> {
  const binary = await compileGroup(group);
  const memory = new WebAssembly.Memory({ initial: 2048, maximum: 65536, shared: true });
  const module = await WebAssembly.compile(binary);
  const instance = await WebAssembly.instantiate(module, { env: { memory, abort: () => undefined } });
  const direct: Record<string, Call> = {};
  const call: Record<string, Call> = {};
  for (const [name, value] of Object.entries(instance.exports)) {
    if (typeof value !== "function") continue;
    direct[name] = value as Call;
    call[name] = (...args) => Number(value(...args));
  }
  const task = taskMemory(memory, TASK);
  let heapEnd = HEAP;
  const allocate = (bytes: number) => {
    const address = heapEnd;
    heapEnd += (bytes + 31) & ~15;
    new Uint8Array(memory.buffer, address, bytes).fill(0xaa);
    return address;
  };
  const put = (array: ArrayBufferView) => {
    const address = allocate(array.byteLength);
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    new Uint8Array(memory.buffer, address).set(bytes);
    return address;
  };
  return {
    run(name, args, { scratch = 0, begin = 0, end = 0 }) {
      CALLS[name].write(task, args);
      direct[name]!(...CALLS[name].order(task, args, scratch, begin, end).map(Number));
    },
    call,
    direct,
    allocate,
    put,
    putWide(type, values) {
      const address = allocate(4 * values.length);
      call.narrow!(put(Float32Array.from(values)), address, type, 0, values.length);
      return address;
    },
    getWide(type, address, length) {
      const values = allocate(4 * length);
      call.widen!(address, type, 0, length, values);
      return [...new Float32Array(memory.buffer, values, length)];
    },
    f32: (address, length) => new Float32Array(memory.buffer, address, length),
    u16: (address, length) => new Uint16Array(memory.buffer, address, length),
    reset: () => {
      heapEnd = HEAP;
    },
  };
}
