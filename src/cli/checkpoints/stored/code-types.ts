/** The codes of quantized weights in files: how they lie in bytes, and their values. */
import { valueOfCode } from "../../../formats/derive.js";
import type { ScalarFormat } from "../../../formats/scalar.js";
import { unpackFour, unpackSix } from "../../../tensor/packed.js";

/** A kind of code. */
export interface CodeType {
  /** The bits of a code: 8, or 4 or 6, which lie back to back from the low bits of a byte. */
  readonly bits: 4 | 6 | 8;
  /** The value of each code. */
  readonly values: Float64Array;
  /** The largest finite magnitude. */
  readonly max: number;
  /** By what values are multiplied, compared with the format of the codes; scales are smaller by the same. */
  readonly factor: number;
  /** Whether the type is FP8 with the codes of e4m3fn, for which files have other FP8 too. */
  readonly fn: boolean;
}

function floating(format: ScalarFormat, bits: CodeType["bits"]): CodeType {
  return typed(bits, (code) => valueOfCode(format, code));
}

function typed(bits: CodeType["bits"], value: (code: number) => number): CodeType {
  const values = Float64Array.from({ length: 2 ** bits }, (_, code) => value(code));
  return { bits, values, max: Math.max(...values.filter(Number.isFinite)), factor: 1, fn: false };
}

/** Every kind of code by its name. `int4` is stored with an offset of 8, as compressed-tensors packs it. */
export const CODE_TYPES = {
  e4m3: { ...floating("e4m3", 8), fn: true },
  e5m2: floating("e5m2", 8),
  e4m3fnuz: floating("e4m3fnuz", 8),
  e5m2fnuz: floating("e5m2fnuz", 8),
  e2m3: floating("e2m3", 6),
  e3m2: floating("e3m2", 6),
  e2m1: floating("e2m1", 4),
  /** ggml's table: doubled values, and no negative zero. */
  e2m1x2: { ...typed(4, (code) => (code === 8 ? 0 : 2 * valueOfCode("e2m1", code))), factor: 2 },
  int8: typed(8, (code) => (code < 128 ? code : code - 256)),
  int4: typed(4, (code) => code - 8),
} as const satisfies Record<string, CodeType>;

/** The name of a kind of code. */
export type CodeTypeName = keyof typeof CODE_TYPES;

/** Unpacks codes, one per element of `into`. Elements that `bytes` does not hold stay as they are. */
export function unpackCodes({ bits }: CodeType, bytes: Uint8Array, into: Uint8Array): void {
  if (bits === 8) into.set(bytes);
  else if (bits === 4) unpackFour(bytes, into);
  else unpackSix(bytes, into);
}
