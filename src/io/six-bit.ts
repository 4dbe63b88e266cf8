/** Codes of 6 bits: one byte each in memory; in files, four codes in three bytes. */
import { DTypeError } from "../errors.js";
import { packSix } from "../tensor/packed.js";
import type { DType } from "../tensor/shape.js";
import type { FileDType } from "./dtypes.js";

const SIX_BIT = { e2m3: "F6_E2M3", e3m2: "F6_E3M2" } as const satisfies Partial<Record<DType, FileDType>>;

type SixBit = keyof typeof SIX_BIT;

/** The type in a file for codes of a 6-bit type; undefined for other types. */
export function sixBitFile(dtype: DType): FileDType | undefined {
  return Object.hasOwn(SIX_BIT, dtype) ? SIX_BIT[dtype as SixBit] : undefined;
}

/** The type in memory of 6-bit codes of a file; undefined for other types. */
export function sixBitDType(dtype: FileDType): SixBit | undefined {
  return (Object.keys(SIX_BIT) as SixBit[]).find((each) => SIX_BIT[each] === dtype);
}

/** The bytes of the 6-bit codes of a tensor in a file. Throws `DTypeError` if the last byte would be incomplete. */
export function sixBitBytes(name: string, codes: Uint8Array): Uint8Array {
  if (codes.length % 4 === 0) return packSix(codes);
  throw new DTypeError(
    `saveTensors: "${name}" has ${codes.length} elements of 6 bits, which are not a whole number of bytes; pad it to a multiple of 4`,
  );
}
