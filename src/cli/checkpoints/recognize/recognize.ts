/** Finds the quantized weights of a checkpoint, and the tensors that belong to none. */
import type { FileDType } from "../../../io/dtypes.js";
import { sameShape } from "../../../tensor/shape.js";
import { type Finding, finding } from "../judge/findings.js";
import type { Claim } from "../stored/claim.js";
import { CODE_TYPES, type CodeTypeName } from "../stored/code-types.js";
import {
  CONVENTION_NAMES,
  type Convention,
  type ConventionName,
  conventionOf,
} from "../stored/conventions.js";
import type { CheckpointTensors, StoredTensor } from "../stored/open.js";
import { type OwnWeight, ownTensors } from "../stored/own.js";
import { subclassOf } from "../stored/torchao.js";
import type { QuantizedWeight } from "../stored/weight.js";
import { fitGeometry, logicalShape } from "./geometry.js";
import { leftovers } from "./leftovers.js";

/** Codes whose scales do not fit them, and all tensors that belong to them. */
export interface UnfitWeight {
  readonly name: string;
  readonly convention: ConventionName;
  readonly parts: readonly string[];
  /** Why they do not fit. */
  readonly findings: readonly Finding[];
}

/** A quantized weight, and every convention that its tensors fit. The first is that of the weight. */
export interface RecognizedWeight extends QuantizedWeight {
  readonly fits: readonly ConventionName[];
}

/** The tensors of a checkpoint, sorted. */
export interface Recognized {
  readonly weights: readonly RecognizedWeight[];
  /** The codes whose scales do not fit them. */
  readonly unfit: readonly UnfitWeight[];
  /** What `lockstep quantize` and `saveTensors` wrote. */
  readonly own: readonly OwnWeight[];
  /** The tensors that are neither codes nor scales, nor belong to a quantized weight. */
  readonly plain: readonly StoredTensor[];
  readonly findings: readonly Finding[];
}

/** The kinds of code that a convention of e4m3 also takes, by the type of the tensor. */
const OTHER_TYPES: Partial<Record<FileDType, CodeTypeName>> = {
  F8_E5M2: "e5m2",
  F8_E4M3FNUZ: "e4m3fnuz",
  F8_E5M2FNUZ: "e5m2fnuz",
};

/** Sorts the tensors of a checkpoint. */
export function recognize(checkpoint: CheckpointTensors, claim: Claim | undefined): Recognized {
  const { tensors } = checkpoint;
  const findings: Finding[] = [];
  const taken = new Set<string>();
  const own = ownTensors(checkpoint, taken, findings);
  const rows = CONVENTION_NAMES.filter((name) => conventionOf(name).container === checkpoint.container).sort(
    (a, b) => Number(announces(b, claim)) - Number(announces(a, claim)),
  );
  const weights: RecognizedWeight[] = [];
  const unfit: UnfitWeight[] = [];
  for (const stored of tensors.values()) {
    if (taken.has(stored.entry.name)) continue;
    const tries = rows.flatMap((convention) => {
      const found = candidate(checkpoint, convention, stored);
      return found ? [attempt(checkpoint, found, claim)] : [];
    });
    const fitting = tries.filter(({ weight }) => weight);
    const best = fitting[0] ?? tries[0];
    if (!best) continue;
    for (const part of best.parts) taken.add(part);
    findings.push(...best.findings);
    const { weight, convention, parts } = best;
    if (weight) weights.push({ ...weight, fits: fitting.map((each) => each.convention) });
    else unfit.push({ name: stored.entry.name, convention, parts, findings: best.findings });
  }
  const { plain, findings: others } = leftovers(checkpoint, taken);
  return { weights, unfit, own, plain, findings: [...findings, ...others] };
}

/** Whether a configuration claims a convention. */
export function announces(name: ConventionName, claim: Claim | undefined): boolean {
  if (claim === undefined) return false;
  const { methods, formats } = conventionOf(name);
  if (!methods.includes(claim.method)) return false;
  return !formats || claim.formats.length === 0 || claim.formats.some((each) => formats.includes(each));
}

/** Tensors whose names and types are those of a convention. */
interface Candidate {
  readonly convention: ConventionName;
  readonly row: Convention;
  readonly type: CodeTypeName;
  readonly prefix: string;
  readonly codes: StoredTensor;
  readonly scale: StoredTensor;
  readonly global?: StoredTensor;
}

function candidate(
  { tensors }: CheckpointTensors,
  convention: ConventionName,
  codes: StoredTensor,
): Candidate | undefined {
  const row = conventionOf(convention);
  const { name, dtype } = codes.entry;
  if (!name.endsWith(row.codes.suffix)) return undefined;
  const type = typeOf(row, dtype);
  const prefix = name.slice(0, name.length - row.codes.suffix.length);
  const scale = tensors.get(prefix + row.scale.suffix);
  if (!type || !scale || scale === codes || !row.scale.dtypes.includes(scale.entry.dtype)) return undefined;
  const found = { convention, row, type, prefix, codes, scale };
  if (!row.global) return found;
  const global = tensors.get(prefix + row.global.suffix);
  if (!global && row.global.optional) return found;
  return global && row.global.dtypes.includes(global.entry.dtype) ? { ...found, global } : undefined;
}

function typeOf(row: Convention, dtype: FileDType): CodeTypeName | undefined {
  if (row.codes.dtypes.includes(dtype)) return row.type;
  return CODE_TYPES[row.type].fn ? OTHER_TYPES[dtype] : undefined;
}

interface Attempt {
  readonly convention: ConventionName;
  readonly weight?: QuantizedWeight;
  /** The names of all tensors of the weight. */
  readonly parts: readonly string[];
  readonly findings: readonly Finding[];
}

function attempt(checkpoint: CheckpointTensors, found: Candidate, claim: Claim | undefined): Attempt {
  const { convention, row, type, prefix, codes, scale, global } = found;
  const others = (row.others ?? []).map((suffix) => prefix + suffix);
  const parts = [codes, scale, ...(global ? [global] : [])].map(({ entry }) => entry.name);
  const all = [...parts, ...others.filter((each) => checkpoint.tensors.has(each))];
  const name = weightName(found);
  const shape = logicalShape(row, type, codes);
  if (!shape) {
    const what = `${codes.entry.dtype} [${codes.entry.shape}] holds no whole number of ${type} codes in a row`;
    return { convention, parts: all, findings: [finding("scale-shape", name, what)] };
  }
  const subclass = subclassOf(row.maySwizzle ? checkpoint.metadata : {}, name);
  const { swizzled } = subclass;
  const fitted = fitGeometry({ convention, name, shape, scale, claim, swizzled });
  const findings = [...fitted.findings, ...companions(found, name, checkpoint)];
  const lead = shape.slice(0, -2);
  const isStack = row.global?.stacked === true && lead.some((size) => size !== 1);
  const fits = isStack
    ? global === undefined || sameShape(global.entry.shape, lead)
    : !global?.entry.shape.some((size) => size !== 1);
  if (global && !fits) {
    const needed = isStack ? `must be [${lead}], one number for each matrix` : "must be one number";
    findings.push(
      finding("scale-shape", name, `${global.entry.name} has shape [${global.entry.shape}]; it ${needed}`),
    );
  }
  for (const part of subclass.parts) {
    if (checkpoint.tensors.has(`${prefix}._weight_${part}`)) continue;
    findings.push(finding("scale-missing", name, `the metadata say that there is ${prefix}._weight_${part}`));
  }
  const { geometry } = fitted;
  if (!geometry) return { convention, parts: all, findings };
  return {
    convention,
    weight: { name, convention, type, shape, codes, scale, geometry, ...(global ? { global } : {}) },
    parts: all,
    findings,
  };
}

/** The name of the weight before it was quantized. */
function weightName({ row, prefix, codes }: Candidate): string {
  return /weight/.test(row.codes.suffix) ? `${prefix}.weight` : prefix || codes.entry.name;
}

/** Findings about tensors beside codes and scales. */
function companions(
  { row, prefix, type, codes }: Candidate,
  name: string,
  { tensors }: CheckpointTensors,
): Finding[] {
  const zeros = tensors.get(`${prefix}.weight_zero_point`);
  const findings =
    zeros && row.others?.includes(".weight_zero_point")
      ? [finding("zero-point", name, `${zeros.entry.name} is ${zeros.entry.dtype} [${zeros.entry.shape}]`)]
      : [];
  if (/fnuz$/.test(type))
    findings.push(
      finding("codes-fnuz", name, `the codes are ${codes.entry.dtype}; ${row.summary} has F8_E4M3`),
    );
  return findings;
}
