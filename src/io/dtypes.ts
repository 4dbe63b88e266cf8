/** The element types of safetensors files, and the corresponding types of the library. */
import { DTypeError } from "../errors.js";
import { isScalarFormat } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";
import type { DType, Shape } from "../tensor/shape.js";
import { type ElementType, isElementType } from "../tensor/statistics/elements.js";

interface FileType {
  /** The number of bits of an element in the file. Elements of 4 and 6 bits are packed from the low bits. */
  readonly bits: number;
  /** The library's element type with the same bytes, if there is one. */
  readonly dtype?: DType;
  /** The scalar format of the elements, if the library has no element type with the same bytes. */
  readonly format?: ScalarFormat;
}

export const FILE_DTYPES = {
  BOOL: { bits: 8 },
  F4: { bits: 4, dtype: "e2m1" },
  F6_E2M3: { bits: 6, format: "e2m3" },
  F6_E3M2: { bits: 6, format: "e3m2" },
  U8: { bits: 8, dtype: "u8" },
  I8: { bits: 8 },
  F8_E4M3: { bits: 8, dtype: "e4m3" },
  F8_E5M2: { bits: 8, dtype: "e5m2" },
  F8_E8M0: { bits: 8, dtype: "e8m0" },
  F8_E4M3FNUZ: { bits: 8, dtype: "e4m3fnuz" },
  F8_E5M2FNUZ: { bits: 8, dtype: "e5m2fnuz" },
  I16: { bits: 16 },
  U16: { bits: 16, dtype: "u16" },
  F16: { bits: 16, dtype: "f16" },
  BF16: { bits: 16, dtype: "bf16" },
  I32: { bits: 32, dtype: "i32" },
  U32: { bits: 32, dtype: "u32" },
  F32: { bits: 32, dtype: "f32" },
  C64: { bits: 64 },
  F64: { bits: 64 },
  I64: { bits: 64 },
  U64: { bits: 64 },
} as const satisfies Record<string, FileType>;

/** The name of an element type in a safetensors file. */
export type FileDType = keyof typeof FILE_DTYPES;

/** Whether safetensors has an element type of that name. */
export function isFileDType(name: unknown): name is FileDType {
  return typeof name === "string" && Object.hasOwn(FILE_DTYPES, name);
}

/** The library's element type with the same bytes; undefined if there is none. */
export function tensorDType(dtype: FileDType): DType | undefined {
  const row: FileType = FILE_DTYPES[dtype];
  return row.dtype;
}

/** The scalar format of a file's elements; undefined for plain numbers. */
export function fileFormat(dtype: FileDType): ScalarFormat | undefined {
  const { dtype: same, format }: FileType = FILE_DTYPES[dtype];
  return format ?? (same !== undefined && isScalarFormat(same) ? same : undefined);
}

/** Whether files have a type for these codes that packs them differently from tensors of the library. */
export function isPackedInFiles(dtype: DType): boolean {
  return Object.values<FileType>(FILE_DTYPES).some(({ format }) => format === dtype);
}

/** The type by which elements of a file are compared. BOOL is compared as bytes. */
export function compareType(dtype: FileDType): ElementType {
  const name = fileFormat(dtype) ?? (dtype === "BOOL" ? "u8" : dtype.toLowerCase());
  if (isElementType(name)) return name;
  throw new DTypeError(`${dtype}: elements of this type cannot be compared`);
}

/** The number of bytes of a tensor in a file. Not an integer if 4- or 6-bit elements leave the last byte incomplete. */
export function fileBytes(dtype: FileDType, shape: Shape): number {
  return (shape.reduce((product, size) => product * size, 1) * FILE_DTYPES[dtype].bits) / 8;
}

/** The element type in a file with the same bytes. Throws `DTypeError` if there is none. */
export function fileDType(dtype: DType): FileDType {
  const name = Object.keys(FILE_DTYPES)
    .filter(isFileDType)
    .find((name) => tensorDType(name) === dtype);
  if (name) return name;
  throw new DTypeError(`${dtype}: safetensors files have no such element type; write its codes as u8`);
}
