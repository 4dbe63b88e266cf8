/** The candidates of a conversion to a quantization: their values, output tensors, and groups with a common global scale. */
import { tensorDType } from "../../../io/dtypes.js";
import type { QuantizeSpec } from "../../../tensor/quantized.js";
import { isWide, type WideDType } from "../../../tensor/shape.js";
import { fusedGroup } from "../../judge/weights/fused.js";
import type { Kernels } from "../../kernels/kernels.js";
import type { CodeTypeName } from "../../stored/code-types.js";
import { type ConventionName, conventionOf } from "../../stored/conventions.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import { lockstepSource, lockstepTensorNames } from "../../values/lockstep.js";
import {
  amaxesOf,
  plainSource,
  quantizedSource,
  type Source,
  transposedSource,
} from "../../values/source.js";
import { repackScales } from "../repack/scales.js";
import type { Target } from "../targets/table.js";
import { type OutputTensors, outputTensors } from "../targets/tensors.js";
import type { QuantizationRequest, Selection } from "./selection.js";

/** A weight to convert. */
export interface Candidate {
  /** The values to convert. */
  readonly source: Source;
  /** The name of the input tensor that the converted weight replaces. */
  readonly inputName: string;
  /** The output tensors. */
  readonly parts: OutputTensors;
  /** The quantized weight of another library; absent for an unquantized weight and for a weight of this library. */
  readonly weight?: QuantizedWeight;
  /**
   * The global scale after repacking, 1 if there is no global scale. Absent if codes and scales cannot be repacked without
   * rounding.
   */
  readonly repackedGlobal?: number;
}

/**
 * The candidates for a target. `spec`: the spec of the target's quantizer, if the target has a quantizer. Reads scales, but no
 * codes.
 */
export async function candidatesOf(
  { weights, lockstepWeights, plain }: Selection,
  { target, backend, kernels }: QuantizationRequest,
  spec: QuantizeSpec | undefined,
): Promise<readonly Candidate[]> {
  const { transposedWide } = conventionOf(target.convention);
  const partsFor = (source: Source, scales: WideDType): OutputTensors =>
    outputTensors(target, spec, { ...source, source: scales });
  const candidates: Candidate[] = plain.map((tensor) => {
    const source = transposedWide ? transposedSource(plainSource(tensor)) : plainSource(tensor);
    return { source, inputName: tensor.entry.name, parts: partsFor(source, source.dtype) };
  });
  for (const weight of lockstepWeights) {
    const source = lockstepSource(weight, backend);
    const [inputName = ""] = lockstepTensorNames(weight);
    candidates.push({ source, inputName, parts: partsFor(source, source.dtype) });
  }
  for (const weight of weights) {
    const source = quantizedSource(weight);
    const inputName = weight.codes.entry.name;
    const outputs = partsFor(source, scaleType(weight));
    const twin = twinOf(weight);
    const scales = await repackScales(await kernels(), twin, target, outputs);
    if (scales)
      candidates.push({
        source,
        inputName,
        weight: twin,
        parts: outputs,
        repackedGlobal: scales.globals[0] ?? 1,
      });
    else candidates.push({ source, inputName, weight, parts: partsFor(source, source.dtype) });
  }
  return candidates;
}

/**
 * The type of repacked scales for a target that stores scales in the model's type: the type of the weight's scales if this type
 * is wide, else f32.
 */
function scaleType({ scale }: QuantizedWeight): WideDType {
  const type = tensorDType(scale.entry.dtype);
  return type !== undefined && isWide(type) ? type : "f32";
}

/**
 * For each GGUF convention, the convention with equal codes and scale bytes. GGUF doubles the values of codes and halves the
 * values of scales, so the products are equal. A scale byte with another value under the second convention, such as 0x7F of e4m3,
 * is NaN or negative there, so weights with such bytes are not repacked. Code 8 is +0 in GGUF and -0 under the second convention.
 */
const TWINS: Readonly<Partial<Record<ConventionName, ConventionName>>> = {
  "gguf-mxfp4": "torchao-mxfp4",
  "gguf-nvfp4": "torchao-nvfp4",
  "gguf-nvfp4-bare": "torchao-nvfp4-single",
};
const TYPE: CodeTypeName = "e2m1";

/** The weight under its twin convention, or the weight itself if its convention has no twin. */
function twinOf(weight: QuantizedWeight): QuantizedWeight {
  const convention = TWINS[weight.convention];
  return convention === undefined ? weight : { ...weight, convention, type: TYPE };
}

/**
 * Groups the candidates that share a global scale: projections that loaders fuse, if the convention has one scale for all of
 * them.
 */
export function groupsOf(
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

/** Computes the amaxes of groups, each group once. */
export class GroupAmaxes {
  readonly #amaxes = new Map<readonly Candidate[], Promise<readonly number[]>>();

  /** The amax over all weights of a group. If each matrix of a weight has a global scale, returns one amax for each matrix. */
  amaxesOf(kernels: Kernels, group: readonly Candidate[]): Promise<readonly number[]> {
    const cached = this.#amaxes.get(group);
    if (cached) return cached;
    const amaxes = amaxesOfGroup(kernels, group);
    this.#amaxes.set(group, amaxes);
    return amaxes;
  }
}

async function amaxesOfGroup(kernels: Kernels, group: readonly Candidate[]): Promise<readonly number[]> {
  const [first] = group;
  if (first && first.parts.globals > 1) return amaxesOf(kernels, first.source);
  let largest = 0;
  for (const { source } of group)
    for (const amax of await amaxesOf(kernels, source)) largest = Math.max(largest, amax);
  return [largest];
}
