/** Selects the weights of a conversion to a quantization, and plans how each gets its codes and scales. */
import type { Backend } from "../../../backends/backend.js";
import { quantizerOf } from "../../../dialects/quantizer-of.js";
import { ArgumentError, FileError } from "../../../errors.js";
import type { BlockFormatName } from "../../../formats/block.js";
import { usesTensorAmax } from "../../../formats/block.js";
import { tensorDType } from "../../../io/dtypes.js";
import { isWide, type WideDType } from "../../../tensor/shape.js";
import { selectNames } from "../../glob.js";
import { fusedGroup } from "../../judge/weights/fused.js";
import type { Kernels } from "../../kernels/kernels.js";
import { isEmbedding, isLayer, isLinear, isQuantizable } from "../../recognize/layer-roles.js";
import type { CodeTypeName } from "../../stored/code-types.js";
import type { ConventionName } from "../../stored/conventions.js";
import { conventionOf } from "../../stored/conventions.js";
import type { LockstepWeight } from "../../stored/lockstep-weights.js";
import type { StoredTensor } from "../../stored/tensors.js";
import { transposedShape } from "../../stored/transpose.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import type { Survey } from "../../survey.js";
import { lockstepSource, lockstepTensorNames } from "../../values/lockstep.js";
import {
  amaxesOf,
  plainSource,
  quantizedSource,
  type Source,
  transposedSource,
} from "../../values/source.js";
import type { Changes } from "../changes/changes.js";
import { weightMetadata } from "../metadata/quantization-config.js";
import { quantizeWeight, whyNotFinite } from "../quantize/dialect.js";
import { quantizeByGgml } from "../quantize/ggml.js";
import { lockstepStep, whyNotLockstep } from "../quantize/lockstep.js";
import { repackScales } from "../repack/scales.js";
import { writeRepacked } from "../repack/write.js";
import type { Target } from "../targets/table.js";
import { type OutputTensors, outputTensors, whyUnfit } from "../targets/tensors.js";
import type { TensorAppender } from "../tensor-appender.js";
import type { Conversions, ConvertedWeight } from "./steps.js";

/** The requested conversion. */
export interface QuantizationRequest {
  readonly name: string;
  readonly target: Target;
  /** Patterns of names; default as in `ConvertCheckpointOptions`. */
  readonly tensors: readonly string[] | undefined;
  /** The type of the model. */
  readonly dtype: WideDType;
  /** Opens the backend; called at the first weight that has to be quantized. */
  readonly backend: () => Promise<Backend>;
  /** Opens the kernels that read and compare. */
  readonly kernels: () => Promise<Kernels>;
}

/** What errors call the form that `lockstep quantize` writes. */
const LOCKSTEP = "lockstep";

interface Candidate {
  readonly source: Source;
  /** The tensor that the new form replaces. */
  readonly place: string;
  readonly parts: OutputTensors;
  readonly weight?: QuantizedWeight;
  /** The global scale, 1 if there is none; absent if codes and scales cannot be repacked without rounding. */
  readonly repackedGlobal?: number;
}

/**
 * Plans the conversion. Selected: weights that match `tensors`; else the already quantized ones; else all linear layers. Reads
 * scales, and no codes. Throws `ArgumentError` for a pattern that matches nothing, `FileError` for a weight that cannot have the
 * form.
 */
export async function quantizedConversions(
  surveyed: Survey,
  request: QuantizationRequest,
): Promise<Conversions> {
  const { target } = request;
  const quantizer = target.dialect === undefined ? undefined : quantizerOf({ dialect: target.dialect });
  const spec = quantizer?.spec;
  const { transposedWide } = conventionOf(target.convention);
  const { weights, lockstepWeights, plain, skipped } = select(surveyed, request, (name, shape, isPlain) =>
    whyUnfit(target, spec, name, isPlain && transposedWide ? transposedShape(shape) : shape),
  );
  const partsFor = (source: Source, scales: WideDType): OutputTensors =>
    outputTensors(target, spec, { ...source, source: scales });
  const candidates: Candidate[] = plain.map((stored) => {
    const source = transposedWide ? transposedSource(plainSource(stored)) : plainSource(stored);
    return { source, place: stored.entry.name, parts: partsFor(source, source.dtype) };
  });
  for (const weight of lockstepWeights) {
    const source = lockstepSource(weight, request.backend);
    const [place = ""] = lockstepTensorNames(weight);
    candidates.push({ source, place, parts: partsFor(source, source.dtype) });
  }
  for (const weight of weights) {
    const source = quantizedSource(weight);
    const place = weight.codes.entry.name;
    const parts = partsFor(source, scaleType(weight));
    const twin = twinOf(weight);
    const scales = await repackScales(await request.kernels(), twin, target, parts);
    if (scales)
      candidates.push({ source, place, weight: twin, parts, repackedGlobal: scales.globals[0] ?? 1 });
    else candidates.push({ source, place, weight, parts: partsFor(source, source.dtype) });
  }
  if (candidates.length === 0) throw nothing(request.name, skipped);
  const groups = groupsOf(target, candidates);
  const amaxes = new Map<readonly Candidate[], Promise<readonly number[]>>();
  const steps = candidates.map((candidate): [string, ConvertedWeight] => {
    const group = groups.get(candidate) ?? [candidate];
    const { source, weight, parts, place } = candidate;
    const isRepacked = group.every(
      ({ repackedGlobal }) => repackedGlobal !== undefined && repackedGlobal === group[0]?.repackedGlobal,
    );
    if (!isRepacked && !quantizer && !target.ggml) throw noQuantizer(request.name, source.name);
    const quantized = async (output: TensorAppender): Promise<Changes> => {
      const kernels = await request.kernels();
      if (target.ggml) return quantizeByGgml(kernels, source, parts, output);
      if (!quantizer) throw noQuantizer(request.name, source.name);
      const groupAmaxes = usesTensorAmax(quantizer.spec)
        ? await amaxesOfAll(kernels, amaxes, group)
        : undefined;
      const backend = await request.backend();
      return quantizeWeight({ backend, kernels, quantizer, target }, source, parts, groupAmaxes, output);
    };
    const { codes, scale, global } = parts;
    const step: ConvertedWeight = {
      kind: "convert",
      name: source.name,
      method: isRepacked ? "repacked" : "quantized",
      outputs: [codes, scale, ...(global ? [global] : [])],
      metadata: weightMetadata(target.declaration, source, parts, weight ? request.dtype : source.dtype),
      ...(quantizer ? { whyNotFinite: async () => whyNotFinite(await request.backend(), quantizer) } : {}),
      write:
        weight && isRepacked
          ? async (output) => writeRepacked(await request.kernels(), weight, target, parts, output)
          : quantized,
    };
    return [place, step];
  });
  const converted = new Set(candidates.map(({ source }) => source.name));
  const rest = surveyed.plain.filter((stored) => isLayer(stored) && !converted.has(stored.entry.name));
  const named = rest.filter((stored) => target.declaration.method === "modelopt" || !isEmbedding(stored));
  return {
    steps: new Map(steps),
    quantized: weights,
    lockstepWeights,
    kept: [],
    skipped,
    ignored: named.map(({ entry: { name } }) => name.replace(/\.weight$/, "")),
  };
}

/** The type of a weight's scales if it is wide, else f32. A target with scales of the model's type repacks them in this type. */
function scaleType({ scale }: QuantizedWeight): WideDType {
  const type = tensorDType(scale.entry.dtype);
  return type !== undefined && isWide(type) ? type : "f32";
}

/** Plans conversions to the form that `lockstep quantize` writes. Selects and throws as `quantizedConversions`. */
export function lockstepConversions(
  surveyed: Survey,
  request: Omit<QuantizationRequest, "target" | "dtype"> & { readonly quantizer: BlockFormatName },
): Conversions {
  const { quantizer, backend } = request;
  const { weights, lockstepWeights, plain, skipped } = select(surveyed, request, (_, shape) =>
    whyNotLockstep(quantizer, shape),
  );
  const sources: readonly (readonly [place: string | undefined, Source])[] = [
    ...plain.map((stored) => [stored.entry.name, plainSource(stored)] as const),
    ...weights.map((weight) => [weight.codes.entry.name, quantizedSource(weight)] as const),
    ...lockstepWeights.map(
      (weight) => [lockstepTensorNames(weight)[0], lockstepSource(weight, backend)] as const,
    ),
  ];
  if (sources.length === 0) throw nothing(request.name, skipped);
  const steps = sources.map(
    ([place = "", source]) => [place, lockstepStep(source, quantizer, request)] as const,
  );
  return {
    steps: new Map(steps),
    quantized: weights,
    lockstepWeights,
    kept: [],
    skipped,
    ignored: [],
  };
}

interface Selection {
  readonly weights: readonly QuantizedWeight[];
  readonly lockstepWeights: readonly LockstepWeight[];
  readonly plain: readonly StoredTensor[];
  readonly skipped: ReadonlyMap<string, string>;
}

function select(
  { weights, lockstepWeights: all, plain }: Survey,
  { name, tensors }: Pick<QuantizationRequest, "name" | "tensors">,
  whyNot: (name: string, shape: readonly number[], isPlain: boolean) => string | undefined,
): Selection {
  const quantizable = plain.filter(isQuantizable);
  const lockstepWeights = all.map((weight) => ({
    ...weight,
    shape: weight.recipe.shape,
    convention: LOCKSTEP,
  }));
  const quantized = [...weights, ...lockstepWeights];
  const why = (
    { name, shape }: { readonly name: string; readonly shape: readonly number[] },
    isPlain = false,
  ): string | undefined => whyNot(name, shape, isPlain);
  if (!tensors) {
    const skipped = new Map<string, string>();
    for (const weight of quantized) requireFit(name, weight.name, why(weight));
    const linear = quantized.length > 0 ? [] : quantizable.filter(isLinear);
    const fit = linear.filter(({ entry }) => {
      const reason = why(entry, true);
      if (reason !== undefined) skipped.set(entry.name, reason);
      return reason === undefined;
    });
    return { weights, lockstepWeights, plain: fit, skipped };
  }
  const names = [...quantized.map((weight) => weight.name), ...quantizable.map(({ entry }) => entry.name)];
  const isSelected = selectNames(tensors, names);
  const [other] = quantized.filter((weight) => !isSelected(weight.name));
  if (other)
    throw new ArgumentError(
      `--tensors: "${other.name}" is quantized already (${other.convention}) and would stay so; a checkpoint has one quantization: convert all, or convert to bf16 first`,
    );
  const more = quantizable.filter(({ entry }) => isSelected(entry.name));
  for (const weight of quantized) requireFit(name, weight.name, why(weight));
  for (const { entry } of more) requireFit(name, entry.name, why(entry, true));
  return { weights, lockstepWeights, plain: more, skipped: new Map() };
}

function requireFit(target: string, name: string, why: string | undefined): void {
  if (why === undefined) return;
  throw new FileError(
    `tensor "${name}": cannot be ${target}: ${why}; leave it out by --tensors, or convert it to bf16`,
  );
}

function nothing(target: string, left: ReadonlyMap<string, string>): FileError {
  const [first] = left;
  const why = first ? `"${first[0]}" and ${left.size - 1} others do not fit: ${first[1]}` : "there are none";
  return new FileError(
    `no weight of a linear layer can be ${target}: ${why}; choose weights by --tensors, or another form`,
  );
}

function noQuantizer(target: string, name: string): FileError {
  return new FileError(
    `tensor "${name}": ${target} has no quantizer whose codes are known; only codes and scales of the same kind can be repacked without rounding`,
  );
}

/** The candidates that share a global scale: projections that loaders fuse, if the convention has one scale for all of them. */
function groupsOf(
  target: Target,
  candidates: readonly Candidate[],
): ReadonlyMap<Candidate, readonly Candidate[]> {
  const groups = new Map<Candidate, readonly Candidate[]>();
  if (!conventionOf(target.convention).global?.fused) return groups;
  const byKey = new Map<string, Candidate[]>();
  for (const candidate of candidates) {
    const key = fusedGroup(candidate.source.name);
    if (key === undefined) continue;
    const members = byKey.get(key) ?? [];
    members.push(candidate);
    byKey.set(key, members);
    groups.set(candidate, members);
  }
  return groups;
}

/** The amax over all weights of a group. If each matrix of a weight has a global scale, one amax for each matrix. */
function amaxesOfAll(
  kernels: Kernels,
  amaxes: Map<readonly Candidate[], Promise<readonly number[]>>,
  group: readonly Candidate[],
): Promise<readonly number[]> {
  const cached = amaxes.get(group);
  if (cached) return cached;
  const computed = (async () => {
    const [first] = group;
    if (first && first.parts.globals > 1) return amaxesOf(kernels, first.source);
    let largest = 0;
    for (const { source } of group)
      for (const amax of await amaxesOf(kernels, source)) largest = Math.max(largest, amax);
    return [largest];
  })();
  amaxes.set(group, computed);
  return computed;
}

/**
 * Conventions whose tensors are equal to GGUF's. GGUF doubles the codes and halves the scales, so the products are the same.
 * Scale bytes that are NaN in one, such as 0x7F of e4m3, are NaN in the other; code 8 is minus zero.
 */
const TWINS: Readonly<Partial<Record<ConventionName, ConventionName>>> = {
  "gguf-mxfp4": "torchao-mxfp4",
  "gguf-nvfp4": "torchao-nvfp4",
  "gguf-nvfp4-bare": "torchao-nvfp4-single",
};
const TYPE: CodeTypeName = "e2m1";

/** The weight under its twin convention; the weight itself if there is none. */
function twinOf(weight: QuantizedWeight): QuantizedWeight {
  const convention = TWINS[weight.convention];
  return convention === undefined ? weight : { ...weight, convention, type: TYPE };
}
