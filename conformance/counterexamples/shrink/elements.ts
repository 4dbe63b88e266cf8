/** Simplifies the elements of tensors. */
import { factsOf, isScalarFormat } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { elementValue, mapCodes } from "../suspects/inputs.js";
import { type Budget, type Fails, simplest } from "./budget.js";

/** The layout of a type's codes. Undefined for integers, which are indices or counts. */
function layoutOf(dtype: PlainTensor["dtype"]) {
  if (dtype === "f32") return { mantissaBits: 23, bits: 32, signed: true, subnormals: true };
  if (!isScalarFormat(dtype)) return undefined;
  const { mantissaBits, signed, subnormals } = SCALAR_FORMATS[dtype];
  return { mantissaBits, bits: factsOf(dtype).bits, signed, subnormals };
}

/** The code of 1. */
function codeOfOne(dtype: PlainTensor["dtype"]): number {
  if (dtype === "f32") return 0x3f800000;
  const { bits } = factsOf(dtype as "e4m3");
  for (let code = 0; code < 2 ** (bits - 1); code++) if (elementValue(dtype, code) === 1) return code;
  return 0;
}

/** Simpler codes, the simplest first: 0, 1, a power of two, without a sign, with fewer mantissa bits. */
function simplerCodes(dtype: PlainTensor["dtype"], code: number, hasZero: boolean): readonly number[] {
  const layout = layoutOf(dtype);
  if (!layout) return [];
  const { mantissaBits, bits, signed } = layout;
  const sign = signed && code >= 2 ** (bits - 1) ? 2 ** (bits - 1) : 0;
  const bare = code - sign;
  const cut = (dropped: number) => sign + bare - (bare % 2 ** dropped);
  const isNumber = Number.isFinite(elementValue(dtype, code));
  const candidates = [
    ...(hasZero ? [0] : []),
    codeOfOne(dtype),
    bare,
    ...(isNumber ? Array.from({ length: mantissaBits }, (_, i) => cut(mantissaBits - i)) : []),
  ];
  const end = candidates.indexOf(code);
  return [...new Set(end < 0 ? candidates : candidates.slice(0, end))];
}

/** The tensor with the elements in [from, to) set to zero. Undefined if they already are. */
function cleared(x: PlainTensor, from: number, to: number): PlainTensor | undefined {
  const { codes } = x;
  if (codes.subarray(from, to).every((code) => code === 0)) return undefined;
  return mapCodes(x, (code, i) => (i >= from && i < to ? 0 : code));
}

/**
 * A tensor with most elements zero and the others simple; `fails` tests a candidate. Factors, such as scales, become 1, not 0.
 */
export async function simplerTensor(
  x: PlainTensor,
  fails: Fails<PlainTensor>,
  budget: Budget,
  isFactor = false,
): Promise<PlainTensor> {
  if (!layoutOf(x.dtype) || x.codes.length === 0) return x;
  const hasZero = layoutOf(x.dtype)?.subnormals === true && !isFactor;
  let current = x;
  if (hasZero) current = await withoutElements(current, fails, budget);
  current = await withEqualElements(current, fails, budget, hasZero);
  const { length } = current.codes;
  for (let i = 0; i < length && budget.isLeft; i++) {
    if (hasZero && current.codes[i] === 0) continue;
    const of = function* (each: PlainTensor): Iterable<PlainTensor> {
      for (const code of simplerCodes(each.dtype, each.codes[i] as number, hasZero))
        yield mapCodes(each, (old, at) => (at === i ? code : old));
    };
    current = await simplest(current, of, fails, budget);
  }
  return current;
}

/** Sets ever smaller runs of elements to zero. */
async function withoutElements(
  x: PlainTensor,
  fails: Fails<PlainTensor>,
  budget: Budget,
): Promise<PlainTensor> {
  let current = x;
  const { length } = x.codes;
  for (let run = length; run >= 1; run = run === 1 ? 0 : Math.ceil(run / 2))
    for (let from = 0; from < length && budget.isLeft; from += run) {
      const candidate = cleared(current, from, from + run);
      if (!candidate) continue;
      budget.spend();
      if (await fails(candidate)) current = candidate;
    }
  return current;
}

/** Sets all remaining elements to one simple value if the failure persists. */
async function withEqualElements(
  x: PlainTensor,
  fails: Fails<PlainTensor>,
  budget: Budget,
  hasZero: boolean,
): Promise<PlainTensor> {
  const one = codeOfOne(x.dtype);
  const candidate = mapCodes(x, (code) => (hasZero && code === 0 ? 0 : one));
  if (candidate.codes.every((code, i) => code === x.codes[i]) || !budget.isLeft) return x;
  budget.spend();
  return (await fails(candidate)) ? candidate : x;
}

/** Rows [top, bottom) and columns [left, right) of a matrix. */
export function cropped<D extends PlainTensor["dtype"]>(
  x: PlainTensor<D>,
  [top, bottom]: readonly [number, number],
  [left, right]: readonly [number, number],
): PlainTensor<D> {
  const [, columns] = x.matrix;
  const { codes } = x;
  const [high, wide] = [bottom - top, right - left];
  const words = Array.from(
    { length: high * wide },
    (_, i) => codes[(top + Math.floor(i / wide)) * columns + left + (i % wide)] as number,
  );
  return fromCodes(x.dtype, [high, wide], words);
}
