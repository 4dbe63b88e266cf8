/** Tensors that belong to no recognized weight: plain ones, and codes or scales that lack their counterpart. */
import type { FileDType } from "../../../io/dtypes.js";
import { type Finding, finding } from "../judge/findings.js";
import { CONVENTION_NAMES, conventionOf } from "../stored/conventions.js";
import type { CheckpointTensors, StoredTensor } from "../stored/open.js";

/** Element types that have no meaning as values without a scale. */
const CODE_DTYPES: ReadonlySet<FileDType> = new Set([
  "F4",
  "F6_E2M3",
  "F6_E3M2",
  "F8_E4M3",
  "F8_E5M2",
  "F8_E4M3FNUZ",
  "F8_E5M2FNUZ",
]);

/** Element types in which conventions pack codes. */
const PACKED_DTYPES: ReadonlySet<FileDType> = new Set(["U8", "I8", "I32"]);

/** Ends of names that plain tensors have too. */
const COMMON = [".scale", "_scale", "_scales", ""];

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
const CODE_ENDS = [...new Set(ROWS.map(({ codes }) => codes.suffix))].filter((suffix) => suffix !== "");
/** Ends of names of packed codes of GPTQ, AWQ and bitsandbytes. */
const FOREIGN_ENDS = [".qweight", ".qzeros", ".weight.absmax", ".weight.quant_map"];

const CACHE_ENDS = [".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".prob_scale", ".output_scale"];

/** Whether a tensor is a scale of the cache of keys and values, or of an attention's products. */
export function isCacheScale(name: string): boolean {
  return CACHE_ENDS.some((end) => name.endsWith(end));
}

const endOf = (ends: readonly string[], name: string): string | undefined =>
  ends.filter((end) => name.endsWith(end)).toSorted((a, b) => b.length - a.length)[0];

/** Sorts the tensors that are not `taken`. */
export function leftovers(
  checkpoint: CheckpointTensors,
  taken: ReadonlySet<string>,
): { readonly plain: readonly StoredTensor[]; readonly findings: readonly Finding[] } {
  const plain: StoredTensor[] = [];
  const findings: Finding[] = [];
  for (const stored of checkpoint.tensors.values()) {
    if (taken.has(stored.entry.name)) continue;
    const found = judge(checkpoint, stored);
    if (found) findings.push(found);
    else plain.push(stored);
  }
  return { plain, findings };
}

function judge({ tensors }: CheckpointTensors, { entry }: StoredTensor): Finding | undefined {
  const { name, dtype, shape } = entry;
  const what = `${dtype} [${shape}]`;
  if (isCacheScale(name)) return undefined;
  const scaleEnd = endOf(SCALE_ENDS, name);
  if (scaleEnd !== undefined || dtype === "F8_E8M0") {
    const base = scaleEnd === undefined ? name : name.slice(0, -scaleEnd.length);
    const beside = CODE_ENDS.map((end) => tensors.get(base + end)).find((each) => each !== undefined);
    const of = beside
      ? `beside ${beside.entry.name}, ${beside.entry.dtype} [${beside.entry.shape}]`
      : "alone";
    return finding("scale-orphan", name, `${what} stands ${of}, and no codes take it`);
  }
  if (dtype === "U8" && name.endsWith("_scales") && !tensors.has(name.replace(/_scales$/, "_blocks")))
    return finding("scale-orphan", name, `${what} has no ${name.replace(/_scales$/, "_blocks")} beside it`);
  const codeEnd = endOf(CODE_ENDS, name);
  const packed = PACKED_DTYPES.has(dtype) && codeEnd !== undefined;
  if (CODE_DTYPES.has(dtype) || packed) return missing(tensors, name, what, codeEnd ?? "");
  if (FOREIGN_ENDS.some((end) => name.endsWith(end)) && shape.length > 0)
    return finding("codes-unrecognized", name, `${what} is of a convention that is not read`);
  return undefined;
}

/** The finding for codes without the scales of a convention; it says what stands beside them. */
function missing(
  tensors: ReadonlyMap<string, StoredTensor>,
  name: string,
  what: string,
  codeEnd: string,
): Finding {
  const base = name.slice(0, name.length - codeEnd.length);
  const dtype = tensors.get(name)?.entry.dtype;
  const rows = ROWS.filter(({ codes }) => codes.suffix === codeEnd);
  const own = rows.filter(({ codes }) => codes.dtypes.some((each) => each === dtype));
  const beside = (own.length > 0 ? own : rows).flatMap(({ scale, global }) => {
    const entry = tensors.get(base + scale.suffix)?.entry;
    return entry && entry.name !== name ? [{ entry, scale, global }] : [];
  });
  const right = beside.filter(({ entry, scale }) => scale.dtypes.includes(entry.dtype));
  const globals = [...new Set(right.flatMap(({ global }) => (global ? [base + global.suffix] : [])))];
  const other = globals.map((each) => tensors.get(each)?.entry).find((each) => each !== undefined);
  if (other)
    return finding("scale-dtype", name, `${what} has ${other.name} in ${other.dtype}; it must be F32`);
  if (globals.length > 0) return finding("scale-missing", name, `${what} has no ${globals.join(" or ")}`);
  const [wrong] = beside;
  if (wrong && right.length === 0) {
    const { entry } = wrong;
    const dtypes = new Set(
      beside.filter((each) => each.entry === entry).flatMap(({ scale }) => scale.dtypes),
    );
    const needed = [...dtypes].join(", ");
    return finding("scale-dtype", name, `${what} has ${entry.name} in ${entry.dtype}; it must be ${needed}`);
  }
  if (wrong)
    return finding(
      "codes-unrecognized",
      name,
      `${what} beside ${wrong.entry.name} is of no known convention`,
    );
  const wanted = [...new Set((own.length > 0 ? own : rows).map(({ scale }) => base + scale.suffix))];
  return finding("scale-missing", name, `${what} has none of ${wanted.join(", ") || `${name}_scale`}`);
}
