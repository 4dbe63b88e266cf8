/** Opens the files of a checkpoint in a folder: safetensors files with or without an index, or GGUF files. */
import { FileError } from "../../errors.js";
import { isObject } from "../../io/header/header.js";
import type { TensorSource } from "../../io/source.js";
import type { GgufFacts } from "../gguf/facts.js";
import type { GgufFile } from "../gguf/file.js";
import { type Finding, finding } from "../judge/findings.js";
import { type CheckpointFolder, fileNameOf, missingFile, requireJson, type Shard } from "./folder.js";
import type { CheckpointTensors, StoredTensor } from "./tensors.js";

/** The end of the name of an index. */
export const INDEX_END = ".index.json";
const FILE_END = ".safetensors";
const GGUF_END = ".gguf";

/** An opened checkpoint. Call `close` at the end. */
export interface CheckpointFiles extends CheckpointTensors {
  /** The path of the checkpoint, as the caller wrote it. */
  readonly path: string;
  /** The folder that has the configuration. */
  readonly folder: CheckpointFolder;
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
export interface ShardLocations {
  readonly folder: CheckpointFolder;
  readonly names: readonly string[];
  /** Whether the path is a single file. */
  readonly single?: true;
  /** Whether the files are GGUF files. */
  readonly gguf?: true;
  readonly index?: {
    readonly name: string;
    readonly map: ReadonlyMap<string, string>;
    readonly size?: number;
  };
}

/**
 * Opens the files of a checkpoint. A fault of a shard of a folder, or of an index, becomes a finding. `path` is the path that the
 * caller wrote. Throws `FileError` for a single file of another format, and for a damaged GGUF file.
 */
export async function openLocated(path: string, locations: ShardLocations): Promise<CheckpointFiles> {
  const { folder, names, single, index } = locations;
  if (locations.gguf) return openGguf(path, locations);
  const findings: Finding[] = [];
  const shards = await openAll(names, (name) => openShard(folder, name, single, findings));
  const tensors = collect(shards, findings);
  if (index) checkIndex(index, folder, tensors, findings);
  const metadata = Object.fromEntries(shards.flatMap((shard) => Object.entries(shard.metadata)));
  return {
    ...{ path, folder, shards, tensors, metadata },
    index: index?.name,
    isFolder: !single,
    findings,
    close: () => closeAll(shards),
  };
}

/** Opens a GGUF file, or all GGUF files of a folder. The first file has the metadata of the model. */
async function openGguf(path: string, { folder, names, single }: ShardLocations): Promise<CheckpointFiles> {
  const findings: Finding[] = [];
  const shards = await openAll<GgufFile>(names, (name) => folder.openGguf(name));
  const [first] = shards;
  const gguf = first && {
    ...first.facts,
    tensors: shards.reduce((sum, { facts }) => sum + facts.tensors, 0),
  };
  return {
    ...{ path, folder, shards },
    tensors: collect(shards, findings),
    metadata: {},
    container: "gguf",
    isFolder: !single,
    ...(gguf ? { gguf } : {}),
    findings,
    close: () => closeAll(shards),
  };
}

/** Opens files in order. If one cannot be opened, closes the others and throws its error. */
async function openAll<T extends Shard>(
  names: readonly string[],
  open: (name: string) => Promise<T | undefined>,
): Promise<readonly T[]> {
  const shards: T[] = [];
  try {
    for (const name of names) {
      const shard = await open(name);
      if (shard) shards.push(shard);
    }
    return shards;
  } catch (error) {
    await closeAll(shards);
    throw error;
  }
}

async function closeAll(shards: readonly Shard[]): Promise<void> {
  for (const shard of shards) await shard.close();
}

async function openShard(
  folder: CheckpointFolder,
  name: string,
  single: true | undefined,
  findings: Finding[],
): Promise<Shard | undefined> {
  try {
    const shard = await folder.openSafetensors(name);
    if (shard) return shard;
    findings.push(finding("shard-missing", name, missingFile(folder, name).message));
    return undefined;
  } catch (error) {
    if (!(error instanceof FileError) || single) throw error;
    findings.push(finding("shard-damaged", name, error.message));
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
        const fileNames = `${fileNameOf(duplicate.shard.path)} and ${fileNameOf(shard.path)}`;
        findings.push(finding("tensor-duplicated", entry.name, `is in ${fileNames}`));
      }
    }
  }
  return tensors;
}

function checkIndex(
  { name: index, map, size }: NonNullable<ShardLocations["index"]>,
  folder: CheckpointFolder,
  tensors: ReadonlyMap<string, StoredTensor>,
  findings: Finding[],
): void {
  const unread = new Set(
    findings.filter(({ name }) => name.startsWith("shard-")).map(({ subject }) => subject),
  );
  for (const [name, file] of map) {
    if (unread.has(file)) continue;
    const tensor = tensors.get(name);
    if (tensor && fileNameOf(tensor.shard.path) === file) continue;
    const location = tensor ? `it is in ${fileNameOf(tensor.shard.path)}` : "no shard has it";
    findings.push(finding("index-absent-tensor", name, `${index} says that it is in ${file}; ${location}`));
  }
  let bytes = 0;
  for (const [name, { entry, shard }] of tensors) {
    bytes += entry.end - entry.begin;
    if (map.has(name)) continue;
    findings.push(
      finding("index-unlisted-tensor", name, `is in ${fileNameOf(shard.path)} and not in ${index}`),
    );
  }
  if (size === undefined || unread.size > 0 || size === bytes) return;
  findings.push(
    finding("index-total-size", folder.pathOf(index), `says ${size} bytes; the tensors have ${bytes}`),
  );
}

/** Finds the files of the checkpoint in a folder. Throws `FileError` if it has none. */
export async function locateIn(folder: CheckpointFolder): Promise<ShardLocations> {
  const names = (await folder.names()).toSorted();
  const index =
    names.find((name) => name === `model${FILE_END}${INDEX_END}`) ??
    names.find((name) => name.endsWith(`${FILE_END}${INDEX_END}`));
  if (index !== undefined) return readIndex(folder, index);
  const files = names.filter((name) => name.endsWith(FILE_END) && !name.startsWith("."));
  const single = files.filter((name) => name === `model${FILE_END}`);
  if (files.length > 0) return { folder, names: single.length > 0 ? single : files };
  const gguf = names.filter((name) => name.endsWith(GGUF_END) && !name.startsWith("."));
  if (gguf.length > 0) return { folder, names: gguf, gguf: true };
  throw new FileError(
    `${folder.path}: has neither model${FILE_END}${INDEX_END} nor a ${FILE_END} or ${GGUF_END} file; give the folder of a checkpoint`,
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

/** Finds the files that an index lists. Throws `FileError` if the index is damaged. */
export async function readIndex(folder: CheckpointFolder, name: string): Promise<ShardLocations> {
  const path = folder.pathOf(name);
  const json = await requireJson(folder, name);
  const map = json.weight_map;
  const entries = isObject(map) ? Object.entries(map) : undefined;
  const isName = (entry: [string, unknown]): entry is [string, string] =>
    typeof entry[1] === "string" &&
    entry[1] !== "" &&
    fileNameOf(entry[1]) === entry[1] &&
    !/^\.|\0/.test(entry[1]);
  if (!entries?.every(isName))
    throw new FileError(`${path}: weight_map must map names of tensors to names of files beside it`);
  const size = isObject(json.metadata) ? json.metadata.total_size : undefined;
  const listedFiles = new Set(entries.map(([, file]) => file));
  // a shard that the index does not list may have the scales of listed codes
  const unlisted = (await folder.names()).filter((each) => isUnlistedShard(each, listedFiles));
  return {
    folder,
    names: [...listedFiles, ...unlisted].toSorted(),
    index: { name, map: new Map(entries), ...(typeof size === "number" ? { size } : {}) },
  };
}
