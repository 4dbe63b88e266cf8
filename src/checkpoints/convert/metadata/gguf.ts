/** The metadata of GGUF files that a conversion writes. */
import { GgufFile } from "../../gguf/file.js";
import { ALIGNMENT_KEY } from "../../gguf/metadata.js";
import { little } from "../../gguf/writer.js";
import { ggufTensors } from "../../gguf/written-tensors.js";
import type { CheckpointFiles } from "../../stored/files.js";
import { readJson } from "../../stored/folder.js";
import { type ConversionPlan, outputsOf, type ShardPlan } from "../plan/steps.js";
import type { Declaration } from "./declarations.js";

const ARCHITECTURE = "general.architecture";
const FILE_TYPE = "general.file_type";
const QUANTIZATION_VERSION = "general.quantization_version";
/** Input entries that are not copied, because the conversion writes them itself or the output does not need them. */
const NOT_COPIED = [ARCHITECTURE, FILE_TYPE, QUANTIZATION_VERSION, ALIGNMENT_KEY];
/** The architecture of a model whose configuration has no `model_type`. */
const UNKNOWN_ARCHITECTURE = "unknown";
const SPLIT = /^split\./;

/** The value of general.quantization_version in current ggml. */
const GGML_QUANTIZATION_VERSION = 2;
/** The type numbers of metadata values. */
const [U16, U32, I32, TEXT] = [2, 4, 5, 8];

const { text, u16, u32 } = little;
const joined = (...pieces: readonly Uint8Array[]): Uint8Array => Buffer.concat(pieces);
const entry = (key: string, type: number, value: Uint8Array): Uint8Array =>
  joined(text(key), u32(type), value);

/**
 * The metadata entries of one output file. For a GGUF input, all entries are copied except entries about storage. For other
 * inputs, the only entry is the architecture: the configuration's `model_type`. In a split model, files after the first have only
 * the split.* entries.
 */
export async function ggufMetadata(
  checkpoint: CheckpointFiles,
  { target, shards }: ConversionPlan,
  shard: ShardPlan,
): Promise<readonly Uint8Array[]> {
  const number = shards.indexOf(shard);
  const first =
    number === 0 && target.dialectTarget
      ? await modelEntries(checkpoint, target.dialectTarget.declaration)
      : [];
  if (shards.length === 1) return first;
  const tensors = shards.reduce(
    (sum, { name, steps }) => sum + ggufTensors(name, outputsOf(steps)).length,
    0,
  );
  return [
    ...first,
    entry("split.no", U16, u16(number)),
    entry("split.count", U16, u16(shards.length)),
    entry("split.tensors.count", I32, u32(tensors)),
  ];
}

/** The entries about the model. Only the first file contains them. */
async function modelEntries(
  { shards, folder }: CheckpointFiles,
  declaration: Declaration,
): Promise<readonly Uint8Array[]> {
  const fileType = declaration.method === "gguf" ? [entry(FILE_TYPE, U32, u32(declaration.fileType))] : [];
  const storageEntries = [...fileType, entry(QUANTIZATION_VERSION, U32, u32(GGML_QUANTIZATION_VERSION))];
  const [from] = shards;
  if (!(from instanceof GgufFile)) {
    const config = await readJson(folder, "config.json");
    const type = config?.model_type;
    return [
      entry(ARCHITECTURE, TEXT, text(typeof type === "string" ? type : UNKNOWN_ARCHITECTURE)),
      ...storageEntries,
    ];
  }
  const keys = from.keys.filter((key) => !NOT_COPIED.includes(key) && !SPLIT.test(key));
  const hasArchitecture = from.keys.includes(ARCHITECTURE);
  const architecture = hasArchitecture
    ? await from.readMetadata(ARCHITECTURE)
    : entry(ARCHITECTURE, TEXT, text(UNKNOWN_ARCHITECTURE));
  const otherEntries: Uint8Array[] = [];
  for (const key of keys) otherEntries.push(await from.readMetadata(key));
  return [architecture, ...otherEntries, ...storageEntries];
}
