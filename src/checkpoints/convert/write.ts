/** Writes the output of a planned conversion. */
import { copyFile, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileError } from "../../io/files.js";
import type { PutTensor, TensorPlan } from "../../io/header/header.js";
import { writeSafetensors } from "../../io/safetensors-writer.js";
import { writeGguf } from "../gguf/writer.js";
import { inspectFiles } from "../inspect.js";
import type { Finding } from "../judge/findings.js";
import { CIRCUMSTANTIAL } from "../judge/weights/from-statistics.js";
import { CONFIG_FILE, MODELOPT_FILE } from "../stored/config/config.js";
import type { CheckpointFiles } from "../stored/files.js";
import { readJson } from "../stored/folder.js";
import { openCheckpointFiles } from "../stored/open.js";
import type { StoredTensor } from "../stored/tensors.js";
import { surveyFiles } from "../survey.js";
import { checkedChanges } from "./changes/checked.js";
import type { WeightChanges } from "./changes/weight-changes.js";
import { ggufMetadata } from "./metadata/gguf.js";
import { convertedConfig, convertedModelopt, inputConfig } from "./metadata/output-config.js";
import { shardMetadata } from "./metadata/shard.js";
import { beginOutput, conversionKey, finishOutput, writeJson, writeProgress } from "./output-folder.js";
import { bytesOfShard, type ConversionPlan, isGgufTarget, type ShardPlan } from "./plan/steps.js";
import { stopAt, UnsoundWeightError } from "./soundness.js";
import { TensorAppender } from "./tensor-appender.js";

const COPY_BYTES = 8 << 20;
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
  if (config) await writeJson(join(partial, CONFIG_FILE), convertedConfig(config, plan));
  const modelopt = convertedModelopt(await readJson(checkpoint.folder, MODELOPT_FILE), plan);
  if (modelopt) await writeJson(join(partial, MODELOPT_FILE), modelopt);
  if (!checkpoint.isFolder) return;
  for (const entry of await readdir(checkpoint.folder.path, { withFileTypes: true })) {
    if (!entry.isFile() || NOT_COPIED.test(entry.name)) continue;
    await copyFile(checkpoint.folder.pathOf(entry.name), join(partial, entry.name)).catch(
      (cause: unknown) => {
        throw fileError(entry.name, "cannot be copied", cause);
      },
    );
  }
}

/**
 * Throws `FileError` if the files of a folder have an error. Reads the codes of the selected weights. Ignores circumstantial
 * findings, because the values were compared with the input.
 */
async function requireSoundOutput(folder: string, isSelected: (name: string) => boolean): Promise<void> {
  const checkpoint = await openCheckpointFiles(folder);
  try {
    const { findings } = await inspectFiles(checkpoint, await surveyFiles(checkpoint), {
      isSelected,
      onlyErrors: true,
    });
    const isStop = ({ name, severity }: Finding): boolean =>
      severity === "error" && !CIRCUMSTANTIAL.has(name);
    stopAt(folder, findings.filter(isStop));
  } finally {
    await checkpoint.close();
  }
}
