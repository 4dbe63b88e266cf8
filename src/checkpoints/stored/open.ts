/** Opens a checkpoint: a safetensors file, the index of a sharded checkpoint, a GGUF file, or the folder of any of these. */
import { readdir, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { FileError } from "../../errors.js";
import { codeOf, fileError, openByteFile } from "../../io/files.js";
import { SafetensorsFile } from "../../io/safetensors.js";
import { isGguf, openGgufFile } from "../gguf/open.js";
import {
  type CheckpointFiles,
  INDEX_END,
  locateIn,
  openLocated,
  readIndex,
  type ShardLocations,
} from "./files.js";
import type { CheckpointFolder } from "./folder.js";

/**
 * Opens a checkpoint. A fault of a shard of a folder, or of an index, becomes a finding. Throws `FileError` if `path` is no
 * checkpoint: it does not exist, is a folder without weights, an index that cannot be parsed, or a file of another format.
 */
export async function openCheckpointFiles(path: string): Promise<CheckpointFiles> {
  return openLocated(path, await locate(path));
}

async function locate(path: string): Promise<ShardLocations> {
  if (await isFolder(path)) return locateIn(diskFolder(path));
  const [folder, name] = [diskFolder(dirname(path)), basename(path)];
  if (path.endsWith(INDEX_END)) return readIndex(folder, name);
  return { folder, names: [name], single: true, ...((await isGguf(path)) ? { gguf: true } : {}) };
}

/** Whether a path leads to a folder. Throws `FileError` if it leads to nothing. */
export async function isFolder(path: string): Promise<boolean> {
  if (path.includes("\0")) throw new FileError(`${path}: cannot be read: a path has no zero bytes`);
  const status = await stat(path).catch((cause: unknown) => {
    throw fileError(path, "cannot be read", cause);
  });
  return status.isDirectory();
}

/** A folder on a disk. */
export function diskFolder(path: string): CheckpointFolder {
  const pathOf = (name: string): string => join(path, name);
  return {
    path,
    pathOf,
    names: () => readdir(path),
    readText: (name, maxBytes) => presentOnly(readText(pathOf(name), maxBytes)),
    openSafetensors: (name) => presentOnly(SafetensorsFile.open(pathOf(name))),
    openGguf: (name) => openGgufFile(pathOf(name)),
  };
}

/** The result of reading a file; undefined if there is no such file. */
async function presentOnly<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read;
  } catch (error) {
    if (error instanceof FileError && codeOf(error.cause) === "ENOENT") return undefined;
    throw error;
  }
}

async function readText(path: string, maxBytes: number): Promise<string> {
  const file = await openByteFile(path);
  try {
    if (file.size > maxBytes)
      throw new FileError(`${path}: has ${file.size} bytes; ${maxBytes} are the most`);
    return new TextDecoder().decode(await file.read(0, file.size));
  } finally {
    await file.close();
  }
}
