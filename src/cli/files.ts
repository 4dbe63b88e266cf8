/** Where the files of a command are: on disk, or in a message of another program. */
import { stat } from "node:fs/promises";
import { FileError } from "../errors.js";
import { openFile, readAt } from "../io/files.js";
import { SafetensorsFile } from "../io/safetensors.js";
import { type FilePlan, type PutTensor, writeSafetensors } from "../io/safetensors-writer.js";
import type { TensorSource } from "../io/source.js";

/** An open safetensors file. Close it. */
export interface OpenFile extends TensorSource {
  close(): Promise<void>;
}

/** Opens and writes files by their paths. All methods throw `FileError` for what cannot be read or written. */
export interface Files {
  open(path: string): Promise<OpenFile>;
  /** Writes a file of these tensors; `body` gives all their bytes. */
  write(path: string, plan: FilePlan, body: (put: PutTensor) => Promise<void>): Promise<void>;
  /** The contents of a text file of at most `most` bytes; `what` says in errors what has so many. */
  text(path: string, what: string, most: number): Promise<string>;
  /** The first of `others` that leads to the same file as `path`, also through links. */
  same(path: string, others: readonly string[]): Promise<string | undefined>;
}

/** The file system. */
export const DISK: Files = {
  open: (path) => SafetensorsFile.open(path),
  write: writeSafetensors,
  async text(path, what, most) {
    const { handle, size } = await openFile(path);
    try {
      if (size > most) throw new FileError(`${path}: has ${size} bytes; ${what} has at most ${most}`);
      return new TextDecoder().decode(await readAt(path, handle, 0, size));
    } finally {
      await handle.close();
    }
  },
  async same(path, others) {
    const identify = (each: string) => stat(each, { bigint: true }).catch(() => undefined);
    const own = await identify(path);
    if (!own) return undefined;
    for (const other of others) {
      const its = await identify(other);
      if (its && its.dev === own.dev && its.ino === own.ino) return other;
    }
    return undefined;
  },
};
