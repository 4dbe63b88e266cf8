/** The steps of a conversion. A step copies a tensor or writes a converted weight. */
import type { Backend } from "../../../backends/backend.js";
import { FileError } from "../../../errors.js";
import { fileBytes } from "../../../io/dtypes.js";
import type { Metadata, TensorPlan } from "../../../io/header/header.js";
import { packedAs } from "../../gguf/file.js";
import { ggufTensors } from "../../gguf/written-tensors.js";
import type { Kernels } from "../../kernels/kernels.js";
import { conventionOf } from "../../stored/conventions.js";
import type { CheckpointFiles } from "../../stored/files.js";
import { fileNameOf } from "../../stored/folder.js";
import type { LockstepWeight } from "../../stored/lockstep-weights.js";
import type { StoredTensor } from "../../stored/tensors.js";
import { transposedShape, transposing } from "../../stored/transpose.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import type { Survey } from "../../survey.js";
import { lockstepSource, lockstepTensorNames } from "../../values/lockstep.js";
import { numbersOf, plainSource, type Source } from "../../values/source.js";
import { Changes } from "../changes/changes.js";
import type { ConversionMethod } from "../changes/weight-changes.js";
import { encodeWide, type WideTarget } from "../dequantize/round.js";
import { writeDequantized } from "../dequantize/write.js";
import type { NamedTarget } from "../targets/named.js";
import type { TensorAppender } from "../tensor-appender.js";

/** A weight in its new form. */
export interface ConvertedWeight {
  readonly kind: "convert";
  /** The name of the weight before quantization. */
  readonly name: string;
  readonly method: ConversionMethod;
  readonly outputs: readonly TensorPlan[];
  /** The metadata entries of the weight. */
  readonly metadata?: Metadata;
  /** Writes the output tensors. Throws `UnsoundWeightError` for errors in codes that nothing has read before this call. */
  readonly write: (output: TensorAppender) => Promise<Changes>;
  /** Returns the reason why values became NaN or infinite; undefined if it is unknown. */
  readonly whyNotFinite?: () => Promise<string | undefined>;
}

/** One step: copies a tensor, or writes a weight in its new form. */
export type Step =
  | { readonly kind: "copy"; readonly outputs: readonly [TensorPlan]; readonly from: StoredTensor }
  | ConvertedWeight;

/** A file of the output. */
export interface ShardPlan {
  readonly name: string;
  readonly steps: readonly Step[];
}

/** A planned conversion. */
export interface ConversionPlan {
  readonly target: NamedTarget;
  readonly shards: readonly ShardPlan[];
  /** Whether the output has an index. */
  readonly indexed: boolean;
  /** The conversion method of each converted weight, by name. */
  readonly converted: ReadonlyMap<string, ConversionMethod>;
  /** The names of the quantized weights that are copied. */
  readonly kept: readonly string[];
  /** Weights that could be quantized but do not fit the target, with the reasons. */
  readonly skipped: ReadonlyMap<string, string>;
  /** The unquantized modules that the configuration must list. */
  readonly ignored: readonly string[];
  /** Tensors of converted weights that the output does not need, such as activation scales. */
  readonly dropped: readonly string[];
  /** The bytes of all tensors of the output. */
  readonly bytes: number;
  /**
   * Reads and checks all weights to convert, including the weights that `write` checks while it copies them. Throws `FileError`.
   */
  readonly requireSoundInput: () => Promise<void>;
}

/** The conversions of a plan. `steps` maps the name of an input tensor to the conversion that replaces the tensor. */
export interface Conversions {
  readonly steps: ReadonlyMap<string, ConvertedWeight>;
  /** The quantized weights that are converted. */
  readonly quantized: readonly QuantizedWeight[];
  /** The converted weights that `lockstep quantize` wrote. */
  readonly lockstepWeights: readonly LockstepWeight[];
  readonly kept: readonly string[];
  readonly skipped: ReadonlyMap<string, string>;
  readonly ignored: readonly string[];
}

const FILE_DTYPE = { bf16: "BF16", f32: "F32" } as const;

/** The names that a conversion to a wide type can select: quantized weights, and packed tensors of GGUF files. */
export function dequantizableNames({ weights, lockstepWeights, plain }: Survey): readonly string[] {
  const packed = plain.filter(({ shard, entry }) => packedAs(shard, entry.name));
  return [
    ...[...weights, ...lockstepWeights].map(({ name }) => name),
    ...packed.map(({ entry }) => entry.name),
  ];
}

/** Conversions of the selected quantized weights and packed tensors to a wide type. */
export function wideConversions(
  { weights, lockstepWeights: surveyedLockstepWeights, plain }: Survey,
  target: WideTarget,
  isSelected: (name: string) => boolean,
  { kernels, backend }: { kernels: () => Promise<Kernels>; backend: () => Promise<Backend> },
): Conversions {
  const quantized = weights.filter(({ name }) => isSelected(name));
  const steps = quantized.map((weight): [string, ConvertedWeight] => {
    const { name, shape } = weight;
    const isTransposed = conventionOf(weight.convention).transposedWide === true;
    const output = {
      name,
      dtype: FILE_DTYPE[target],
      shape: isTransposed ? transposedShape(shape) : shape,
    };
    const write = async (to: TensorAppender): Promise<Changes> => {
      const append = (bytes: Uint8Array): Promise<void> => to.append(output, bytes);
      const appendRows = isTransposed ? transposing(shape, fileBytes(output.dtype, [1]), append) : append;
      return writeDequantized(await kernels(), weight, target, appendRows);
    };
    return [
      weight.codes.entry.name,
      { kind: "convert", name: weight.name, method: "dequantized", outputs: [output], write },
    ];
  });
  const lockstepWeights = surveyedLockstepWeights.filter(({ name }) => isSelected(name));
  const packed = plain.filter(({ entry: { name }, shard }) => packedAs(shard, name) && isSelected(name));
  const sources: readonly (readonly [place: string | undefined, Source])[] = [
    ...packed.map((tensor) => [tensor.entry.name, plainSource(tensor)] as const),
    ...lockstepWeights.map(
      (weight) => [lockstepTensorNames(weight)[0], lockstepSource(weight, backend)] as const,
    ),
  ];
  for (const [inputName = "", source] of sources) {
    const { name, shape } = source;
    const output = { name, dtype: FILE_DTYPE[target], shape };
    const write = async (to: TensorAppender): Promise<Changes> => {
      const changes = new Changes();
      for await (const rows of source.rows(await kernels()))
        await to.append(output, encodeWide(target, Float64Array.from(numbersOf(rows)), changes));
      return changes;
    };
    steps.push([inputName, { kind: "convert", name, method: "dequantized", outputs: [output], write }]);
  }
  const kept = [...weights, ...surveyedLockstepWeights]
    .filter(({ name }) => !isSelected(name))
    .map(({ name }) => name);
  return {
    steps: new Map(steps),
    quantized,
    lockstepWeights,
    kept,
    skipped: new Map(),
    ignored: [],
  };
}

/** Assembles the plan for `conversions`. Throws `FileError` if the output would contain a tensor twice. */
export function assemblePlan(
  checkpoint: CheckpointFiles,
  target: NamedTarget,
  { steps, quantized, lockstepWeights, kept, skipped: skippedReasons, ignored }: Conversions,
): Omit<ConversionPlan, "requireSoundInput"> {
  const partNames = new Set([...quantized.flatMap(partsOf), ...lockstepWeights.flatMap(lockstepTensorNames)]);
  const isCompanion = companionsOf(quantized);
  const droppedNames: string[] = [];
  const shards = checkpoint.shards.map((shard) => {
    const shardSteps: Step[] = [];
    for (const { name, dtype, shape } of shard.tensors.values()) {
      const from = checkpoint.tensors.get(name);
      if (!from || from.shard !== shard) continue;
      const step = steps.get(name);
      if (step) shardSteps.push(step);
      else if (isCompanion(name)) droppedNames.push(name);
      else if (!partNames.has(name))
        shardSteps.push({ kind: "copy", outputs: [{ name, dtype, shape }], from });
    }
    return { name: fileNameOf(shard.path), steps: shardSteps };
  });
  const gguf = isGgufTarget(target);
  const [firstShard] = shards;
  const single = shards.length === 1 && firstShard && checkpoint.index === undefined;
  const writtenShards = single
    ? [{ ...firstShard, name: "model.safetensors" }]
    : shards.filter(({ steps }) => steps.length > 0);
  const namedShards = gguf ? nameGgufShards(writtenShards) : writtenShards;
  requireUnique(namedShards);
  if (gguf) for (const { name, steps } of namedShards) ggufTensors(name, outputsOf(steps));
  return {
    target,
    shards: namedShards,
    indexed: !single && !gguf,
    converted: new Map([...steps.values()].map(({ name, method }) => [name, method])),
    kept,
    skipped: skippedReasons,
    ignored,
    dropped: droppedNames,
    bytes: namedShards.reduce((sum, shard) => sum + bytesOfShard(shard), 0),
  };
}

/** Whether the files of a target are GGUF. */
export function isGgufTarget({ dialectTarget: row }: NamedTarget): boolean {
  return row !== undefined && conventionOf(row.convention).container === "gguf";
}

/** Names shards as GGUF files, with the suffixes by which llama.cpp finds the parts of a split model. */
function nameGgufShards(shards: readonly ShardPlan[]): readonly ShardPlan[] {
  const digits = (value: number): string => String(value).padStart(5, "0");
  return shards.map((shard, i) => ({
    ...shard,
    name: shards.length === 1 ? "model.gguf" : `model-${digits(i + 1)}-of-${digits(shards.length)}.gguf`,
  }));
}

/** The tensors that steps write. */
export function outputsOf(steps: readonly Step[]): readonly TensorPlan[] {
  return steps.flatMap(({ outputs }) => outputs);
}

/** The bytes of the tensors of a file. */
export function bytesOfShard({ steps }: ShardPlan): number {
  return outputsOf(steps).reduce((sum, { dtype, shape }) => sum + fileBytes(dtype, shape), 0);
}

function partsOf({ codes, scale, global }: QuantizedWeight): readonly string[] {
  return [codes, scale, ...(global ? [global] : [])].map(({ entry }) => entry.name);
}

/** Returns whether a tensor belongs to a converted weight and is neither its codes nor its scales. */
function companionsOf(converted: readonly QuantizedWeight[]): (name: string) => boolean {
  const names = converted.flatMap(({ convention, codes: { entry } }) => {
    const { codes, others = [] } = conventionOf(convention);
    const prefix = entry.name.slice(0, entry.name.length - codes.suffix.length);
    return others.map((end) => prefix + end);
  });
  const companionNames = new Set(names);
  return (name) => companionNames.has(name);
}

function requireUnique(shards: readonly ShardPlan[]): void {
  const names = new Set<string>();
  for (const { steps } of shards) {
    for (const { name } of steps.flatMap(({ outputs }) => outputs)) {
      if (names.has(name))
        throw new FileError(`tensor "${name}": the output would have it twice; remove one of them first`);
      names.add(name);
    }
  }
}
