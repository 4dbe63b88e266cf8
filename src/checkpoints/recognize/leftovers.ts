/** Judges tensors that belong to no recognized weight: plain tensors, and codes or scales without their counterpart. */
import type { FileDType } from "../../io/dtypes.js";
import { type Finding, finding } from "../judge/findings.js";
import { CONVENTION_NAMES, type ConventionName, conventionOf } from "../stored/conventions.js";
import type { CheckpointTensors, StoredTensor } from "../stored/tensors.js";
import { namedLayouts } from "./named-layouts.js";

/** Element types that are meaningless without a scale. */
const CODE_DTYPES: ReadonlySet<FileDType> = new Set([
  "F4",
  "F6_E2M3",
  "F6_E3M2",
  "F8_E4M3",
  "F8_E5M2",
  "F8_E4M3FNUZ",
  "F8_E5M2FNUZ",
]);

/** Element types in which codes are packed. */
const PACKED_DTYPES: ReadonlySet<FileDType> = new Set(["U8", "I8", "U16", "I16", "I32", "U32", "I64", "U64"]);

/** Suffixes that both scales and plain tensors have. */
const COMMON = [".scale", ".scales", "_scale", "_scales", ""];
/** The suffixes of `COMMON` that mark scales if the tensor is U8. Each suffix has the suffix of the corresponding codes. */
const CODES_OF_SCALES = [
  ["_scales", "_blocks"],
  [".scales", ".weight"],
] as const;

const ROWS = CONVENTION_NAMES.map(conventionOf).filter(({ container }) => container === undefined);
const SCALE_ENDS = [
  ...new Set(
    ROWS.flatMap(({ scale, global, others = [] }) => [
      scale.suffix,
      ...(global ? [global.suffix] : []),
      ...others,
    ]),
  ),
].filter((suffix) => !COMMON.includes(suffix));
/** Suffixes of the other tensors of a convention: neither codes nor scales. */
const OTHER_ENDS = new Set(ROWS.flatMap(({ others = [] }) => others));
const CODE_ENDS = [...new Set(ROWS.map(({ codes }) => codes.suffix))].filter((suffix) => suffix !== "");
/** Packed codes of GPTQ and AWQ whose other tensors are absent. */
const UNREAD = /\.(qweight|qzeros)$/;
/** The ComfyUI tensor that marks a file of scaled FP8. It has no values. */
const MARKER = /(^|\.)scaled_fp8$/;
/** Suffixes of scales, zero points and similar tensors. */
const SCALING = /[._-]?(scale_inv|scales?|scale_\d|absmax|qzeros|zero_points?|zeros|biases|scb)$/i;

/** Tensors whose names have a scaling suffix, by the name without the suffix. */
function scaledNames(tensors: ReadonlyMap<string, StoredTensor>): ReadonlyMap<string, string> {
  const names = new Map<string, string>();
  for (const name of tensors.keys()) if (SCALING.test(name)) names.set(name.replace(SCALING, ""), name);
  return names;
}

/** The name of a tensor that scales `name`; undefined if there is none. */
function scaleOfTensor(scaled: ReadonlyMap<string, string>, name: string): string | undefined {
  const module = name.slice(0, Math.max(0, name.lastIndexOf(".")));
  const bare = name.replace(/[._-]?(q?weight|w?q|qdata|data|codes?|packed|blocks|weight_packed)$/i, "");
  const scaledName = [name, module, bare, `${module}.weight`, `${bare}.weight`].find(
    (each) => each !== "" && scaled.has(each),
  );
  return scaledName === undefined ? undefined : scaled.get(scaledName);
}

const CACHE_ENDS = [".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".prob_scale", ".output_scale"];

/** Whether a name has a suffix that only scales of a convention have. */
export const hasNameOfScale = (name: string): boolean => endOf(SCALE_ENDS, name) !== undefined;

/** Whether a tensor is a scale of the KV cache, or of the products within attention. */
export function isCacheScale(name: string): boolean {
  return CACHE_ENDS.some((end) => name.endsWith(end));
}

const canHoldCodes = (dtype: FileDType): boolean => CODE_DTYPES.has(dtype) || PACKED_DTYPES.has(dtype);

const endOf = (ends: readonly string[], name: string): string | undefined =>
  ends.filter((end) => name.endsWith(end)).toSorted((a, b) => b.length - a.length)[0];

/** Judges the tensors that are not in `claimedNames`. `as`: the convention that was forced on the weights, if any. */
export function leftovers(
  checkpoint: CheckpointTensors,
  claimedNames: Set<string>,
  as: ConventionName | undefined,
): { readonly plain: readonly StoredTensor[]; readonly findings: readonly Finding[] } {
  const plain: StoredTensor[] = [];
  const findings: Finding[] = as === undefined ? namedLayouts(checkpoint, claimedNames) : [];
  const scaled = scaledNames(checkpoint.tensors);
  for (const tensor of checkpoint.tensors.values()) {
    if (claimedNames.has(tensor.entry.name)) continue;
    const problem = judge(checkpoint, tensor, scaled);
    if (problem) findings.push(problem);
    else plain.push(tensor);
  }
  return { plain, findings };
}

function judge(
  { tensors }: CheckpointTensors,
  { entry }: StoredTensor,
  scaled: ReadonlyMap<string, string>,
): Finding | undefined {
  const { name, dtype, shape } = entry;
  const description = `${dtype} [${shape}]`;
  if (isCacheScale(name) || (MARKER.test(name) && shape.length === 1)) return undefined;
  const isMatrix = shape.length >= 2;
  const scaleName = isMatrix && !SCALING.test(name) ? scaleOfTensor(scaled, name) : undefined;
  const codeEnd = endOf(CODE_ENDS, name);
  const isPacked = PACKED_DTYPES.has(dtype);
  if (UNREAD.test(name) && shape.length > 0)
    return finding("codes-unrecognized", name, `${description} is of a convention that is not read`);
  if (scaleName !== undefined && isPacked && codeEnd === undefined)
    return finding(
      "codes-unrecognized",
      name,
      `${description} beside ${scaleName} is of no known convention`,
    );
  const scaleEnd = endOf(SCALE_ENDS, name);
  if (scaleEnd !== undefined || dtype === "F8_E8M0") {
    const base = scaleEnd === undefined ? name : name.slice(0, -scaleEnd.length);
    const codes = CODE_ENDS.map((end) => tensors.get(base + end)).find((each) => each !== undefined);
    // the codes have their own finding
    if (codes && OTHER_ENDS.has(scaleEnd ?? "") && canHoldCodes(codes.entry.dtype)) return undefined;
    const position = codes
      ? `beside ${codes.entry.name}, ${codes.entry.dtype} [${codes.entry.shape}]`
      : "alone";
    return finding("scale-orphan", name, `${description} stands ${position}, and no codes take it`);
  }
  const [end, codesEnd] = (isMatrix && CODES_OF_SCALES.find(([each]) => name.endsWith(each))) || [];
  const codesName = end && codesEnd && name.slice(0, -end.length) + codesEnd;
  if (dtype === "U8" && codesName && !tensors.has(codesName))
    return finding("scale-orphan", name, `${description} has no ${codesName} beside it`);
  if (CODE_DTYPES.has(dtype) || (isPacked && codeEnd !== undefined)) {
    return missingScales(tensors, name, description, codeEnd ?? "", scaleName);
  }
  return undefined;
}

/** The finding for codes without the scales of a convention. It names the nearest tensors. */
function missingScales(
  tensors: ReadonlyMap<string, StoredTensor>,
  name: string,
  description: string,
  codeEnd: string,
  scale: string | undefined,
): Finding {
  const base = name.slice(0, name.length - codeEnd.length);
  const dtype = tensors.get(name)?.entry.dtype;
  const matchingRows = ROWS.filter(({ codes }) => codes.suffix === codeEnd);
  const withGlobal = matchingRows.filter(({ global }) => global && tensors.has(base + global.suffix));
  const rows = withGlobal.length > 0 ? withGlobal : matchingRows;
  const sameType = rows.filter(({ codes }) => codes.dtypes.some((each) => each === dtype));
  const candidates = (sameType.length > 0 ? sameType : rows).flatMap(({ scale, global }) => {
    const entry = tensors.get(base + scale.suffix)?.entry;
    return entry && entry.name !== name ? [{ entry, scale, global }] : [];
  });
  const matches = candidates.filter(({ entry, scale }) => scale.dtypes.includes(entry.dtype));
  const globals = [...new Set(matches.flatMap(({ global }) => (global ? [base + global.suffix] : [])))];
  const globalEntry = globals.map((each) => tensors.get(each)?.entry).find((each) => each !== undefined);
  if (globalEntry)
    return finding(
      "scale-dtype",
      name,
      `${description} has ${globalEntry.name} in ${globalEntry.dtype}; it must be F32`,
    );
  if (globals.length > 0)
    return finding("scale-missing", name, `${description} has no ${globals.join(" or ")}`);
  const [misfit] = candidates;
  if (misfit && matches.length === 0) {
    const { entry } = misfit;
    const dtypes = new Set(
      candidates.filter((each) => each.entry === entry).flatMap(({ scale }) => scale.dtypes),
    );
    const dtypeNames = [...dtypes].join(", ");
    return finding(
      "scale-dtype",
      name,
      `${description} has ${entry.name} in ${entry.dtype}; it must be ${dtypeNames}`,
    );
  }
  if (misfit)
    return finding(
      "codes-unrecognized",
      name,
      `${description} beside ${misfit.entry.name} is of no known convention`,
    );
  if (scale !== undefined && endOf(SCALE_ENDS, scale) === undefined)
    return finding("codes-unrecognized", name, `${description} beside ${scale} is of no known convention`);
  const scaleNames = [
    ...new Set((sameType.length > 0 ? sameType : rows).map(({ scale }) => base + scale.suffix)),
  ];
  return finding(
    "scale-missing",
    name,
    `${description} has none of ${scaleNames.join(", ") || `${name}_scale`}`,
  );
}
