/** Codes and values of single elements of a file's tensors. */
import { valueOfCode } from "../formats/derive.js";
import { unpackFour, unpackSix } from "../tensor/packed.js";
import { FILE_DTYPES, type FileDType, fileFormat } from "./dtypes.js";

/** Unpacks 4- and 6-bit codes of a file to one code per byte. Returns bytes of other types unchanged. */
export function unpackCodes(dtype: FileDType, bytes: Uint8Array): Uint8Array {
  const { bits } = FILE_DTYPES[dtype];
  if (bits === 4) return unpackFour(bytes);
  return bits === 6 ? unpackSix(bytes) : bytes;
}

/**
 * The value of a code: a number for floating-point types, a bigint for integers. C64 is read as two halves (`partsOf`).
 */
export function codeValue(dtype: FileDType, code: bigint): number | bigint {
  const format = fileFormat(dtype);
  if (format) return valueOfCode(format, Number(code));
  const { bits } = FILE_DTYPES[dtype];
  if (dtype === "F32") return new DataView(viewOf(code).buffer).getFloat32(0, true);
  if (dtype === "F64") return new DataView(viewOf(code).buffer).getFloat64(0, true);
  return dtype.startsWith("I") ? BigInt.asIntN(bits, code) : code;
}

function viewOf(code: bigint): BigUint64Array<ArrayBuffer> {
  return BigUint64Array.of(code);
}

/** The value and the code of an element, as strings. */
export function codeText(dtype: FileDType, code: bigint): { readonly value: string; readonly code: string } {
  const digits = Math.ceil(FILE_DTYPES[dtype].bits / 4);
  const strings = partsOf(dtype, code).map((part) => (Object.is(part, -0) ? "-0" : String(part)));
  return { value: strings.join(" + i*"), code: `0x${code.toString(16).padStart(digits, "0")}` };
}

/** The real numbers of an element: two for C64, else one. */
export function partsOf(dtype: FileDType, code: bigint): readonly (number | bigint)[] {
  if (dtype !== "C64") return [codeValue(dtype, code)];
  return [codeValue("F32", code & 0xffffffffn), codeValue("F32", code >> 32n)];
}
