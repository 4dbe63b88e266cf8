/** Codes and values of single elements of a file's tensors. */
import { valueOfCode } from "../formats/derive.js";
import { FILE_DTYPES, type FileDType, fileFormat } from "./dtypes.js";

/** Reads elements as unsigned codes of 4 to 64 bits. Codes of 4 and 6 bits are packed from the low bits. */
export class Codes {
  readonly #view: DataView;
  readonly #bits: number;

  constructor(
    readonly dtype: FileDType,
    bytes: Uint8Array,
  ) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#bits = FILE_DTYPES[dtype].bits;
  }

  at(index: number): bigint {
    switch (this.#bits) {
      case 8:
        return BigInt(this.#view.getUint8(index));
      case 16:
        return BigInt(this.#view.getUint16(index * 2, true));
      case 32:
        return BigInt(this.#view.getUint32(index * 4, true));
      case 64:
        return this.#view.getBigUint64(index * 8, true);
      default:
        return BigInt(this.#narrow(index * this.#bits));
    }
  }

  #narrow(bit: number): number {
    const byte = bit >> 3;
    const next = byte + 1 < this.#view.byteLength ? this.#view.getUint8(byte + 1) : 0;
    return ((this.#view.getUint8(byte) | (next << 8)) >> (bit & 7)) & (2 ** this.#bits - 1);
  }
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

/** The real numbers of an element: two for C64, else one. */
export function partsOf(dtype: FileDType, code: bigint): readonly (number | bigint)[] {
  if (dtype !== "C64") return [codeValue(dtype, code)];
  return [codeValue("F32", code & 0xffffffffn), codeValue("F32", code >> 32n)];
}
