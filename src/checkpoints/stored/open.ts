/** Opens a checkpoint: a safetensors file, the index of a sharded checkpoint, a GGUF file, or the folder of any of these. */
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
  /** The path of the checkpoint, as the caller wrote it. */
  readonly path: string;
  /** The folder that has the configuration. */
  readonly folder: string;
  /** The name of the index; absent without an index. */
  readonly index?: string | undefined;
  /** Whether the path is a folder or an index; otherwise it is a single file. */
  readonly isFolder: boolean;
  /** The metadata of a GGUF file, which has no config.json. */
  readonly gguf?: GgufFacts;
  /** Findings about shards and the index. */
  readonly findings: readonly Finding[];
  close(): Promise<void>;
}

/** The file names of the shards, and the content of the index; absent without an index. */
interface ShardLocations {
  readonly folder: string;
  readonly names: readonly string[];
  /** Whether the path is a single file. */
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
 * Opens a checkpoint. A fault of a shard of a folder, or of an index, becomes a finding. Throws `FileError` if `path` is no
 * checkpoint: it does not exist, is a folder without weights, an index that cannot be parsed, or a file of another format.
 */
export async function openCheckpointFiles(path: string): Promise<CheckpointFiles> {
  const locations = await locate(path);
  if (locations.gguf) return openGguf(path, locations);
  if (locations.single && (await isGguf(path))) return openGguf(path, locations);
  const findings: Finding[] = [];
  const shards: SafetensorsFile[] = [];
  try {
    for (const name of locations.names) {
      if (locations.single) shards.push(await SafetensorsFile.open(path));
      else {
        const shard = await openShard(join(locations.folder, name), findings);
        if (shard) shards.push(shard);
      }
    }
  } catch (error) {
    await closeAll(shards);
    throw error;
  }
  const tensors = collect(shards, findings);
  if (locations.index) checkIndex(locations.index, locations.folder, tensors, findings);
  const metadata = Object.fromEntries(shards.flatMap((shard) => Object.entries(shard.metadata)));
  return {
    path,
    folder: locations.folder,
    shards,
    tensors,
    metadata,
    index: locations.index?.name,
    isFolder: !locations.single,
    findings,
    close: () => closeAll(shards),
  };
}

/** Opens a GGUF file, or all GGUF files of a folder. The first file has the metadata of the model. */
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
    isFolder: !single,
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
    const isMissing = codeOf(error.cause) === "ENOENT";
    findings.push(finding(isMissing ? "shard-missing" : "shard-damaged", basename(path), error.message));
    return undefined;
  }
}

function collect(shards: readonly TensorSource[], findings: Finding[]): Map<string, StoredTensor> {
  const tensors = new Map<string, StoredTensor>();
  for (const shard of shards) {
    for (const entry of shard.tensors.values()) {
      const duplicate = tensors.get(entry.name);
      if (!duplicate) tensors.set(entry.name, { entry, shard });
      else {
        const fileNames = `${basename(duplicate.shard.path)} and ${basename(shard.path)}`;
        findings.push(finding("tensor-duplicated", entry.name, `is in ${fileNames}`));
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
    const tensor = tensors.get(name);
    if (tensor && basename(tensor.shard.path) === file) continue;
    const location = tensor ? `it is in ${basename(tensor.shard.path)}` : "no shard has it";
    findings.push(finding("index-absent-tensor", name, `${index} says that it is in ${file}; ${location}`));
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
  const status = await stat(path).catch((cause: unknown) => {
    throw fileError(path, "cannot be read", cause);
  });
  if (!status.isDirectory()) {
    if (path.endsWith(INDEX_END)) return readIndex(dirname(path), basename(path));
    return { folder: dirname(path), names: [basename(path)], single: true };
  }
  const names = (await readdir(path)).toSorted();
  const index =
    names.find((name) => name === `model${FILE_END}${INDEX_END}`) ??
    names.find((name) => name.endsWith(`${FILE_END}${INDEX_END}`));
  if (index !== undefined) return readIndex(path, index);
  const files = names.filter((name) => name.endsWith(FILE_END) && !name.startsWith("."));
  const single = files.filter((name) => name === `model${FILE_END}`);
  if (files.length > 0) return { folder: path, names: single.length > 0 ? single : files };
  const gguf = names.filter((name) => name.endsWith(GGUF_END) && !name.startsWith("."));
  if (gguf.length > 0) return { folder: path, names: gguf, gguf: true };
  throw new FileError(
    `${path}: has neither model${FILE_END}${INDEX_END} nor a ${FILE_END} or ${GGUF_END} file; give the folder of a checkpoint`,
  );
}

const SHARD = /^(.*)-\d+-of-(\d+)\.safetensors$/s;

/** Whether a file is an unlisted shard of the model that the index lists. */
function isUnlistedShard(name: string, listed: ReadonlySet<string>): boolean {
  const [, modelName, count] = SHARD.exec(name) ?? [];
  if (modelName === undefined || listed.has(name)) return false;
  return [...listed].some((each) => {
    const [, otherModel, otherCount] = SHARD.exec(each) ?? [];
    return otherModel === modelName && otherCount === count;
  });
}

async function readIndex(folder: string, name: string): Promise<ShardLocations> {
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
  const listedFiles = new Set(entries.map(([, file]) => file));
  // a shard that the index does not list may have the scales of listed codes
  const unlisted = (await readdir(folder)).filter((each) => isUnlistedShard(each, listedFiles));
  return {
    folder,
    names: [...listedFiles, ...unlisted].toSorted(),
    index: { name, map: new Map(entries), ...(typeof size === "number" ? { size } : {}) },
  };
}

/** Reads the object in a JSON file. Throws `FileError` if the file is absent or does not contain an object. */
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

/** As `readJsonFile`, but returns undefined if there is no such file. */
export async function readOptionalJson(path: string): Promise<JsonObject | undefined> {
  try {
    return await readJsonFile(path);
  } catch (error) {
    if (error instanceof FileError && codeOf(error.cause) === "ENOENT") return undefined;
    throw error;
  }
}
