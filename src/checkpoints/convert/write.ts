/** Writes the output of a planned conversion. */
import { copyFile, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { FileError } from "../../errors.js";
import { fileError } from "../../io/files.js";
import type { Metadata, TensorPlan } from "../../io/header/header.js";
import { recipeSubject } from "../../io/quantized/recipe.js";
import { type PutTensor, writeSafetensors } from "../../io/safetensors-writer.js";
import { writeGguf } from "../gguf/writer.js";
import { type CheckpointFiles, readOptionalJson } from "../stored/open.js";
import type { StoredTensor } from "../stored/tensors.js";
import type { Changes } from "./changes/changes.js";
import type { WeightChanges } from "./changes/weight-changes.js";
import { ggufMetadata } from "./metadata/gguf.js";
import { convertedConfig, convertedModelopt, inputConfig } from "./metadata/output-config.js";
import { fileMetadata } from "./metadata/quantization-config.js";
import { beginOutput, conversionKey, finishOutput, writeJson, writeProgress } from "./output-folder.js";
import {
  bytesOfShard,
  type ConversionPlan,
  type ConvertedWeight,
  isGgufTarget,
  type ShardPlan,
} from "./plan/steps.js";
import { requireSoundOutput, UnsoundWeightError } from "./soundness.js";
import type { NamedTarget } from "./targets/named.js";
import { TensorAppender } from "./tensor-appender.js";

const COPY_BYTES = 8 << 20;
/** The configuration of ModelOpt. */
export const MODELOPT_FILE = "hf_quant_config.json";
/**
 * The minimum ratio of noise to signal at which a weight is refused. A weight whose values all became 0 or the largest code has
 * this ratio.
 */
const MAX_NOISE_RATIO = 0.99;
/** Files of the input folder that are not copied. */
const NOT_COPIED =
  /\.safetensors$|\.gguf$|\.safetensors\.index\.json$|^\.|^config\.json$|^hf_quant_config\.json$/;

/**
 * Writes the output of a plan into the folder `output`, shard by shard, and returns the changes of each converted weight.
 * `onBytes` is called with the number of bytes of each write. An interrupted conversion leaves `output`.partial, where the same
 * conversion continues; after an error of the input, no files are left. Throws `FileError` for errors of files, for values that
 * would become NaN or infinite, and if the input or the output has an error.
 */
export async function writeConversion(
  checkpoint: CheckpointFiles,
  plan: ConversionPlan,
  output: string,
  onBytes: (count: number) => void = () => {},
): Promise<readonly WeightChanges[]> {
  const partial = `${output.replace(/\/+$/, "")}.partial`;
  const conversion = conversionKey(checkpoint, plan);
  const shards = { ...(await beginOutput(partial, conversion)).shards };
  for (const shard of plan.shards) {
    if (shards[shard.name]) onBytes(bytesOfShard(shard));
    else {
      shards[shard.name] = await writeShard(partial, plan, shard, checkpoint, onBytes).catch(
        async (error: unknown) => {
          if (error instanceof UnsoundWeightError) await refuseInput(partial, plan);
          throw error;
        },
      );
      await writeProgress(partial, { conversion, shards });
    }
  }
  await writeOtherFiles(checkpoint, plan, partial);
  if (plan.converted.size > 0)
    await requireSoundOutput(partial, (name) => plan.converted.get(name) === "quantized");
  await finishOutput(partial, output);
  return plan.shards.flatMap(({ name }) => shards[name] ?? []);
}

/** Removes the partial output, then checks the entire input, so that the `FileError` names the first error of the input. */
async function refuseInput(partial: string, plan: ConversionPlan): Promise<void> {
  await rm(partial, { recursive: true, force: true });
  await plan.requireSoundInput();
}

async function writeShard(
  folder: string,
  plan: ConversionPlan,
  shard: ShardPlan,
  checkpoint: CheckpointFiles,
  onBytes: (count: number) => void,
): Promise<readonly WeightChanges[]> {
  const changes: WeightChanges[] = [];
  const tensors = shard.steps.flatMap(({ outputs }) => outputs);
  const body = async (put: PutTensor): Promise<void> => {
    const appender = new TensorAppender(put, onBytes);
    for (const step of shard.steps) {
      if (step.kind === "copy") await copy(step.from, step.outputs[0], appender);
      else changes.push(await checkedChanges(step, plan.target, await step.write(appender)));
    }
  };
  const path = join(folder, shard.name);
  if (isGgufTarget(plan.target))
    await writeGguf(path, { tensors, metadata: await ggufMetadata(checkpoint, plan, shard) }, body);
  else await writeSafetensors(path, { tensors, metadata: shardMetadata(checkpoint, plan, shard) }, body);
  return changes;
}

/** The metadata of a safetensors file: entries that the target's library reads, or the format and Lockstep's recipes. */
export function shardMetadata(
  { metadata }: CheckpointFiles,
  { target, kept }: ConversionPlan,
  { steps }: ShardPlan,
): Metadata {
  const ofWeights = Object.fromEntries(
    steps.flatMap((step) => (step.kind === "convert" ? Object.entries(step.metadata ?? {}) : [])),
  );
  const copied = steps.flatMap((step) => (step.kind === "copy" ? [step.from.entry.name] : []));
  const ofLibrary = target.dialectTarget && fileMetadata(target.dialectTarget.declaration, ofWeights, copied);
  if (ofLibrary) return ofLibrary;
  const keptRecipes = Object.entries(metadata).filter(([key]) => {
    const name = recipeSubject(key);
    return name !== undefined && kept.includes(name) && copied.some((part) => part.startsWith(`${name}.`));
  });
  return {
    format: metadata.format ?? "pt",
    ...Object.fromEntries(keptRecipes),
    ...(target.lockstepQuantizer ? ofWeights : {}),
  };
}

/**
 * Returns the changes of a weight. Throws `FileError` if values became NaN or infinite, or if noise is as large as the signal.
 */
export async function checkedChanges(
  { name, method, whyNotFinite }: ConvertedWeight,
  target: NamedTarget,
  changes: Changes,
): Promise<WeightChanges> {
  const { elements, changed, max, relative, noise, signal, notFinite } = changes;
  const refuse = (problem: string): FileError =>
    new FileError(`tensor "${name}": ${problem}; leave it out by --tensors, or choose another form`);
  if (notFinite > 0) {
    const reason = (await whyNotFinite?.()) ?? "they are beyond its range";
    throw refuse(
      `${notFinite} of ${elements} values would become NaN or infinite as ${target.name}: ${reason}`,
    );
  }
  if (noise > 0 && noise >= MAX_NOISE_RATIO * signal)
    throw refuse(
      `as ${target.name}, the SQNR would be ${changes.sqnr.toFixed(2)} dB: its rule leaves nothing of the values, which are beyond its range`,
    );
  return { name, method, elements, changed, max, relative, noise, signal };
}

async function copy(
  { shard, entry }: StoredTensor,
  plan: TensorPlan,
  appender: TensorAppender,
): Promise<void> {
  const size = entry.end - entry.begin;
  for (let begin = 0; begin < size; begin += COPY_BYTES)
    await appender.append(plan, await shard.read(entry, begin, Math.min(size, begin + COPY_BYTES)));
}

/** Writes the index and the configurations, and copies the other files if the input is a folder. */
async function writeOtherFiles(
  checkpoint: CheckpointFiles,
  plan: ConversionPlan,
  partial: string,
): Promise<void> {
  if (plan.indexed) {
    const map = plan.shards.flatMap(({ name, steps }) =>
      steps.flatMap(({ outputs }) => outputs.map((output) => [output.name, name] as const)),
    );
    const index = { metadata: { total_size: plan.bytes }, weight_map: Object.fromEntries(map) };
    await writeJson(join(partial, checkpoint.index ?? "model.safetensors.index.json"), index);
  }
  const config = await inputConfig(checkpoint, plan);
  if (config) await writeJson(join(partial, "config.json"), convertedConfig(config, plan));
  const modelopt = convertedModelopt(await readOptionalJson(join(checkpoint.folder, MODELOPT_FILE)), plan);
  if (modelopt) await writeJson(join(partial, MODELOPT_FILE), modelopt);
  if (!checkpoint.isFolder) return;
  for (const entry of await readdir(checkpoint.folder, { withFileTypes: true })) {
    if (!entry.isFile() || NOT_COPIED.test(entry.name)) continue;
    await copyFile(join(checkpoint.folder, entry.name), join(partial, entry.name)).catch((cause: unknown) => {
      throw fileError(entry.name, "cannot be copied", cause);
    });
  }
}
