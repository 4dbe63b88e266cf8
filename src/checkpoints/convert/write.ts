/** Writes a converted checkpoint: shard by shard into a folder beside the output, which takes its name at the end. */
import { createHash } from "node:crypto";
import { copyFile, lstat, mkdir, readdir, rename, rm, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { ArgumentError, FileError } from "../../errors.js";
import { codeOf, fileError, writeAt } from "../../io/files.js";
import type { JsonObject, Metadata, TensorPlan } from "../../io/header/header.js";
import { recipeSubject } from "../../io/quantized/recipe.js";
import { replaceFile } from "../../io/replace/replace.js";
import { type PutTensor, writeSafetensors } from "../../io/safetensors-writer.js";
import { writeGguf } from "../gguf/writer.js";
import { type Checkpoint, readJsonFile, readOptionalJson, type StoredTensor } from "../stored/open.js";
import type { Changes } from "./dequantize/round.js";
import { ggufMetadata } from "./metadata/gguf.js";
import { convertedConfig, convertedModelopt } from "./metadata/output-config.js";
import { fileMetadata } from "./metadata/quantization-config.js";
import {
  bytesOfShard,
  type ConversionMethod,
  type ConversionPlan,
  type ConvertedWeight,
  isGgufTarget,
  type ShardPlan,
} from "./plan/steps.js";
import { requireSoundOutput } from "./soundness.js";
import type { NamedTarget } from "./targets/table.js";
import { TensorAppender } from "./tensor-appender.js";

const COPY_BYTES = 8 << 20;
const MODELOPT_FILE = "hf_quant_config.json";
/** The file in an unfinished output that says which conversion it is, and what each finished shard changed. */
const PROGRESS_FILE = "lockstep-convert.json";
/** The share of squares of values that noise has where values all became 0 or the largest code, or worse. */
const NOTHING_LEFT = 0.99;
const SKIPPED =
  /\.safetensors$|\.gguf$|\.safetensors\.index\.json$|^\.|^config\.json$|^hf_quant_config\.json$/;

/** What a conversion changed in one weight. */
export interface WeightChanges {
  readonly name: string;
  readonly method: ConversionMethod;
  readonly elements: number;
  readonly changed: number;
  readonly max: number;
  readonly relative: number;
  /** The sums of squares of differences, and of the values before. */
  readonly noise: number;
  readonly signal: number;
}

/** How to write. */
export interface ConvertOptions {
  /** Whether an existing output may be written over, file by file. */
  readonly force: boolean;
  /** Called with the bytes that have been written. */
  readonly onBytes: (count: number) => void;
}

interface Progress {
  readonly conversion: string;
  readonly shards: Readonly<Record<string, readonly WeightChanges[]>>;
}

/**
 * Writes the output of a plan into the folder `output`, and returns what each converted weight changed. A conversion that was
 * interrupted leaves `output`.partial; the same conversion goes on there. Throws `ArgumentError` if `output` exists and `force`
 * is not set, `FileError` for errors of files, for values that would become NaN or infinite, and for an output with an error.
 */
export async function writeConversion(
  checkpoint: Checkpoint,
  plan: ConversionPlan,
  output: string,
  { force, onBytes }: ConvertOptions,
): Promise<readonly WeightChanges[]> {
  await requireFree(output, force);
  const partial = `${output.replace(/\/+$/, "")}.partial`;
  const conversion = conversionKey(checkpoint, plan);
  const done = await begin(partial, conversion);
  const shards: Record<string, readonly WeightChanges[]> = { ...done.shards };
  for (const shard of plan.shards) {
    if (shards[shard.name]) onBytes(bytesOfShard(shard));
    else {
      shards[shard.name] = await writeShard(partial, plan, shard, checkpoint, onBytes);
      await writeJson(join(partial, PROGRESS_FILE), { conversion, shards });
    }
  }
  await writeBeside(checkpoint, plan, partial);
  if (plan.converted.size > 0)
    await requireSoundOutput(partial, (name) => plan.converted.get(name) === "quantized");
  await finish(partial, output);
  return plan.shards.flatMap(({ name }) => shards[name] ?? []);
}

/** Throws `ArgumentError` if something is at the path of the output, unless it is a folder and `force` is set. */
export async function requireFree(output: string, force: boolean): Promise<void> {
  if (output.includes("\0")) throw new ArgumentError("--output: a path has no zero bytes");
  const found = await lstat(output).catch((cause: unknown) => {
    if (codeOf(cause) === "ENOENT") return undefined;
    throw fileError(output, "cannot be written", cause);
  });
  if (!found || (force && found.isDirectory())) return;
  const instead = found.isDirectory()
    ? "give a new folder, or --force to write over its files"
    : "give a new folder";
  throw new ArgumentError(`--output ${output} exists; ${instead}`);
}

/** What identifies a conversion: the tensors that it reads, their files, and the plan. */
function conversionKey({ shards }: Checkpoint, plan: ConversionPlan): string {
  const hash = createHash("sha256");
  for (const shard of shards) {
    hash.update(`${shard.path}\n`);
    for (const { name, dtype, shape, begin } of shard.tensors.values())
      hash.update(`${JSON.stringify([name, dtype, shape, begin])}\n`);
  }
  hash.update(JSON.stringify([plan.target, [...plan.converted], plan.kept]));
  return hash.digest("hex");
}

async function begin(partial: string, conversion: string): Promise<Progress> {
  try {
    await mkdir(partial);
  } catch (cause) {
    if (codeOf(cause) !== "EEXIST") throw fileError(partial, "cannot be made", cause);
    const json = await readJsonFile(join(partial, PROGRESS_FILE)).catch(() => undefined);
    if (json?.conversion === conversion) return json as JsonObject & Progress;
    throw new FileError(`${partial}: is left of another conversion; remove it, or give another output`);
  }
  const fresh: Progress = { conversion, shards: {} };
  await writeJson(join(partial, PROGRESS_FILE), fresh);
  return fresh;
}

/** The metadata of a file of the output: what the library reads of its weights, and that the file is one for PyTorch. */
function metadataOf(
  { metadata }: Checkpoint,
  { target, kept }: ConversionPlan,
  { steps }: ShardPlan,
): Metadata {
  const weights = steps.flatMap((step) =>
    step.kind === "convert" ? Object.entries(step.metadata ?? {}) : [],
  );
  const plain = steps.flatMap((step) => (step.kind === "copy" ? [step.from.entry.name] : []));
  const told =
    target.dialectTarget &&
    fileMetadata(target.dialectTarget.declaration, Object.fromEntries(weights), plain);
  const recipes = Object.entries(metadata).filter(([key]) => {
    const name = recipeSubject(key);
    return name !== undefined && kept.includes(name) && plain.some((part) => part.startsWith(`${name}.`));
  });
  const own = {
    ...Object.fromEntries(recipes),
    ...(target.lockstepQuantizer ? Object.fromEntries(weights) : {}),
  };
  return told ?? { format: metadata.format ?? "pt", ...own };
}

async function writeShard(
  folder: string,
  plan: ConversionPlan,
  shard: ShardPlan,
  checkpoint: Checkpoint,
  onBytes: (count: number) => void,
): Promise<readonly WeightChanges[]> {
  const all: WeightChanges[] = [];
  const tensors = shard.steps.flatMap(({ outputs }) => outputs);
  const body = async (put: PutTensor): Promise<void> => {
    const output = new TensorAppender(put, onBytes);
    for (const step of shard.steps) {
      if (step.kind === "copy") await copy(step.from, step.outputs[0], output);
      else all.push(await changesOf(step, plan.target, await step.write(output)));
    }
  };
  const path = join(folder, shard.name);
  if (isGgufTarget(plan.target))
    await writeGguf(path, { tensors, metadata: await ggufMetadata(checkpoint, plan, shard) }, body);
  else await writeSafetensors(path, { tensors, metadata: metadataOf(checkpoint, plan, shard) }, body);
  return all;
}

/** What became of a weight. Throws `FileError` if values became NaN or infinite, or if nothing is left of them. */
async function changesOf(
  { name, method, whyNotFinite }: ConvertedWeight,
  to: NamedTarget,
  changes: Changes,
): Promise<WeightChanges> {
  const { elements, changed, max, relative, noise, signal, notFinite } = changes;
  const refuse = (what: string): FileError =>
    new FileError(`tensor "${name}": ${what}; leave it out by --tensors, or choose another form`);
  if (notFinite > 0) {
    const why = (await whyNotFinite?.()) ?? "they are beyond its range";
    throw refuse(`${notFinite} of ${elements} values would become NaN or infinite as ${to.name}: ${why}`);
  }
  if (noise > 0 && noise >= NOTHING_LEFT * signal)
    throw refuse(
      `as ${to.name}, the SQNR would be ${changes.sqnr.toFixed(2)} dB: its rule leaves nothing of the values, which are beyond its range`,
    );
  return { name, method, elements, changed, max, relative, noise, signal };
}

async function copy({ shard, entry }: StoredTensor, plan: TensorPlan, output: TensorAppender): Promise<void> {
  const size = entry.end - entry.begin;
  for (let at = 0; at < size; at += COPY_BYTES)
    await output.append(plan, await shard.read(entry, at, Math.min(size, at + COPY_BYTES)));
}

/** Writes the index and the configurations, and copies the other files of a folder. */
async function writeBeside(checkpoint: Checkpoint, plan: ConversionPlan, partial: string): Promise<void> {
  if (plan.indexed) {
    const map = plan.shards.flatMap(({ name, steps }) =>
      steps.flatMap(({ outputs }) => outputs.map((output) => [output.name, name] as const)),
    );
    const index = { metadata: { total_size: plan.bytes }, weight_map: Object.fromEntries(map) };
    await writeJson(join(partial, checkpoint.index ?? "model.safetensors.index.json"), index);
  }
  const config = await readOptionalJson(join(checkpoint.folder, "config.json"));
  if (config) await writeJson(join(partial, "config.json"), convertedConfig(config, plan));
  const other = await readOptionalJson(join(checkpoint.folder, MODELOPT_FILE));
  const made = convertedModelopt(other, plan);
  if (made) await writeJson(join(partial, MODELOPT_FILE), made);
  if (!checkpoint.whole) return;
  for (const entry of await readdir(checkpoint.folder, { withFileTypes: true })) {
    if (!entry.isFile() || SKIPPED.test(entry.name)) continue;
    await copyFile(join(checkpoint.folder, entry.name), join(partial, entry.name)).catch((cause: unknown) => {
      throw fileError(entry.name, "cannot be copied", cause);
    });
  }
}

async function writeJson(path: string, json: unknown): Promise<void> {
  const bytes = new TextEncoder().encode(`${JSON.stringify(json, undefined, 2)}\n`);
  await replaceFile(path, (handle) => writeAt(path, handle, bytes, 0));
}

/** Gives the finished folder its name, or moves its files over those of an existing one. */
async function finish(partial: string, output: string): Promise<void> {
  try {
    await rm(join(partial, PROGRESS_FILE));
    const there = await lstat(output).catch(() => undefined);
    if (!there) {
      await rename(partial, output);
      return;
    }
    for (const name of await readdir(partial)) await rename(join(partial, name), join(output, name));
    await rmdir(partial);
  } catch (cause) {
    throw fileError(output, "cannot be written", cause);
  }
}
