/** The files of a command: on disk, or in a message from another program. */
import type { BigIntStats } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { FileError } from "../errors.js";
import { openFile, readAt, writeAt } from "../io/files.js";
import type { PutTensor } from "../io/header/header.js";
import { replaceFile } from "../io/replace/replace.js";
import { SafetensorsFile } from "../io/safetensors.js";
import { type FilePlan, writeSafetensors } from "../io/safetensors-writer.js";
import type { TensorSource } from "../io/source.js";

/** An open safetensors file. The caller closes it. */
export interface OpenFile extends TensorSource {
  close(): Promise<void>;
}

/** Opens and writes files by path. All methods throw `FileError` if the operation fails. */
export interface Files {
  open(path: string): Promise<OpenFile>;
  /** Writes a file of these tensors; `body` writes the bytes of each tensor. */
  write(path: string, plan: FilePlan, body: (put: PutTensor) => Promise<void>): Promise<void>;
  /** Writes a text file in UTF-8. */
  writeText(path: string, text: string): Promise<void>;
  /** The contents of a text file of at most `maxBytes` bytes; `subject` names the file in errors. */
  text(path: string, subject: string, maxBytes: number): Promise<string>;
  /**
   * The first of `otherPaths`, or of the files in a folder of `otherPaths`, that is the same file as `path`, also through links.
   */
  sameFile(path: string, otherPaths: readonly string[]): Promise<string | undefined>;
}

/** The file system. */
export const DISK: Files = {
  open: (path) => SafetensorsFile.open(path),
  write: writeSafetensors,
  writeText: (path, text) =>
    replaceFile(path, (handle) => writeAt(path, handle, new TextEncoder().encode(text), 0)),
  async text(path, subject, maxBytes) {
    const { handle, size } = await openFile(path);
    try {
      if (size > maxBytes)
        throw new FileError(`${path}: has ${size} bytes; ${subject} has at most ${maxBytes}`);
      return new TextDecoder().decode(await readAt(path, handle, 0, size));
    } finally {
      await handle.close();
    }
  },
  async sameFile(path, otherPaths) {
    const identify = (each: string) => stat(each, { bigint: true }).catch(() => undefined);
    const file = await identify(path);
    if (!file) return undefined;
    const isSame = ({ dev, ino }: BigIntStats): boolean => dev === file.dev && ino === file.ino;
    for (const otherPath of otherPaths) {
      const stats = await identify(otherPath);
      if (stats && isSame(stats)) return otherPath;
      if (!stats?.isDirectory()) continue;
      for (const name of await readdir(otherPath).catch(() => [])) {
        const directoryId = await identify(join(otherPath, name));
        if (directoryId?.isFile() && isSame(directoryId)) return join(otherPath, name);
      }
    }
    return undefined;
  },
};
