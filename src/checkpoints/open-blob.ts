/** Opens checkpoints in a browser or in memory. */

import { ArgumentError } from "../errors.js";
import { type BlobLike, requireBlob } from "../io/byte-file.js";
import { SafetensorsBlob } from "../io/safetensors-blob.js";
import { describe, entriesOfMap, optionsOf, text } from "../options.js";
import { Checkpoint, checkpointOf } from "./checkpoint.js";
import { recognizeElementwise } from "./recognize/elementwise-weights.js";
import { blobFolder } from "./stored/blob-folder.js";
import { claimIn, parseObject } from "./stored/config/claim.js";
import { CONFIG_FILE, MODELOPT_FILE } from "./stored/config/config.js";
import { type CheckpointFiles, locateIn, openLocated } from "./stored/files.js";
import type { CheckpointFolder } from "./stored/folder.js";

/** Options of `openCheckpointBlob`. */
export interface OpenBlobOptions {
  /** The name of the file in errors. Default: "blob". */
  readonly name?: string | undefined;
  /** The text of config.json. Default: no such file. */
  readonly modelConfig?: string | undefined;
  /** The text of hf_quant_config.json. Default: no such file. */
  readonly quantConfig?: string | undefined;
}

const checkOptions = optionsOf<OpenBlobOptions>({ name: text, modelConfig: text, quantConfig: text });

/** The names of the configurations in errors and claims. */
const CONFIG_NAMES = [CONFIG_FILE, MODELOPT_FILE] as const;

/**
 * Opens a safetensors file that is a `Blob`, such as a `File` that a user chose. It is read in pieces, and needs no file system.
 * Weights are recognized by their tensors and by the configurations.
 *
 * @throws `FileError` for bytes that are not safetensors, and for a configuration that is not a JSON object; `ArgumentError` for
 * anything but a blob and options.
 */
export async function openCheckpointBlob(blob: BlobLike, options: OpenBlobOptions = {}): Promise<Checkpoint> {
  requireBlob("openCheckpointBlob", blob);
  const { name = "blob", modelConfig, quantConfig } = checkOptions("openCheckpointBlob", options);
  const file = await SafetensorsBlob.open(name, blob);
  const [model, modelopt] = [modelConfig, quantConfig].map((json, i) =>
    json === undefined ? undefined : parseObject(CONFIG_NAMES[i] as string, json),
  );
  const claim = claimIn(CONFIG_NAMES, model, modelopt);
  const tensors = new Map([...file.tensors].map(([key, entry]) => [key, { entry, shard: file }]));
  const configurations = [modelConfig, quantConfig].flatMap((json, i): [string, BlobLike][] =>
    json === undefined ? [] : [[CONFIG_NAMES[i] as string, new Blob([json])]],
  );
  const close = async (): Promise<void> => {};
  const files: CheckpointFiles = {
    ...{ path: name, folder: blobFolder(name, new Map(configurations)), isFolder: false },
    ...{ shards: [file], tensors, metadata: file.metadata, findings: [], close },
  };
  const recognition = await recognizeElementwise(files, claim);
  const findings = [...recognition.recognized.findings, ...recognition.findings];
  return Checkpoint.of({ ...recognition, path: name, files, claim, findings, close });
}

/** Files by name, such as those of a folder that a user chose in a browser. */
export type BlobFiles = ReadonlyMap<string, BlobLike>;

/** Options of `openCheckpointBlobs`. */
export interface OpenBlobsOptions {
  /** The name of the folder in errors. Default: "folder". */
  readonly name?: string | undefined;
}

const checkFolderOptions = optionsOf<OpenBlobsOptions>({ name: text });

/**
 * Opens the files of a folder as `openCheckpoint` opens a folder, without a file system. The files are read in pieces.
 *
 * @throws `FileError` if there are no safetensors and no GGUF files, or a GGUF file or the index is damaged; a damaged file of
 * safetensors becomes a finding. `ArgumentError` for anything but a `Map` from names of files, without folders,
 * to blobs, and options.
 */
export async function openCheckpointBlobs(
  files: BlobFiles,
  options: OpenBlobsOptions = {},
): Promise<Checkpoint> {
  const folder = folderOfBlobs("openCheckpointBlobs", files, options);
  return checkpointOf(await openLocated(folder.path, await locateIn(folder)));
}

/** The folder of files. Throws `ArgumentError` for anything but a `Map` from names to blobs, and options. */
function folderOfBlobs(user: string, files: BlobFiles, options: OpenBlobsOptions): CheckpointFolder {
  const { name = "folder" } = checkFolderOptions(user, options);
  const entries = entriesOfMap(files);
  if (!entries)
    throw new ArgumentError(`${user}: files is ${describe(files)}; it must be a Map from names to blobs`);
  const blobs = entries.map(([key, blob]): [string, BlobLike] => {
    if (typeof key !== "string")
      throw new ArgumentError(`${user}: files has the key ${describe(key)}; it must be a name`);
    if (key.includes("/"))
      throw new ArgumentError(
        `${user}: files has the key ${describe(key)}; it must be the name of a file, without its folder`,
      );
    requireBlob(user, blob);
    return [key, blob];
  });
  return blobFolder(name, new Map(blobs));
}
