/** Writing safetensors files: to a temporary name first, so that a failed run leaves nothing. */
import { rmSync } from "node:fs";
import { type FileHandle, open, realpath, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { FileError } from "../errors.js";
import { buildHeader, type Metadata, type TensorEntry, type TensorPlan } from "./header.js";
import { fileError, LARGEST_TRANSFER } from "./safetensors.js";

/** What is to be written. */
export interface FilePlan {
  readonly tensors: readonly TensorPlan[];
  readonly metadata?: Metadata;
}

/** Puts `bytes` at byte `at` of a planned tensor. In any order. */
export type PutTensor = (name: string, bytes: Uint8Array, at?: number) => Promise<void>;

const temporaries = new Set<string>();
let created = 0;
let watcher: (unfinished: boolean) => void = () => {};

/** Calls `listener` when the first unfinished file appears and when the last is gone: to handle signals between. */
export function watchTemporaries(listener: (unfinished: boolean) => void): void {
  watcher = listener;
}

/** Removes unfinished files at once: for signal handlers. */
export function removeTemporaries(): void {
  for (const path of temporaries) rmSync(path, { force: true });
  temporaries.clear();
}

/**
 * Writes a safetensors file: `body` puts every byte of every planned tensor. The file appears under `path`
 * when all is written, and not at all where `body` throws or leaves bytes out.
 */
export async function writeSafetensors(
  path: string,
  plan: FilePlan,
  body: (put: PutTensor) => Promise<void>,
): Promise<void> {
  const header = buildHeader(path, plan.tensors, plan.metadata ?? {});
  const target = await targetOf(path);
  const temporary = join(dirname(target), `.lockstep-${process.pid}-${created++}.tmp`);
  const handle = await open(temporary, "wx").catch((cause: unknown) => {
    throw fileError(path, "cannot be written", cause);
  });
  if (temporaries.add(temporary).size === 1) watcher(true);
  try {
    try {
      const writer = new Writer(path, handle, header.tensors, header.bytes.length);
      await writeAt(path, handle, header.bytes, 0);
      await body((name, bytes, at = 0) => writer.put(name, bytes, at));
      writer.requireComplete();
    } finally {
      await handle.close();
    }
    await rename(temporary, target).catch((cause: unknown) => {
      throw fileError(path, "cannot be written", cause);
    });
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  } finally {
    temporaries.delete(temporary);
    if (temporaries.size === 0) watcher(false);
  }
}

/** Where `path` leads; throws where something other than a file is there, a device for one. */
async function targetOf(path: string): Promise<string> {
  const target = await realpath(path).catch(() => path);
  const there = await stat(target).catch(() => undefined);
  if (there && !there.isFile())
    throw new FileError(`${path}: cannot be written: something other than a file is there`);
  return target;
}

class Writer {
  readonly #missing: Map<string, number>;

  constructor(
    private readonly path: string,
    private readonly handle: FileHandle,
    private readonly tensors: ReadonlyMap<string, TensorEntry>,
    private readonly dataStart: number,
  ) {
    this.#missing = new Map([...tensors.values()].map(({ name, begin, end }) => [name, end - begin]));
  }

  async put(name: string, bytes: Uint8Array, at: number): Promise<void> {
    const entry = this.tensors.get(name);
    if (!entry) throw new FileError(`${this.path}: tensor "${name}" was not planned`);
    const missing = (this.#missing.get(name) ?? 0) - bytes.length;
    if (missing < 0 || entry.begin + at + bytes.length > entry.end) {
      throw new FileError(
        `${this.path}: tensor "${name}": more than its ${entry.end - entry.begin} bytes were given`,
      );
    }
    this.#missing.set(name, missing);
    await writeAt(this.path, this.handle, bytes, this.dataStart + entry.begin + at);
  }

  requireComplete(): void {
    for (const [name, missing] of this.#missing) {
      if (missing > 0) throw new FileError(`${this.path}: tensor "${name}": ${missing} bytes were not given`);
    }
  }
}

async function writeAt(path: string, handle: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  try {
    for (let at = 0; at < bytes.length; ) {
      const length = Math.min(bytes.length - at, LARGEST_TRANSFER);
      at += (await handle.write(bytes, at, length, position + at)).bytesWritten;
    }
  } catch (cause) {
    throw fileError(path, "cannot be written", cause);
  }
}
