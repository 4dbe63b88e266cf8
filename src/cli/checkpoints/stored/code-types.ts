/** The codes of quantized weights in files: how they lie in bytes, and their values. */
import { valueOfCode } from "../../../formats/derive.js";
import type { ScalarFormat } from "../../../formats/scalar.js";

/** A packing: so many codes in so many bytes, from the low bits. */
interface Packing {
  readonly codes: number;
  readonly bytes: number;
}

const BYTE: Packing = { codes: 1, bytes: 1 };
const NIBBLES: Packing = { codes: 2, bytes: 1 };
const SIX: Packing = { codes: 4, bytes: 3 };

/** A kind of code. */
export interface CodeType {
  readonly bits: number;
  readonly packing: Packing;
  /** The value of each code. */
  readonly values: Float64Array;
  /** The largest finite magnitude. */
  readonly max: number;
  /** By what values are multiplied, compared with the format of the codes; scales are smaller by the same. */
  readonly factor: number;
  /** Whether the type is FP8 with the codes of e4m3fn, for which files have other FP8 too. */
  readonly fn: boolean;
}

function floating(format: ScalarFormat, bits: number, packing: Packing): CodeType {
  return typed(bits, packing, (code) => valueOfCode(format, code));
}

function typed(bits: number, packing: Packing, value: (code: number) => number): CodeType {
  const values = Float64Array.from({ length: 2 ** bits }, (_, code) => value(code));
  return { bits, packing, values, max: Math.max(...values.filter(Number.isFinite)), factor: 1, fn: false };
}

/** Every kind of code by its name. `int4` is stored with an offset of 8, as compressed-tensors packs it. */
export const CODE_TYPES = {
  e4m3: { ...floating("e4m3", 8, BYTE), fn: true },
  e5m2: floating("e5m2", 8, BYTE),
  e4m3fnuz: floating("e4m3fnuz", 8, BYTE),
  e5m2fnuz: floating("e5m2fnuz", 8, BYTE),
  e2m3: floating("e2m3", 6, SIX),
  e3m2: floating("e3m2", 6, SIX),
  e2m1: floating("e2m1", 4, NIBBLES),
  /** ggml's table: doubled values, and no negative zero. */
  e2m1x2: { ...typed(4, NIBBLES, (code) => (code === 8 ? 0 : 2 * valueOfCode("e2m1", code))), factor: 2 },
  int8: typed(8, BYTE, (code) => (code < 128 ? code : code - 256)),
  int4: typed(4, NIBBLES, (code) => code - 8),
} as const satisfies Record<string, CodeType>;

/** The name of a kind of code. */
export type CodeTypeName = keyof typeof CODE_TYPES;

/** Unpacks codes, one per element of `into`. Elements that `bytes` does not hold stay as they are. */
export function unpackCodes({ packing, bits }: CodeType, bytes: Uint8Array, into: Uint8Array): void {
  if (packing === BYTE) {
    into.set(bytes);
    return;
  }
  const mask = 2 ** bits - 1;
  for (let from = 0, to = 0; from < bytes.length; from += packing.bytes, to += packing.codes) {
    let word = 0;
    for (let i = 0; i < packing.bytes; i++) word |= (bytes[from + i] ?? 0) << (8 * i);
    for (let i = 0; i < packing.codes; i++) into[to + i] = (word >> (bits * i)) & mask;
  }
}
