/** Plans conversions to quantizations: the codes and scales of each selected weight are repacked or computed. */
import { quantizerOf } from "../../../dialects/quantizer-of.js";
import { FileError } from "../../../errors.js";
import type { BlockFormatName } from "../../../formats/block.js";
import { usesTensorAmax } from "../../../formats/block.js";
import type { Quantizer } from "../../../quantizers/quantizer.js";
import { isEmbedding, isLayer } from "../../recognize/layer-roles.js";
import { conventionOf } from "../../stored/conventions.js";
import type { StoredTensor } from "../../stored/tensors.js";
import { transposedShape } from "../../stored/transpose.js";
import type { Survey } from "../../survey.js";
import { lockstepSource, lockstepTensorNames } from "../../values/lockstep.js";
import { plainSource, quantizedSource, type Source } from "../../values/source.js";
import type { Changes } from "../changes/changes.js";
import { weightMetadata } from "../metadata/quantization-config.js";
import { quantizeWeight, whyNotFinite } from "../quantize/dialect.js";
import { quantizeByGgml } from "../quantize/ggml.js";
import { lockstepStep, whyNotLockstep } from "../quantize/lockstep.js";
import { writeRepacked } from "../repack/write.js";
import type { Target } from "../targets/table.js";
import { whyUnfit } from "../targets/tensors.js";
import type { TensorAppender } from "../tensor-appender.js";
import { type Candidate, candidatesOf, GroupAmaxes, groupsOf } from "./candidates.js";
import { nothingSelected, type QuantizationRequest, selectWeights } from "./selection.js";
import type { Conversions, ConvertedWeight } from "./steps.js";

/**
 * Plans the conversion. Selects the weights that match `tensors`; without patterns the quantized weights; without quantized
 * weights all linear layers. Reads scales, but no codes. Throws `ArgumentError` for a pattern that matches nothing, `FileError`
 * for a weight that cannot have the form.
 */
export async function quantizedConversions(
  survey: Survey,
  request: QuantizationRequest,
): Promise<Conversions> {
  const { target } = request;
  const quantizer = target.dialect === undefined ? undefined : quantizerOf({ dialect: target.dialect });
  const { transposedWide } = conventionOf(target.convention);
  const selection = selectWeights(survey, request, (name, shape, isPlain) =>
    whyUnfit(target, quantizer?.spec, name, isPlain && transposedWide ? transposedShape(shape) : shape),
  );
  const candidates = await candidatesOf(selection, request, quantizer?.spec);
  if (candidates.length === 0) throw nothingSelected(request.name, selection.skipped);
  const groups = groupsOf(target, candidates);
  const amaxes = new GroupAmaxes();
  const steps = candidates.map((candidate) => {
    const group = groups.get(candidate) ?? [candidate];
    return [candidate.inputName, stepOf(candidate, group, amaxes, request, quantizer)] as const;
  });
  return {
    steps: new Map(steps),
    quantized: selection.weights,
    lockstepWeights: selection.lockstepWeights,
    kept: [],
    skipped: selection.skipped,
    ignored: ignoredModules(target, survey.plain, candidates),
  };
}

/**
 * The step of a weight: it repacks the weight if all members of its group can be repacked with one global scale, and quantizes it
 * otherwise.
 */
function stepOf(
  { source, weight, parts }: Candidate,
  group: readonly Candidate[],
  amaxes: GroupAmaxes,
  request: QuantizationRequest,
  quantizer: Quantizer | undefined,
): ConvertedWeight {
  const { target } = request;
  const isRepacked = group.every(
    ({ repackedGlobal }) => repackedGlobal !== undefined && repackedGlobal === group[0]?.repackedGlobal,
  );
  if (!isRepacked && !quantizer && !target.ggml) throw noQuantizer(request.name, source.name);
  const quantized = async (output: TensorAppender): Promise<Changes> => {
    const kernels = await request.kernels();
    if (target.ggml) return quantizeByGgml(kernels, source, parts, output);
    if (!quantizer) throw noQuantizer(request.name, source.name);
    const groupAmaxes = usesTensorAmax(quantizer.spec) ? await amaxes.amaxesOf(kernels, group) : undefined;
    const backend = await request.backend();
    return quantizeWeight({ backend, kernels, quantizer, target }, source, parts, groupAmaxes, output);
  };
  const { codes, scale, global } = parts;
  return {
    kind: "convert",
    name: source.name,
    method: isRepacked ? "repacked" : "quantized",
    outputs: [codes, scale, ...(global ? [global] : [])],
    metadata: weightMetadata(target.declaration, source, parts, weight ? request.dtype : source.dtype),
    ...(quantizer ? { whyNotFinite: async () => whyNotFinite(await request.backend(), quantizer) } : {}),
    write:
      weight && isRepacked
        ? async (output) =>
            writeRepacked(await request.kernels(), weight, target, parts, output, request.judge)
        : quantized,
  };
}

/** The modules that the configuration has to list as unquantized. */
function ignoredModules(
  { declaration }: Target,
  plainTensors: readonly StoredTensor[],
  candidates: readonly Candidate[],
): readonly string[] {
  const converted = new Set(candidates.map(({ source }) => source.name));
  return plainTensors
    .filter((tensor) => isLayer(tensor) && !converted.has(tensor.entry.name))
    .filter((tensor) => declaration.method === "modelopt" || !isEmbedding(tensor))
    .map(({ entry: { name } }) => name.replace(/\.weight$/, ""));
}

/**
 * Plans conversions to the form that `lockstep quantize` writes. Selects weights and throws errors as `quantizedConversions`
 * does.
 */
export function lockstepConversions(
  survey: Survey,
  request: Omit<QuantizationRequest, "target" | "dtype" | "judge"> & { readonly quantizer: BlockFormatName },
): Conversions {
  const { quantizer, backend } = request;
  const { weights, lockstepWeights, plain, skipped } = selectWeights(survey, request, (_, shape) =>
    whyNotLockstep(quantizer, shape),
  );
  const sources: readonly (readonly [place: string | undefined, Source])[] = [
    ...plain.map((tensor) => [tensor.entry.name, plainSource(tensor)] as const),
    ...weights.map((weight) => [weight.codes.entry.name, quantizedSource(weight)] as const),
    ...lockstepWeights.map(
      (weight) => [lockstepTensorNames(weight)[0], lockstepSource(weight, backend)] as const,
    ),
  ];
  if (sources.length === 0) throw nothingSelected(request.name, skipped);
  const steps = sources.map(
    ([inputName = "", source]) => [inputName, lockstepStep(source, quantizer, request)] as const,
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

function noQuantizer(target: string, name: string): FileError {
  return new FileError(
    `tensor "${name}": ${target} has no quantizer whose codes are known; only codes and scales of the same kind can be repacked without rounding`,
  );
}
