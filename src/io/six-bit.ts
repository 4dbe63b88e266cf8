/** Codes of 6 bits: one byte each in memory; in files, four codes in three bytes, from the low bits. */
import { DTypeError } from "../errors.js";
import type { DType } from "../tensor/shape.js";
import type { FileDType } from "./dtypes.js";

const SIX_BIT = { e2m3: "F6_E2M3", e3m2: "F6_E3M2" } as const satisfies Partial<Record<DType, FileDType>>;

type SixBit = keyof typeof SIX_BIT;

/** The type in a file for codes of a 6-bit type; undefined for other types. */
export function sixBitFile(dtype: DType): FileDType | undefined {
  return Object.hasOwn(SIX_BIT, dtype) ? SIX_BIT[dtype as SixBit] : undefined;
}

/** The type in memory for a file's 6-bit codes; undefined for other types. */
export function sixBitDType(dtype: FileDType): SixBit | undefined {
  return (Object.keys(SIX_BIT) as SixBit[]).find((each) => SIX_BIT[each] === dtype);
}

/** Throws `DTypeError` if the last byte would be incomplete. */
export function packSix(name: string, codes: Uint8Array): Uint8Array {
  if (codes.length % 4 !== 0)
    throw new DTypeError(
      `saveTensors: "${name}" has ${codes.length} elements of 6 bits, which fill no whole bytes; pad it to a multiple of 4`,
    );
  const packed = new Uint8Array((codes.length / 4) * 3);
  for (let i = 0, at = 0; i < codes.length; i += 4, at += 3) {
    const [a = 0, b = 0, c = 0, d = 0] = codes.subarray(i, i + 4);
    const word = a | (b << 6) | (c << 12) | (d << 18);
    packed.set([word & 255, (word >> 8) & 255, word >> 16], at);
  }
  return packed;
}

/** Unpacks the result of `packSix`. */
export function unpackSix(packed: Uint8Array): Uint8Array {
  const codes = new Uint8Array((packed.length / 3) * 4);
  for (let i = 0, at = 0; at < packed.length; i += 4, at += 3) {
    const [a = 0, b = 0, c = 0] = packed.subarray(at, at + 3);
    const word = a | (b << 8) | (c << 16);
    codes.set([word & 63, (word >> 6) & 63, (word >> 12) & 63, word >> 18], i);
  }
  return codes;
}
