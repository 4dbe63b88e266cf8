/** Reads the scales of a weight. */
import { valueOfCode } from "../../formats/derive.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import type { FileDType } from "../../io/dtypes.js";
import { fileFormat } from "../../io/dtypes.js";
import { SWIZZLE_TILE, swizzledIndex } from "../../tensor/places.js";
import { conventionOf } from "./conventions.js";
import type { StoredTensor } from "./tensors.js";
import { isStacked, matricesOf, type QuantizedWeight, type ScaleGeometry } from "./weight.js";

/** The global scale of a weight; 1 if the weight has none. */
export interface GlobalScale {
  /** The factor or divisor of all block scales. */
  readonly global: number;
  /** The global scale as it is stored. */
  readonly storedGlobal?: number;
  /** Whether block scales are divided by `global`. Otherwise they are multiplied by it. */
  readonly isDivisor: boolean;
  /** The global scales of a stack, one for each matrix. `Scales.values` includes them, and `global` is 1. */
  readonly storedGlobals?: Float32Array;
}

/** The scales of a weight as f32, row by row, matrix by matrix. */
export interface Scales extends GlobalScale {
  readonly values: Float32Array;
  /**
   * The scales in the opposite layout: in the plain layout if the swizzled layout is declared, in the swizzled layout otherwise.
   * Absent if that layout is impossible.
   */
  readonly oppositeLayout?: Float32Array;
}

/** Reads all scales of a weight. */
export async function readScales(weight: QuantizedWeight): Promise<Scales> {
  const blocks = await readBlockScales(weight);
  const global = await readGlobal(weight);
  if (!global.storedGlobals) return { ...blocks, ...global };
  const { storedGlobals: globals, isDivisor } = global;
  const step = blocks.values.length / globals.length;
  const inMatrices = (scales: Float32Array): Float32Array =>
    scales.map((scale, i) => scaleOf({ global: globals[Math.floor(i / step)] as number, isDivisor }, scale));
  const oppositeLayout = blocks.oppositeLayout ? { oppositeLayout: inMatrices(blocks.oppositeLayout) } : {};
  return { ...global, isDivisor: false, values: inMatrices(blocks.values), ...oppositeLayout };
}

/** Reads the block scales of a weight, without global scales. */
export async function readBlockScales({
  scale,
  geometry,
  shape,
  convention,
}: QuantizedWeight): Promise<Pick<Scales, "values" | "oppositeLayout">> {
  const { values: table } = conventionOf(convention).scale;
  const storedScales = table ? await readByTable(scale, table) : await readFloats(scale);
  const [matrices] = matricesOf(shape);
  const values = geometry.swizzled ? unswizzleScales(storedScales, matrices, geometry.grid) : storedScales;
  const [rows, columns] = geometry.grid;
  const even = geometry.kind === "group" && rows % SWIZZLE_TILE[0] === 0 && columns % SWIZZLE_TILE[1] === 0;
  const oppositeLayout = even
    ? {
        oppositeLayout: geometry.swizzled
          ? storedScales
          : unswizzleScales(storedScales, matrices, geometry.grid),
      }
    : {};
  return { values, ...oppositeLayout };
}

/** Reads the global scale of a weight, or the global scales of its matrices. */
export async function readGlobal(weight: QuantizedWeight): Promise<GlobalScale> {
  const { global, convention } = weight;
  if (!global) return { global: 1, isDivisor: false };
  const isDivisor = conventionOf(convention).global?.role === "divisor";
  const storedGlobals = await readFloats(global);
  if (isStacked(weight)) return { global: 1, storedGlobals, isDivisor };
  const [storedGlobal = Number.NaN] = storedGlobals;
  return { global: storedGlobal, storedGlobal, isDivisor };
}

/** The f32 scale of a block's codes: the stored scale of the block, combined with the global scale. */
export function scaleOf({ global, isDivisor }: Pick<Scales, "global" | "isDivisor">, block: number): number {
  return Math.fround(isDivisor ? block / global : block * global);
}

/** Unswizzles scales or their codes, row by row, matrix by matrix. */
export function unswizzleScales<T extends Float32Array | Uint32Array>(
  swizzledScales: T,
  matrices: number,
  [rows, columns]: ScaleGeometry["grid"],
): T {
  const step = matrices === 0 ? 0 : swizzledScales.length / matrices;
  const values = swizzledScales.slice(0, matrices * rows * columns) as T;
  if (values.length === 0) return values;
  for (let matrix = 0, index = 0; matrix < matrices; matrix++)
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++, index++)
        values[index] = swizzledScales[matrix * step + swizzledIndex(row, column, columns)] ?? Number.NaN;
  return values;
}

/** The scalar format of scales with this element type; e8m0 for U8. */
export function scaleFormat(dtype: FileDType): ScalarFormat {
  return fileFormat(dtype) ?? "e8m0";
}

/** Reads a tensor as f32. U8 is read as e8m0, as in scales. */
export async function readFloats({ shard, entry }: StoredTensor): Promise<Float32Array> {
  return toFloats(entry.dtype, await shard.read(entry));
}

async function readByTable({ shard, entry }: StoredTensor, table: Float32Array): Promise<Float32Array> {
  return Float32Array.from(await shard.read(entry), (byte) => table[byte] as number);
}

/** The values of elements of a type as f32. */
export function toFloats(dtype: FileDType, bytes: Uint8Array): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (dtype === "F32")
    return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  if (dtype === "BF16") {
    const codes = new Uint32Array(bytes.length / 2);
    for (let i = 0; i < codes.length; i++) codes[i] = view.getUint16(2 * i, true) << 16;
    return new Float32Array(codes.buffer);
  }
  if (dtype === "F16") {
    const table = halfTable();
    return Float32Array.from({ length: bytes.length / 2 }, (_, i) => table[view.getUint16(2 * i, true)] ?? 0);
  }
  const table = tableOf(dtype);
  const floats = new Float32Array(bytes.length);
  for (let i = 0; i < bytes.length; i++) floats[i] = table[bytes[i] as number] as number;
  return floats;
}

const TABLES = new Map<FileDType, Float32Array>();

/** The value of each code of a one-byte type. U8 is read as e8m0, as in scales. */
function tableOf(dtype: FileDType): Float32Array {
  const cached = TABLES.get(dtype);
  if (cached) return cached;
  const format = scaleFormat(dtype);
  const table = Float32Array.from({ length: 256 }, (_, code) => valueOfCode(format, code));
  TABLES.set(dtype, table);
  return table;
}

let half: Float32Array | undefined;

/** The value of each f16, computed at the first call. */
function halfTable(): Float32Array {
  half ??= Float32Array.from({ length: 65536 }, (_, code) => valueOfCode("f16", code));
  return half;
}
