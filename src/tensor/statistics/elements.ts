/** Element types whose codes can be compared: their width, the values of their codes, and the order of these values. */
import { factsOf, isIntegral, isScalarFormat, valueOfCode } from "../../formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../formats/scalar.js";

/** The widths in bits of number types that are not scalar formats. c64 is a complex number of two f32. */
const PLAIN = {
  f32: 32,
  f64: 64,
  c64: 64,
  i8: 8,
  i16: 16,
  i32: 32,
  i64: 64,
  u8: 8,
  u16: 16,
  u32: 32,
  u64: 64,
} as const;

/** An element type whose codes can be compared: a scalar format, or a plain number type. */
export type ElementType = ScalarFormat | keyof typeof PLAIN;

/** The maximum width in bits of codes that have tables. */
const TABLE_BITS = 19;
/** The rank of NaN in a table: larger than the rank of every number. */
export const NAN_RANK = 0x7fffffff;

/**
 * The values of all codes of an element type, and their ranks: neighbours in value have neighbouring ranks; both zeros have
 * 0.
 */
export interface CodeTable {
  readonly values: Float64Array;
  readonly ranks: Int32Array;
  /** The squares of the values, 0 where they are not finite. */
  readonly squares: Float64Array;
}

/** Returns the number of bits of an element in a comparison: packed codes are compared unpacked, one code in a byte. */
export function compareBits(type: ElementType): 8 | 16 | 32 | 64 {
  if (!isScalarFormat(type)) return PLAIN[type];
  const { bits } = factsOf(type);
  return bits <= 8 ? 8 : bits <= 16 ? 16 : 32;
}

/** Whether a string is the name of an element type. */
export function isElementType(name: unknown): name is ElementType {
  return typeof name === "string" && (isScalarFormat(name) || Object.hasOwn(PLAIN, name));
}

const tables = new Map<ElementType, CodeTable | undefined>();

/** Returns the table of an element type, or undefined if its codes are too many. */
export function tableOf(type: ElementType): CodeTable | undefined {
  if (!tables.has(type)) tables.set(type, makeTable(type));
  return tables.get(type);
}

function makeTable(type: ElementType): CodeTable | undefined {
  if (isScalarFormat(type)) return formatTable(type);
  const bits = PLAIN[type];
  if (bits > TABLE_BITS) return undefined;
  const values = Float64Array.from({ length: 2 ** bits }, (_, code) =>
    type.startsWith("i") && code >= 2 ** (bits - 1) ? code - 2 ** bits : code,
  );
  return { values, ranks: Int32Array.from(values), squares: squaresOf(values) };
}

function formatTable(format: ScalarFormat): CodeTable {
  const { bits } = factsOf(format);
  const { signed, subnormals, specials } = SCALAR_FORMATS[format];
  const signBit = 2 ** (bits - 1);
  // a format without zero has codes in the order of their values, from 1 so that none has the rank of zero
  const rankOf = (code: number): number => {
    if (signed && code >= signBit) return isIntegral(specials) ? code - 2 * signBit : signBit - code;
    return subnormals ? code : code + 1;
  };
  const values = Float64Array.from({ length: 2 ** bits }, (_, code) => valueOfCode(format, code));
  const ranks = Int32Array.from(values, (value, code) => (Number.isNaN(value) ? NAN_RANK : rankOf(code)));
  return { values, ranks, squares: squaresOf(values) };
}

function squaresOf(values: Float64Array): Float64Array {
  return values.map((value) => (Number.isFinite(value) ? value * value : 0));
}

/** Returns the rank of an f32, given by its bits as a signed integer. The ranks are as in `CodeTable`. */
export function f32Rank(bits: number): number {
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return NAN_RANK;
  return bits < 0 ? -magnitude : magnitude;
}
