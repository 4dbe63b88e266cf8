/** The folder of a checkpoint: on a disk, or the files that a user chose in a browser. */
import { FileError } from "../../errors.js";
import type { JsonObject } from "../../io/header/header.js";
import { MAX_HEADER_BYTES } from "../../io/limits.js";
import type { TensorSource } from "../../io/source.js";
import type { GgufFile } from "../gguf/file.js";
import { parseObject } from "./config/claim.js";

/** An open file of tensors. */
export type Shard = TensorSource & { close(): Promise<void> };

/** The files of a folder, by name. */
export interface CheckpointFolder {
  /** The path of the folder, in errors. */
  readonly path: string;
  /** The path of a file of the folder, in errors. */
  pathOf(name: string): string;
  /** The names of the files. */
  names(): Promise<readonly string[]>;
  /** Reads a file as UTF-8. Undefined if there is no such file. Throws `FileError` for a file of more than `maxBytes` bytes. */
  readText(name: string, maxBytes: number): Promise<string | undefined>;
  /** Opens a safetensors file. Undefined if there is no such file. Throws `FileError` for a damaged file. */
  openSafetensors(name: string): Promise<Shard | undefined>;
  /** Opens a GGUF file. Throws `FileError` for a damaged file. */
  openGguf(name: string): Promise<GgufFile>;
}

/**
 * Reads the object in a JSON file of a folder. Undefined if there is no such file. Throws `FileError` if the file does not
 * contain an object.
 */
export async function readJson(folder: CheckpointFolder, name: string): Promise<JsonObject | undefined> {
  const text = await folder.readText(name, MAX_HEADER_BYTES);
  return text === undefined ? undefined : parseObject(folder.pathOf(name), text);
}

/** As `readJson`, but throws `FileError` if there is no such file. */
export async function requireJson(folder: CheckpointFolder, name: string): Promise<JsonObject> {
  const json = await readJson(folder, name);
  if (json) return json;
  throw missingFile(folder, name);
}

/** The error for a file that a folder does not have. */
export function missingFile(folder: CheckpointFolder, name: string): FileError {
  return new FileError(`${folder.pathOf(name)}: cannot be read: there is no such file or folder`);
}

/** The name of the file at a path. */
export function fileNameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
