/** The metadata of GGUF files that a conversion writes. */
import { join } from "node:path";
import { GgufFile } from "../../gguf/file.js";
import { ALIGNMENT_KEY } from "../../gguf/metadata.js";
import { ggufTensors, little } from "../../gguf/writer.js";
import type { CheckpointFiles } from "../../stored/open.js";
import { readOptionalJson } from "../../stored/open.js";
import { type ConversionPlan, outputsOf, type ShardPlan } from "../plan/steps.js";
import type { Declaration } from "./declarations.js";

const ARCHITECTURE = "general.architecture";
const FILE_TYPE = "general.file_type";
const QUANTIZATION_VERSION = "general.quantization_version";
/** The entries that a conversion writes itself, or that the files have no use for. */
const REPLACED = [ARCHITECTURE, FILE_TYPE, QUANTIZATION_VERSION, ALIGNMENT_KEY];
/** The architecture of a model whose configuration does not say it. */
const UNKNOWN = "unknown";
const SPLIT = /^split\./;

/** The version of quantized tensors that ggml has. */
const GGML_QUANTIZATION_VERSION = 2;
/** The numbers of types of metadata. */
const [U16, U32, I32, TEXT] = [2, 4, 5, 8];

const { text, u16, u32 } = little;
const joined = (...pieces: readonly Uint8Array[]): Uint8Array => Buffer.concat(pieces);
const entry = (key: string, type: number, value: Uint8Array): Uint8Array =>
  joined(text(key), u32(type), value);

/**
 * The entries of one file. Those of a GGUF file are copied, but for what says how its tensors are stored; from other files only
 * the architecture is known, by the `model_type` of the configuration. Parts of a split model after the first have no more than
 * what says so.
 */
export async function ggufMetadata(
  checkpoint: CheckpointFiles,
  { target, shards }: ConversionPlan,
  shard: ShardPlan,
): Promise<readonly Uint8Array[]> {
  const number = shards.indexOf(shard);
  const first =
    number === 0 && target.dialectTarget
      ? await wholeEntries(checkpoint, target.dialectTarget.declaration)
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

/** The entries that say of the whole model what it is. */
async function wholeEntries(
  { shards, folder }: CheckpointFiles,
  declaration: Declaration,
): Promise<readonly Uint8Array[]> {
  const own = declaration.method === "gguf" ? [entry(FILE_TYPE, U32, u32(declaration.fileType))] : [];
  const stored = [...own, entry(QUANTIZATION_VERSION, U32, u32(GGML_QUANTIZATION_VERSION))];
  const [from] = shards;
  if (!(from instanceof GgufFile)) {
    const config = await readOptionalJson(join(folder, "config.json"));
    const type = config?.model_type;
    return [entry(ARCHITECTURE, TEXT, text(typeof type === "string" ? type : UNKNOWN)), ...stored];
  }
  const keys = from.keys.filter((key) => !REPLACED.includes(key) && !SPLIT.test(key));
  const known = from.keys.includes(ARCHITECTURE);
  const architecture = known
    ? await from.readMetadata(ARCHITECTURE)
    : entry(ARCHITECTURE, TEXT, text(UNKNOWN));
  const others: Uint8Array[] = [];
  for (const key of keys) others.push(await from.readMetadata(key));
  return [architecture, ...others, ...stored];
}
