/** The code types in files: their widths and values. */
import { isScalarFormat, valueOfCode } from "../../formats/derive.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { unpackFour, unpackSix } from "../../tensor/packed.js";

/** A code type. */
export interface CodeType {
  /** The bits of a code. Codes of 4 and 6 bits are packed from the low bits up; `packing.ts` unpacks other packings. */
  readonly bits: number;
  /** The value of each code. */
  readonly values: Float64Array;
  /** The largest finite magnitude. */
  readonly max: number;
  /** The factor by which values exceed the values of the scalar format with the same codes. Scales are divided by this factor. */
  readonly factor: number;
  /** Whether the type is e4m3fn. Files may contain another FP8 type instead. */
  readonly fn: boolean;
}

function floating(format: ScalarFormat, bits: number): CodeType {
  return typed(bits, (code) => valueOfCode(format, code));
}

function typed(bits: number, value: (code: number) => number): CodeType {
  const values = Float64Array.from({ length: 2 ** bits }, (_, code) => value(code));
  return { bits, values, max: Math.max(...values.filter(Number.isFinite)), factor: 1, fn: false };
}

/** Integers stored with an offset of half their range, as compressed-tensors packs them. */
const offset = (bits: number): CodeType => typed(bits, (code) => code - 2 ** (bits - 1));

/** Every code type by its name. `int8` is two's complement; other integers have an offset. */
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
  int1: offset(1),
  int2: offset(2),
  int3: offset(3),
  int4: offset(4),
  int5: offset(5),
  int6: offset(6),
  int7: offset(7),
  /** Differences between 8-bit integers and their zero points. */
  int9: offset(9),
} as const satisfies Record<string, CodeType>;

/** The name of a code type. */
export type CodeTypeName = keyof typeof CODE_TYPES;

/** The scalar format with the same code values; undefined if there is none. */
export function scalarFormatOf(type: CodeTypeName): ScalarFormat | undefined {
  if (!isScalarFormat(type)) return undefined;
  const { values } = CODE_TYPES[type];
  return values.every((value, code) => Object.is(value, valueOfCode(type, code))) ? type : undefined;
}

/** Unpacks codes of 4, 6 or 8 bits, one per element of `target`. Elements beyond the end of `bytes` stay unchanged. */
export function unpackCodes({ bits }: CodeType, bytes: Uint8Array, target: Uint8Array): void {
  if (bits === 8) target.set(bytes);
  else if (bits === 4) unpackFour(bytes, target);
  else unpackSix(bytes, target);
}

/** The e4m3 value of each byte, for conventions whose tensors declare another type. */
export const E4M3_BYTES = Float32Array.from({ length: 256 }, (_, byte) => valueOfCode("e4m3", byte));

/** The bias of e8m0 plus one, because the scales are halved. No byte is NaN. */
const HALF_BIAS = 128;
const MAGNITUDE = 0x7f;

/** The scale of each e8m0 byte in a ggml block: 2^(byte - 128). It is halved, because ggml's table of codes is doubled. */
export const E8M0_HALVES = Float32Array.from({ length: 256 }, (_, byte) => 2 ** (byte - HALF_BIAS));

/** The scale of each unsigned-e4m3 byte in a ggml block, halved. Bit 7 is ignored; 0x7F is 0, and 0xFF is 240. */
export const UE4M3_HALVES = Float32Array.from({ length: 256 }, (_, byte) => {
  if (byte === MAGNITUDE) return 0;
  const magnitude = byte & MAGNITUDE;
  return (magnitude === MAGNITUDE ? 480 : valueOfCode("e4m3", magnitude)) / 2;
});
