/**
 * A converted checkpoint without files. A weight is converted when its tensors are read, and of each file only one converted
 * weight is in memory at a time.
 */
import type { Backend } from "../../backends/backend.js";
import { fileBytes } from "../../io/dtypes.js";
import type { Metadata, PutTensor, TensorEntry } from "../../io/header/header.js";
import { planEntries } from "../../io/header/header-write.js";
import { rangeOf, TensorSource } from "../../io/source.js";
import { claimIn } from "../stored/config/claim.js";
import { type Configuration, configurationPaths, MODELOPT_FILE } from "../stored/config/config.js";
import type { CheckpointFiles } from "../stored/files.js";
import { readJson } from "../stored/folder.js";
import { type Survey, surveyTensors } from "../survey.js";
import { checkedChanges } from "./changes/checked.js";
import type { WeightChanges } from "./changes/weight-changes.js";
import { convertedConfig, convertedModelopt, inputConfig } from "./metadata/output-config.js";
import { shardMetadata } from "./metadata/shard.js";
import { planConversion } from "./plan/plan.js";
import {
  type ConversionPlan,
  type ConvertedWeight,
  isGgufTarget,
  outputsOf,
  type ShardPlan,
  type Step,
} from "./plan/steps.js";
import type { NamedTarget } from "./targets/named.js";
import { TensorAppender } from "./tensor-appender.js";

/** A converted checkpoint in memory. */
export interface ConvertedInMemory {
  /** The recognized tensors of the converted checkpoint. The input must stay open while tensors are read. */
  readonly survey: Survey;
  /** The changes of each weight that was read so far, by name. */
  readonly changes: ReadonlyMap<string, WeightChanges>;
  readonly plan: ConversionPlan;
  /** Converts a weight of the plan, unless it was converted last, and returns its changes. */
  readonly convert: (name: string) => Promise<WeightChanges>;
}

/**
 * Converts as `convertCheckpoint` does by default, but writes no files. Throws the errors of `planConversion`. Reading a tensor
 * throws `FileError` if values would become NaN or infinite.
 */
export async function convertInMemory(
  files: CheckpointFiles,
  target: NamedTarget,
  backend: () => Promise<Backend>,
): Promise<ConvertedInMemory> {
  const plan = await planConversion(files, { target, backend });
  const changes = new Map<string, WeightChanges>();
  const isGguf = isGgufTarget(target);
  const shards = plan.shards.map((shard) => {
    const metadata = isGguf ? {} : shardMetadata(files, plan, shard);
    return new ConvertedShard(`${files.path} as ${target.name}`, shard, plan, metadata, changes);
  });
  const tensors = new Map(
    shards.flatMap((shard) => [...shard.tensors].map(([name, entry]) => [name, { entry, shard }] as const)),
  );
  const { path, folder, isFolder } = files;
  const checkpoint: CheckpointFiles = {
    ...{ path, folder, isFolder, shards, tensors, findings: [] },
    metadata: Object.assign({}, ...shards.map(({ metadata }) => metadata)) as Metadata,
    ...(isGguf ? { container: "gguf" } : {}),
    close: async () => {},
  };
  const configuration = isGguf ? { present: false, findings: [] } : await configurationOf(files, plan);
  const shardOf = new Map(
    plan.shards.flatMap(({ steps }, i) =>
      steps.flatMap((step) => (step.kind === "convert" ? [[step.name, { step, shard: shards[i] }]] : [])),
    ) as [string, { readonly step: ConvertedWeight; readonly shard: ConvertedShard }][],
  );
  return {
    ...{ survey: await surveyTensors(checkpoint, configuration), changes, plan },
    convert: async (name) => {
      const place = shardOf.get(name);
      await place?.shard.convert(place.step);
      return changes.get(name) as WeightChanges;
    },
  };
}

/** The configuration that the conversion would write. */
async function configurationOf(files: CheckpointFiles, plan: ConversionPlan): Promise<Configuration> {
  const { folder } = files;
  const paths = configurationPaths(folder);
  const config = await inputConfig(files, plan);
  const model = config && convertedConfig(config, plan);
  const claim = claimIn(paths, model, convertedModelopt(await readJson(folder, MODELOPT_FILE), plan));
  return {
    present: model !== undefined,
    findings: [],
    ...(claim ? { claim } : {}),
    ...(model ? { model } : {}),
  };
}

/** The tensors of a file that a conversion would write. */
class ConvertedShard extends TensorSource {
  readonly #steps: ReadonlyMap<string, Step>;
  readonly #plan: ConversionPlan;
  readonly #changes: Map<string, WeightChanges>;
  /** The most recently converted weight, and the bytes of its tensors. */
  #last:
    | { readonly step: ConvertedWeight; readonly bytes: Promise<ReadonlyMap<string, Uint8Array>> }
    | undefined;

  constructor(
    path: string,
    { steps }: ShardPlan,
    plan: ConversionPlan,
    metadata: Metadata,
    changes: Map<string, WeightChanges>,
  ) {
    super(path, { tensors: planEntries(path, outputsOf(steps)), metadata });
    this.#steps = new Map(steps.flatMap((step) => step.outputs.map(({ name }) => [name, step] as const)));
    this.#plan = plan;
    this.#changes = changes;
  }

  override async read(entry: TensorEntry, begin?: number, end?: number): Promise<Uint8Array> {
    const [from, to] = rangeOf(this.path, entry, begin, end);
    const step = this.#steps.get(this.entry(entry.name).name) as Step;
    if (step.kind === "copy") return step.from.shard.read(step.from.entry, from, to);
    return ((await this.convert(step)).get(entry.name) as Uint8Array).slice(from, to);
  }

  /** The bytes of the tensors of a converted weight. */
  convert(step: ConvertedWeight): Promise<ReadonlyMap<string, Uint8Array>> {
    if (this.#last?.step !== step) this.#last = { step, bytes: this.#convert(step) };
    return this.#last.bytes;
  }

  async #convert(step: ConvertedWeight): Promise<ReadonlyMap<string, Uint8Array>> {
    const all = new Map(
      step.outputs.map(({ name, dtype, shape }) => [name, new Uint8Array(fileBytes(dtype, shape))]),
    );
    const put: PutTensor = async (name, bytes, offset) => {
      all.get(name)?.set(bytes, offset);
    };
    const changes = await step.write(new TensorAppender(put, () => {}));
    this.#changes.set(step.name, await checkedChanges(step, this.#plan.target, changes));
    return all;
  }
}
