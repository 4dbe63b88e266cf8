/** Opens a checkpoint: a safetensors file, the index of a sharded one, a GGUF file, or the folder of any of them. */
import { readdir, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { FileError } from "../../errors.js";
import { codeOf, fileError, openFile, readAt } from "../../io/files.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { MAX_HEADER_BYTES } from "../../io/limits.js";
import { SafetensorsFile } from "../../io/safetensors.js";
import type { TensorSource } from "../../io/source.js";
import type { GgufFacts } from "../gguf/facts.js";
import { GgufFile, isGguf } from "../gguf/file.js";
import { type Finding, finding } from "../judge/findings.js";
import { parseObject } from "./config/claim.js";
import type { CheckpointTensors, StoredTensor } from "./tensors.js";

const INDEX_END = ".index.json";
const FILE_END = ".safetensors";
const GGUF_END = ".gguf";

/** An opened checkpoint. Call `close` at the end. */
export interface CheckpointFiles extends CheckpointTensors {
  /** The path that was given. */
  readonly path: string;
  /** The folder that has the configuration. */
  readonly folder: string;
  /** The name of the index, if there is one. */
  readonly index?: string | undefined;
  /** Whether a folder or an index was given, and not one file. */
  readonly whole: boolean;
  /** What a GGUF file says of itself. It has no configuration beside it. */
  readonly gguf?: GgufFacts;
  /** What is wrong with shards and index. */
  readonly findings: readonly Finding[];
  close(): Promise<void>;
}

/** Where the shards are: their names in a folder, and what the index says of tensors, if there is one. */
interface ShardLocations {
  readonly folder: string;
  readonly names: readonly string[];
  /** Whether the path is that of one file. */
  readonly single?: true;
  /** Whether the files of a folder are GGUF files. */
  readonly gguf?: true;
  readonly index?: {
    readonly name: string;
    readonly map: ReadonlyMap<string, string>;
    readonly size?: number;
  };
}

/**
 * Opens a checkpoint. What is wrong with a shard of a folder or an index becomes a finding. Throws `FileError` if `path` leads to
 * no checkpoint: no such file, a folder without safetensors files, an index that cannot be parsed, a file that is none.
 */
export async function openCheckpointFiles(path: string): Promise<CheckpointFiles> {
  const places = await locate(path);
  if (places.gguf) return openGguf(path, places);
  if (places.single && (await isGguf(path))) return openGguf(path, places);
  const findings: Finding[] = [];
  const shards: SafetensorsFile[] = [];
  try {
    for (const name of places.names) {
      if (places.single) shards.push(await SafetensorsFile.open(path));
      else {
        const shard = await openShard(join(places.folder, name), findings);
        if (shard) shards.push(shard);
      }
    }
  } catch (error) {
    await closeAll(shards);
    throw error;
  }
  const tensors = collect(shards, findings);
  if (places.index) checkIndex(places.index, places.folder, tensors, findings);
  const metadata = Object.fromEntries(shards.flatMap((shard) => Object.entries(shard.metadata)));
  return {
    path,
    folder: places.folder,
    shards,
    tensors,
    metadata,
    index: places.index?.name,
    whole: !places.single,
    findings,
    close: () => closeAll(shards),
  };
}

/** Opens a GGUF file, or all of a folder, of which the first one has the metadata of the model. */
async function openGguf(path: string, { folder, names, single }: ShardLocations): Promise<CheckpointFiles> {
  const shards: GgufFile[] = [];
  const findings: Finding[] = [];
  try {
    for (const name of names) shards.push(await GgufFile.open(single ? path : join(folder, name)));
  } catch (error) {
    await closeAll(shards);
    throw error;
  }
  const [first] = shards;
  const gguf = first && {
    ...first.facts,
    tensors: shards.reduce((sum, { facts }) => sum + facts.tensors, 0),
  };
  return {
    path,
    folder,
    shards,
    tensors: collect(shards, findings),
    metadata: {},
    container: "gguf",
    whole: !single,
    ...(gguf ? { gguf } : {}),
    findings,
    close: () => closeAll(shards),
  };
}

async function closeAll(shards: readonly (SafetensorsFile | GgufFile)[]): Promise<void> {
  for (const shard of shards) await shard.close();
}

async function openShard(path: string, findings: Finding[]): Promise<SafetensorsFile | undefined> {
  try {
    return await SafetensorsFile.open(path);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    const missing = codeOf(error.cause) === "ENOENT";
    findings.push(finding(missing ? "shard-missing" : "shard-damaged", basename(path), error.message));
    return undefined;
  }
}

function collect(shards: readonly TensorSource[], findings: Finding[]): Map<string, StoredTensor> {
  const tensors = new Map<string, StoredTensor>();
  for (const shard of shards) {
    for (const entry of shard.tensors.values()) {
      const other = tensors.get(entry.name);
      if (!other) tensors.set(entry.name, { entry, shard });
      else {
        const where = `${basename(other.shard.path)} and ${basename(shard.path)}`;
        findings.push(finding("tensor-duplicated", entry.name, `is in ${where}`));
      }
    }
  }
  return tensors;
}

function checkIndex(
  { name: index, map, size }: NonNullable<ShardLocations["index"]>,
  folder: string,
  tensors: ReadonlyMap<string, StoredTensor>,
  findings: Finding[],
): void {
  const unread = new Set(
    findings.filter(({ name }) => name.startsWith("shard-")).map(({ subject }) => subject),
  );
  for (const [name, file] of map) {
    if (unread.has(file)) continue;
    const found = tensors.get(name);
    if (found && basename(found.shard.path) === file) continue;
    const where = found ? `it is in ${basename(found.shard.path)}` : "no shard has it";
    findings.push(finding("index-absent-tensor", name, `${index} says that it is in ${file}; ${where}`));
  }
  let bytes = 0;
  for (const [name, { entry, shard }] of tensors) {
    bytes += entry.end - entry.begin;
    if (map.has(name)) continue;
    findings.push(
      finding("index-unlisted-tensor", name, `is in ${basename(shard.path)} and not in ${index}`),
    );
  }
  if (size === undefined || unread.size > 0 || size === bytes) return;
  findings.push(
    finding("index-total-size", join(folder, index), `says ${size} bytes; the tensors have ${bytes}`),
  );
}

async function locate(path: string): Promise<ShardLocations> {
  if (path.includes("\0")) throw new FileError(`${path}: cannot be read: a path has no zero bytes`);
  const found = await stat(path).catch((cause: unknown) => {
    throw fileError(path, "cannot be read", cause);
  });
  if (!found.isDirectory()) {
    if (path.endsWith(INDEX_END)) return indexed(dirname(path), basename(path));
    return { folder: dirname(path), names: [basename(path)], single: true };
  }
  const names = (await readdir(path)).toSorted();
  const index =
    names.find((name) => name === `model${FILE_END}${INDEX_END}`) ??
    names.find((name) => name.endsWith(`${FILE_END}${INDEX_END}`));
  if (index !== undefined) return indexed(path, index);
  const files = names.filter((name) => name.endsWith(FILE_END) && !name.startsWith("."));
  const whole = files.filter((name) => name === `model${FILE_END}`);
  if (files.length > 0) return { folder: path, names: whole.length > 0 ? whole : files };
  const gguf = names.filter((name) => name.endsWith(GGUF_END) && !name.startsWith("."));
  if (gguf.length > 0) return { folder: path, names: gguf, gguf: true };
  throw new FileError(
    `${path}: has neither model${FILE_END}${INDEX_END} nor a ${FILE_END} or ${GGUF_END} file; give the folder of a checkpoint`,
  );
}

const SHARD = /^(.*)-\d+-of-(\d+)\.safetensors$/s;

/** Whether a file is a shard of the same model as those that an index lists, and not listed. */
function isShardBeside(name: string, listed: ReadonlySet<string>): boolean {
  const [, stem, count] = SHARD.exec(name) ?? [];
  if (stem === undefined || listed.has(name)) return false;
  return [...listed].some((each) => {
    const [, other, of] = SHARD.exec(each) ?? [];
    return other === stem && of === count;
  });
}

async function indexed(folder: string, name: string): Promise<ShardLocations> {
  const path = join(folder, name);
  const json = await readJsonFile(path);
  const map = json.weight_map;
  const entries = isObject(map) ? Object.entries(map) : undefined;
  const isName = (entry: [string, unknown]): entry is [string, string] =>
    typeof entry[1] === "string" &&
    entry[1] !== "" &&
    basename(entry[1]) === entry[1] &&
    !/^\.|\0/.test(entry[1]);
  if (!entries?.every(isName))
    throw new FileError(`${path}: weight_map must map names of tensors to names of files beside it`);
  const size = isObject(json.metadata) ? json.metadata.total_size : undefined;
  const listed = new Set(entries.map(([, file]) => file));
  // a shard that no entry names may have the scales of codes that are listed
  const besides = (await readdir(folder)).filter((each) => isShardBeside(each, listed));
  return {
    folder,
    names: [...listed, ...besides].toSorted(),
    index: { name, map: new Map(entries), ...(typeof size === "number" ? { size } : {}) },
  };
}

/** The object in a JSON file. Throws `FileError` if there is no such file, or if it has anything else. */
export async function readJsonFile(path: string): Promise<JsonObject> {
  const { handle, size } = await openFile(path);
  let text: string;
  try {
    if (size > MAX_HEADER_BYTES)
      throw new FileError(`${path}: has ${size} bytes; ${MAX_HEADER_BYTES} are the most`);
    text = new TextDecoder().decode(await readAt(path, handle, 0, size));
  } finally {
    await handle.close();
  }
  return parseObject(path, text);
}

/** As `readJsonFile`; undefined if there is no such file. */
export async function readOptionalJson(path: string): Promise<JsonObject | undefined> {
  try {
    return await readJsonFile(path);
  } catch (error) {
    if (error instanceof FileError && codeOf(error.cause) === "ENOENT") return undefined;
    throw error;
  }
}
