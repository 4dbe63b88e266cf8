/** Scales as the bytes of a type that has exactly their values. */
import type { FileDType } from "../../../io/dtypes.js";
import { asBytes } from "../../../tensor/data.js";
import { toFloats } from "../stored/scales.js";
import { Changes, toWide } from "./wide.js";

/** The codes of positive values of a type with one byte for each. */
const CODES = new Map<FileDType, ReadonlyMap<number, number>>();

function codesOf(dtype: FileDType): ReadonlyMap<number, number> {
  const known = CODES.get(dtype);
  if (known) return known;
  const all = toFloats(
    dtype,
    Uint8Array.from({ length: 256 }, (_, code) => code),
  );
  const made = new Map<number, number>();
  all.forEach((value, code) => {
    if (Number.isFinite(value) && !made.has(value)) made.set(value, code);
  });
  CODES.set(dtype, made);
  return made;
}

/** The bytes of `values` in a type of one, two or four bytes; undefined if it does not have one of them. */
export function encodeScales(dtype: FileDType, values: Float32Array): Uint8Array | undefined {
  if (dtype === "F32") return asBytes(values);
  const bytes =
    dtype === "BF16" ? toWide("bf16", Float64Array.from(values), new Changes()) : byCode(dtype, values);
  if (!bytes) return undefined;
  const again = toFloats(dtype, bytes);
  return values.every((value, i) => value === again[i]) ? bytes : undefined;
}

function byCode(dtype: FileDType, values: Float32Array): Uint8Array | undefined {
  const codes = codesOf(dtype);
  const bytes = new Uint8Array(values.length);
  for (let i = 0; i < values.length; i++) {
    const code = codes.get(values[i] as number);
    if (code === undefined) return undefined;
    bytes[i] = code;
  }
  return bytes;
}
