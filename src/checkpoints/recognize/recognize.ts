/** Recognizes the quantized weights of a checkpoint, and separates them from plain tensors. */
import type { FileDType } from "../../io/dtypes.js";
import { type Shape, sameShape } from "../../tensor/shape.js";
import { type Finding, finding } from "../judge/findings.js";
import { CODE_TYPES, type CodeTypeName } from "../stored/code-types.js";
import type { Claim } from "../stored/config/claim.js";
import type { Scheme } from "../stored/config/scheme.js";
import { subclassOf } from "../stored/config/torchao.js";
import {
  CONVENTION_NAMES,
  type Convention,
  type ConventionName,
  conventionOf,
} from "../stored/conventions.js";
import { findLockstepWeights, type LockstepWeight } from "../stored/lockstep-weights.js";
import type { PackedShapes } from "../stored/packed-shapes.js";
import type { CheckpointTensors, StoredTensor } from "../stored/tensors.js";
import type { QuantizedWeight } from "../stored/weight.js";
import { companionShapes } from "./companion-shapes.js";
import { fitGeometry } from "./geometry.js";
import { leftovers } from "./leftovers.js";
import { logicalShape } from "./logical-shape.js";

/** A quantized weight whose scales do not fit its codes. */
export interface UnfitWeight {
  /** The name of the tensor of codes. */
  readonly name: string;
  /** The likeliest convention. */
  readonly convention: ConventionName;
  /** The names of all tensors of the weight. */
  readonly parts: readonly string[];
  /** The reasons why the scales do not fit. */
  readonly findings: readonly Finding[];
}

/** A quantized weight, and every convention that its tensors fit; `convention` comes first. */
export interface RecognizedWeight extends QuantizedWeight {
  readonly fits: readonly ConventionName[];
}

/** The tensors of a checkpoint, classified. */
export interface Recognized {
  readonly weights: readonly RecognizedWeight[];
  /** The quantized weights whose scales do not fit their codes. */
  readonly unfit: readonly UnfitWeight[];
  /** Tensors that `lockstep quantize` and `saveTensors` wrote. */
  readonly lockstepWeights: readonly LockstepWeight[];
  /** The tensors that are neither codes nor scales, nor belong to a quantized weight. */
  readonly plain: readonly StoredTensor[];
  readonly findings: readonly Finding[];
}

/** Code types other than e4m3 under conventions of e4m3, by the type of the tensor. */
const OTHER_TYPES: Partial<Record<FileDType, CodeTypeName>> = {
  F8_E5M2: "e5m2",
  F8_E4M3FNUZ: "e4m3fnuz",
  F8_E5M2FNUZ: "e5m2fnuz",
};

/** Inputs of recognition besides names, types and shapes. */
export interface RecognizeOptions {
  /** The shapes of packed weights that the file records, by tensor name. */
  readonly packedShapes?: PackedShapes;
  /** Forces this convention on every weight. */
  readonly as?: ConventionName | undefined;
}

/** Code types by the type of the tensor, for conventions with several code types. */
const NAMED_TYPES: Partial<Record<FileDType, CodeTypeName>> = { F6_E3M2: "e3m2" };

/** Classifies the tensors of a checkpoint. */
export function recognize(
  checkpoint: CheckpointTensors,
  claim: Claim | undefined,
  { packedShapes = new Map(), as }: RecognizeOptions = {},
): Recognized {
  const { tensors } = checkpoint;
  const findings: Finding[] = [];
  const claimedNames = new Set<string>();
  const lockstepWeights = findLockstepWeights(checkpoint, claimedNames, findings);
  const names = as === undefined ? CONVENTION_NAMES : [as];
  const rows = names.filter((name) => conventionOf(name).container === checkpoint.container);
  const weights: RecognizedWeight[] = [];
  const unfitWeights: UnfitWeight[] = [];
  const context = { checkpoint, claim, packedShapes };
  for (const tensor of tensors.values()) {
    if (claimedNames.has(tensor.entry.name)) continue;
    const tries = rows
      .flatMap((convention) => candidate(context, convention, tensor) ?? [])
      .sort((a, b) => rankOf(b, claim) - rankOf(a, claim))
      .map((each) => recognizeCandidate(context, each));
    const fitting = tries.filter(({ weight }) => weight);
    const best = fitting[0] ?? tries[0];
    if (!best) continue;
    for (const part of best.parts) claimedNames.add(part);
    findings.push(...best.findings);
    const { weight, convention, parts } = best;
    if (weight) weights.push({ ...weight, fits: fitting.map((each) => each.convention) });
    else unfitWeights.push({ name: tensor.entry.name, convention, parts, findings: best.findings });
  }
  const { plain, findings: leftoverFindings } = leftovers(checkpoint, claimedNames, as);
  return {
    weights,
    unfit: unfitWeights,
    lockstepWeights,
    plain,
    findings: [...findings, ...leftoverFindings],
  };
}

/** Whether a configuration declares a convention for weights with this scheme. */
export function declares(name: ConventionName, claim: Claim | undefined, scheme?: Scheme): boolean {
  if (claim === undefined) return false;
  const { methods, formats } = conventionOf(name);
  if (!methods.includes(claim.method)) return false;
  const declared = scheme?.formats ?? claim.formats;
  return !formats || declared.length === 0 || declared.some((each) => formats.includes(each));
}

/** The rank of a candidate. Declared conventions rank highest, then the declared method, then the declared number of bits. */
function rankOf({ convention, type, scheme }: Candidate, claim: Claim | undefined): number {
  const sameBits = scheme?.bits === CODE_TYPES[type].bits;
  const sameMethod = claim !== undefined && conventionOf(convention).methods.includes(claim.method);
  return 4 * Number(declares(convention, claim, scheme)) + 2 * Number(sameMethod) + Number(sameBits);
}

/** The inputs of recognition. */
interface Context {
  readonly checkpoint: CheckpointTensors;
  readonly claim: Claim | undefined;
  readonly packedShapes: PackedShapes;
}

/** Tensors whose names and types fit a convention. */
interface Candidate {
  readonly convention: ConventionName;
  readonly row: Convention;
  readonly type: CodeTypeName;
  readonly prefix: string;
  readonly name: string;
  readonly codes: StoredTensor;
  readonly scale: StoredTensor;
  readonly global?: StoredTensor;
  readonly scheme?: Scheme;
}

function candidate(
  { checkpoint: { tensors }, claim }: Context,
  convention: ConventionName,
  codes: StoredTensor,
): Candidate | undefined {
  const row = conventionOf(convention);
  const { name: tensor, dtype } = codes.entry;
  if (!tensor.endsWith(row.codes.suffix)) return undefined;
  const type = typeOf(row, dtype);
  const prefix = tensor.slice(0, tensor.length - row.codes.suffix.length);
  if (tensors.has(prefix + MARKER) !== (row.marker === MARKER)) return undefined;
  if (GLOBAL_ENDS.some((end) => tensors.has(prefix + end) && !hasPart(row, end))) return undefined;
  const scale = tensors.get(prefix + row.scale.suffix);
  if (!type || !scale || scale === codes || !row.scale.dtypes.includes(scale.entry.dtype)) return undefined;
  const name = weightName(row, prefix, codes);
  const resolved = claim?.resolve(moduleOf(name));
  const scheme = resolved?.kind === "quantized" ? { scheme: resolved.scheme } : {};
  const parts = { convention, row, type, prefix, name, codes, scale, ...scheme };
  if (!row.global) return parts;
  const global = tensors.get(prefix + row.global.suffix);
  if (!global && row.global.optional) return parts;
  return global && row.global.dtypes.includes(global.entry.dtype) ? { ...parts, global } : undefined;
}

/** The tensor that distinguishes ComfyUI's conventions from other conventions with the same names. */
const MARKER = ".comfy_quant";

/** Suffixes of global scales. Without its global scale, a block scale cannot be interpreted. */
const GLOBAL_ENDS = [".weight_global_scale", ".weight_scale_2", "._weight_per_tensor_scale"];

const hasPart = ({ global, others = [] }: Convention, end: string): boolean =>
  global?.suffix === end || others.includes(end);

/** The name of the module that owns a weight. */
export const moduleOf = (weight: string): string => weight.replace(/\.weight$/, "");

function typeOf(row: Convention, dtype: FileDType): CodeTypeName | undefined {
  if (row.codes.dtypes.includes(dtype)) return NAMED_TYPES[dtype] ?? row.type;
  return CODE_TYPES[row.type].fn ? OTHER_TYPES[dtype] : undefined;
}

interface Attempt {
  readonly convention: ConventionName;
  readonly weight?: QuantizedWeight;
  /** The names of all tensors of the weight. */
  readonly parts: readonly string[];
  readonly findings: readonly Finding[];
}

function recognizeCandidate(context: Context, candidate: Candidate): Attempt {
  const { checkpoint, claim, packedShapes } = context;
  const { tensors, metadata } = checkpoint;
  const { convention, row, type, prefix, name, codes, scale, global, scheme } = candidate;
  const part = (suffix: string | undefined): StoredTensor | undefined =>
    suffix === undefined ? undefined : tensors.get(prefix + suffix);
  const zeros = part(row.zeros?.suffix);
  const order = part(row.order);
  const factors = part(row.factors);
  const companionNames = [zeros, order, factors].flatMap((each) => (each ? [each.entry.name] : []));
  const otherNames = (row.others ?? []).map((suffix) => prefix + suffix).filter((each) => tensors.has(each));
  const partNames = [codes, scale, ...(global ? [global] : [])].map(({ entry }) => entry.name);
  const tensorNames = [...new Set([...partNames, ...companionNames, ...otherNames])];
  const recordedShape = packedShapes.get(`${prefix}.weight_shape`);
  const shape = logicalShape({ row, type, codes, scale, recorded: recordedShape, scheme });
  if (typeof shape === "string")
    return { convention, parts: tensorNames, findings: [finding("codes-shape", name, shape)] };
  const subclass = subclassOf(row.maySwizzle ? metadata : {}, name);
  const swizzled = subclass.swizzled || row.swizzles === true;
  const declaredScheme = declares(convention, claim, scheme) ? scheme : undefined;
  const fit = fitGeometry({ convention, name, shape, scale, claim, scheme: declaredScheme, swizzled });
  const findings = [...fit.findings, ...foreignCodes(candidate)];
  findings.push(...globalShape(candidate, shape));
  for (const partSuffix of subclass.parts) {
    if (tensors.has(`${prefix}._weight_${partSuffix}`)) continue;
    findings.push(
      finding("scale-missing", name, `the metadata say that there is ${prefix}._weight_${partSuffix}`),
    );
  }
  const { geometry } = fit;
  if (!geometry) return { convention, parts: tensorNames, findings };
  const problem = companionShapes({ row, type, scale, shape, geometry }, { zeros, factors });
  if (problem !== undefined)
    return {
      convention,
      parts: tensorNames,
      findings: [...findings, finding("companion-shape", name, problem)],
    };
  const weight = {
    ...{ name, convention, type, shape, codes, scale, geometry },
    ...(global ? { global } : {}),
    ...(zeros ? { zeros } : {}),
    ...(order ? { order } : {}),
    ...(factors ? { factors } : {}),
  };
  return { convention, weight, parts: tensorNames, findings };
}

/** A finding about a global scale of the wrong shape. */
function globalShape({ row, name, global }: Candidate, shape: Shape): Finding[] {
  const leadingShape = shape.slice(0, -2);
  const isStack = row.global?.stacked === true && leadingShape.some((size) => size !== 1);
  const isFit = isStack
    ? global === undefined || sameShape(global.entry.shape, leadingShape)
    : !global?.entry.shape.some((size) => size !== 1);
  if (!global || isFit) return [];
  const expected = isStack ? `must be [${leadingShape}], one number for each matrix` : "must be one number";
  return [
    finding("scale-shape", name, `${global.entry.name} has shape [${global.entry.shape}]; it ${expected}`),
  ];
}

/** The name of the weight before quantization. */
function weightName({ codes: { suffix } }: Convention, prefix: string, codes: StoredTensor): string {
  return /^\._?weight/.test(suffix)
    ? `${prefix}.weight`
    : suffix.startsWith("_weight")
      ? codes.entry.name
      : prefix || codes.entry.name;
}

/** A finding about an FP8 type that the convention does not have. */
function foreignCodes({ row, name, type, codes }: Candidate): Finding[] {
  return /fnuz$/.test(type)
    ? [finding("codes-fnuz", name, `the codes are ${codes.entry.dtype}; ${row.summary} has F8_E4M3`)]
    : [];
}
