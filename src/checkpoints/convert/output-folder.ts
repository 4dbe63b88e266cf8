/**
 * The folder of a conversion's output. It is written as DIR.partial, with a progress file, and is renamed when it is complete.
 */
import { createHash } from "node:crypto";
import { lstat, mkdir, readdir, rename, rm, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { ArgumentError, FileError } from "../../errors.js";
import { codeOf, fileError, writeAt } from "../../io/files.js";
import type { JsonObject } from "../../io/header/header.js";
import { replaceFile } from "../../io/replace/replace.js";
import type { CheckpointFiles } from "../stored/files.js";
import { readJson } from "../stored/folder.js";
import { diskFolder } from "../stored/open.js";
import type { WeightChanges } from "./changes/weight-changes.js";
import type { ConversionPlan } from "./plan/steps.js";

/** The progress file of an unfinished output. It identifies the conversion and contains the changes of each finished shard. */
const PROGRESS_FILE = "lockstep-convert.json";

/** The content of the progress file. */
interface Progress {
  /** The key of the conversion, by `conversionKey`. */
  readonly conversion: string;
  /** The changes of each finished shard, by the name of its file. */
  readonly shards: Readonly<Record<string, readonly WeightChanges[]>>;
}

/** Throws `ArgumentError` if something exists at the path of the output, unless it is a folder and `force` is set. */
export async function requireFree(output: string, force: boolean): Promise<void> {
  if (output.includes("\0")) throw new ArgumentError("convertCheckpoint: output: a path has no zero bytes");
  const status = await lstat(output).catch((cause: unknown) => {
    if (codeOf(cause) === "ENOENT") return undefined;
    throw fileError(output, "cannot be written", cause);
  });
  if (!status || (force && status.isDirectory())) return;
  const remedy = status.isDirectory()
    ? "give a new folder, or force to write over its files"
    : "give a new folder";
  throw new ArgumentError(`convertCheckpoint: output ${output} exists; ${remedy}`);
}

/** Hashes the plan of a conversion, the tensors that it reads, and the paths of their files. */
export function conversionKey({ shards }: CheckpointFiles, plan: ConversionPlan): string {
  const hash = createHash("sha256");
  for (const shard of shards) {
    hash.update(`${shard.path}\n`);
    for (const { name, dtype, shape, begin } of shard.tensors.values())
      hash.update(`${JSON.stringify([name, dtype, shape, begin])}\n`);
  }
  hash.update(JSON.stringify([plan.target, [...plan.converted], plan.kept]));
  return hash.digest("hex");
}

/**
 * Creates the folder of the unfinished output. If the folder exists, returns the progress that the same conversion recorded in
 * it. Throws `FileError` if another conversion created the folder.
 */
export async function beginOutput(partial: string, conversion: string): Promise<Progress> {
  try {
    await mkdir(partial);
  } catch (cause) {
    if (codeOf(cause) !== "EEXIST") throw fileError(partial, "cannot be made", cause);
    const json = await readJson(diskFolder(partial), PROGRESS_FILE).catch(() => undefined);
    if (json?.conversion === conversion) return json as JsonObject & Progress;
    throw new FileError(`${partial}: is left of another conversion; remove it, or give another output`);
  }
  const progress: Progress = { conversion, shards: {} };
  await writeProgress(partial, progress);
  return progress;
}

/** Writes the progress file. */
export async function writeProgress(partial: string, progress: Progress): Promise<void> {
  await writeJson(join(partial, PROGRESS_FILE), progress);
}

/** Renames the finished folder, or moves its files into an existing output. */
export async function finishOutput(partial: string, output: string): Promise<void> {
  try {
    await rm(join(partial, PROGRESS_FILE));
    if (!(await lstat(output).catch(() => undefined))) {
      await rename(partial, output);
      return;
    }
    for (const name of await readdir(partial)) await rename(join(partial, name), join(output, name));
    await rmdir(partial);
  } catch (cause) {
    throw fileError(output, "cannot be written", cause);
  }
}

/** Writes a JSON file, replacing it atomically. */
export async function writeJson(path: string, json: unknown): Promise<void> {
  const bytes = new TextEncoder().encode(`${JSON.stringify(json, undefined, 2)}\n`);
  await replaceFile(path, (handle) => writeAt(path, handle, bytes, 0));
}
