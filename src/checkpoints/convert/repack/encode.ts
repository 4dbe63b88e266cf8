/** Encodes scales exactly, in the type of a target. */
import { type FileDType, fileBytes } from "../../../io/dtypes.js";
import { asBytes } from "../../../tensor/data.js";
import { toFloats } from "../../stored/scales.js";
import { Changes } from "../changes/changes.js";
import { encodeWide } from "../dequantize/round.js";

/** The first code of each finite value of a type of one or two bytes. */
const CODES = new Map<FileDType, ReadonlyMap<number, number>>();

function codesOf(dtype: FileDType): ReadonlyMap<number, number> {
  const cached = CODES.get(dtype);
  if (cached) return cached;
  const codes = fileBytes(dtype, [1]) === 2 ? new Uint16Array(65536) : new Uint8Array(256);
  for (let code = 0; code < codes.length; code++) codes[code] = code;
  const byValue = new Map<number, number>();
  toFloats(dtype, asBytes(codes)).forEach((value, code) => {
    if (Number.isFinite(value) && !byValue.has(value)) byValue.set(value, code);
  });
  CODES.set(dtype, byValue);
  return byValue;
}

/** Encodes `values` in a type of one, two or four bytes. Undefined if a value is not exact in this type. */
export function encodeScales(dtype: FileDType, values: Float32Array): Uint8Array | undefined {
  if (dtype === "F32") return asBytes(values);
  const bytes =
    dtype === "BF16" ? encodeWide("bf16", Float64Array.from(values), new Changes()) : byCode(dtype, values);
  if (!bytes) return undefined;
  const decoded = toFloats(dtype, bytes);
  return values.every((value, i) => value === decoded[i]) ? bytes : undefined;
}

function byCode(dtype: FileDType, values: Float32Array): Uint8Array | undefined {
  const codes = codesOf(dtype);
  const elements =
    fileBytes(dtype, [1]) === 2 ? new Uint16Array(values.length) : new Uint8Array(values.length);
  for (let i = 0; i < values.length; i++) {
    const code = codes.get(values[i] as number);
    if (code === undefined) return undefined;
    elements[i] = code;
  }
  return asBytes(elements);
}
