/** The element types of GGUF files: the names of all types, and the byte layouts of the supported types. */
import { PACKED_LAYOUT_NAMES, PACKED_LAYOUTS, type PackedLayoutName } from "../../dialects/packed/packed.js";
import type { FileDType } from "../../io/dtypes.js";

/** Contiguous elements. */
export interface PlainType {
  readonly dtype: FileDType;
}

/** Blocks within a row: one-byte scales, then 4-bit codes. */
export interface BlockType {
  /** The elements of a block. */
  readonly elements: number;
  /** The number of scale bytes at the beginning of a block. Each scale belongs to the same number of elements. */
  readonly scales: number;
  readonly scaleDType: FileDType;
}

/** Blocks within a row in a packed layout, whose values are read as F32. */
export interface PackedType {
  readonly layout: PackedLayoutName;
  /** The elements of a block. */
  readonly elements: number;
  /** The bytes of a block. */
  readonly bytes: number;
}

/** The byte layout of a type. */
export type GgmlType = PlainType | BlockType | PackedType;

/** The names of types by their numbers. */
const NAMES: Readonly<Record<number, string>> = {
  ...{ 0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1" },
  ...{ 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K" },
  ...{
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
  },
  ...{ 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16" },
  ...{ 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0" },
};

const PACKED: Readonly<Record<string, PackedType>> = Object.fromEntries(
  PACKED_LAYOUT_NAMES.map((layout) => [
    layout.slice("gguf:".length).toUpperCase(),
    { layout, ...PACKED_LAYOUTS[layout] },
  ]),
);

const READ: Readonly<Record<string, GgmlType>> = {
  ...PACKED,
  F32: { dtype: "F32" },
  F16: { dtype: "F16" },
  BF16: { dtype: "BF16" },
  F64: { dtype: "F64" },
  I8: { dtype: "I8" },
  I16: { dtype: "I16" },
  I32: { dtype: "I32" },
  I64: { dtype: "I64" },
  MXFP4: { elements: 32, scales: 1, scaleDType: "F8_E8M0" },
  NVFP4: { elements: 64, scales: 4, scaleDType: "F8_E4M3" },
};

/** The names of the supported types. */
export const READ_TYPES = Object.keys(READ);

/** The name of a type, for errors, and its layout if it is supported. */
export function ggmlType(number: number): { readonly name: string; readonly type?: GgmlType } {
  const name = NAMES[number];
  if (name === undefined) return { name: `number ${number}` };
  const type = READ[name];
  return { name: `${name} (${number})`, ...(type ? { type } : {}) };
}

/** A type with its number in files. */
export type NumberedType<T extends GgmlType = GgmlType> = T & { readonly number: number };

const NUMBERED: readonly NumberedType[] = Object.entries(NAMES).flatMap(([number, name]) => {
  const type = READ[name];
  return type ? [{ ...type, number: Number(number) }] : [];
});

/** The type of contiguous elements of a dtype; undefined if GGUF has none. */
export function plainType(dtype: FileDType): NumberedType | undefined {
  return NUMBERED.find((type) => "dtype" in type && type.dtype === dtype);
}

/** The block type whose scales have this type; undefined if there is none. */
export function blockType(scaleDType: FileDType): NumberedType<BlockType> | undefined {
  const isBlock = (type: NumberedType): type is NumberedType<BlockType> => "scales" in type;
  return NUMBERED.filter(isBlock).find((type) => type.scaleDType === scaleDType);
}

/** The bytes of codes in a block. */
export function codeBytes({ elements }: BlockType): number {
  return elements / 2;
}

/** The bytes of a block. */
export function blockBytes(type: BlockType): number {
  return type.scales + codeBytes(type);
}

/** The bytes of a block of either kind. */
export function blockSize(type: BlockType | PackedType): number {
  return "layout" in type ? type.bytes : blockBytes(type);
}
