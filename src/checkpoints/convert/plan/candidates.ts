/** Weights on their way to a quantization: their values, the tensors that they become, and which ones share a global scale. */
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
  /** The values. */
  readonly source: Source;
  /** The tensor that the new form replaces. */
  readonly place: string;
  /** The tensors of the new form. */
  readonly parts: OutputTensors;
  /** The quantized weight; absent for an unquantized one, and for one of this library. */
  readonly weight?: QuantizedWeight;
  /** The global scale, 1 if there is none; absent if codes and scales cannot be repacked without rounding. */
  readonly repackedGlobal?: number;
}

/** The candidates for a target. `spec`: the quantizer's, if the target has a quantizer. Reads scales, and no codes. */
export async function candidatesOf(
  { weights, lockstepWeights, plain }: Selection,
  { target, backend, kernels }: QuantizationRequest,
  spec: QuantizeSpec | undefined,
): Promise<readonly Candidate[]> {
  const { transposedWide } = conventionOf(target.convention);
  const partsFor = (source: Source, scales: WideDType): OutputTensors =>
    outputTensors(target, spec, { ...source, source: scales });
  const candidates: Candidate[] = plain.map((stored) => {
    const source = transposedWide ? transposedSource(plainSource(stored)) : plainSource(stored);
    return { source, place: stored.entry.name, parts: partsFor(source, source.dtype) };
  });
  for (const weight of lockstepWeights) {
    const source = lockstepSource(weight, backend);
    const [place = ""] = lockstepTensorNames(weight);
    candidates.push({ source, place, parts: partsFor(source, source.dtype) });
  }
  for (const weight of weights) {
    const source = quantizedSource(weight);
    const place = weight.codes.entry.name;
    const parts = partsFor(source, scaleType(weight));
    const twin = twinOf(weight);
    const scales = await repackScales(await kernels(), twin, target, parts);
    if (scales)
      candidates.push({ source, place, weight: twin, parts, repackedGlobal: scales.globals[0] ?? 1 });
    else candidates.push({ source, place, weight, parts: partsFor(source, source.dtype) });
  }
  return candidates;
}

/** The type of a weight's scales if it is wide, else f32. A target with scales of the model's type repacks them in this type. */
function scaleType({ scale }: QuantizedWeight): WideDType {
  const type = tensorDType(scale.entry.dtype);
  return type !== undefined && isWide(type) ? type : "f32";
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

/** The candidates that share a global scale: projections that loaders fuse, if the convention has one scale for all of them. */
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

  /** The amax over all weights of a group. If each matrix of a weight has a global scale, one amax for each matrix. */
  of(kernels: Kernels, group: readonly Candidate[]): Promise<readonly number[]> {
    const cached = this.#amaxes.get(group);
    if (cached) return cached;
    const computed = amaxesOfGroup(kernels, group);
    this.#amaxes.set(group, computed);
    return computed;
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
