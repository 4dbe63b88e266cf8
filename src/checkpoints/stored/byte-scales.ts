/** One-byte scales in their stored form: their bytes, layout and counts. */
import { fileBytes } from "../../io/dtypes.js";
import { SWIZZLE_TILE, swizzledIndex } from "../../tensor/places.js";
import { countBytes } from "../kernels/count-bytes.js";
import type { KernelBuffer, Kernels } from "../kernels/kernels.js";
import { conventionOf } from "./conventions.js";
import { type GlobalScale, readGlobal, scaleOf, toFloats } from "./scales.js";
import type { StoredTensor } from "./tensors.js";
import { isStacked, matricesOf, type QuantizedWeight } from "./weight.js";

/** The bytes 0 to 255. */
export const BYTES = Uint8Array.from({ length: 256 }, (_, byte) => byte);

/** Whether the scales of a weight have one byte each, and equal bytes always have equal values. */
export function hasByteScales(weight: QuantizedWeight): boolean {
  return fileBytes(weight.scale.entry.dtype, [1]) === 1 && !isStacked(weight);
}

/** The f32 value of each byte, without a global scale. */
export function byteValues({ scale, convention }: QuantizedWeight): Float32Array {
  return conventionOf(convention).scale.values ?? toFloats(scale.entry.dtype, BYTES);
}

/** One-byte scales in the opposite layout. */
export interface OppositeLayoutBytes {
  /** Lays out all scales, row by row, matrix by matrix. */
  readonly buffer: () => KernelBuffer;
  /** The byte at a row and column of the first matrix. */
  readonly at: (row: number, column: number) => number;
}

/** One-byte scales in kernel memory. They are valid until the next scales are read. */
export interface ByteScales extends GlobalScale {
  /** The scales row by row, matrix by matrix. */
  readonly bytes: KernelBuffer;
  /**
   * The scales in the opposite layout: in the plain layout if the swizzled layout is declared, in the swizzled layout otherwise.
   * Absent if that layout is impossible.
   */
  readonly oppositeLayout?: OppositeLayoutBytes;
  /** The f32 scale of each byte in a matrix, equal to `Scales.values`. */
  readonly valuesOf: (matrix: number) => Float32Array;
}

/** The scales of a weight as bytes, row by row, matrix by matrix. */
export async function readScaleBytes(kernels: Kernels, weight: QuantizedWeight): Promise<KernelBuffer> {
  const buffer = await readStored(kernels, weight);
  return weight.geometry.swizzled ? unswizzle(kernels, weight, buffer) : buffer;
}

/** Reads the scales of a weight as bytes. Undefined if the scales are wider, or if the weight has only one scale. */
export async function readByteScales(
  kernels: Kernels,
  weight: QuantizedWeight,
): Promise<ByteScales | undefined> {
  const { geometry, scale, shape } = weight;
  const { kind, swizzled } = geometry;
  const count = matricesOf(shape)[0] * geometry.grid[0] * geometry.grid[1];
  if (kind === "whole" || fileBytes(scale.entry.dtype, [1]) !== 1) return undefined;
  if (!swizzled && scale.entry.end - scale.entry.begin !== count) return undefined;
  const global = await readGlobal(weight);
  const table = byteValues(weight);
  const buffer = await readStored(kernels, weight);
  const [rows, columns] = geometry.grid;
  const hasOther = kind === "group" && rows % SWIZZLE_TILE[0] === 0 && columns % SWIZZLE_TILE[1] === 0;
  const oppositeLayout: OppositeLayoutBytes = {
    buffer: () => (swizzled ? buffer : unswizzle(kernels, weight, buffer)),
    at: (row, column) =>
      buffer.bytes[swizzled ? row * columns + column : swizzledIndex(row, column, columns)] as number,
  };
  const { storedGlobals, isDivisor } = global;
  return {
    ...global,
    isDivisor: storedGlobals ? false : isDivisor,
    bytes: swizzled ? unswizzle(kernels, weight, buffer) : buffer,
    ...(hasOther ? { oppositeLayout } : {}),
    valuesOf: (matrix) =>
      storedGlobals
        ? table.map((value) => scaleOf({ global: storedGlobals[matrix] ?? Number.NaN, isDivisor }, value))
        : table,
  };
}

/** The tensor whose bytes are in the kernel buffer "stored scales". */
const STORED = new WeakMap<Kernels, StoredTensor>();

/** Returns the stored scales of a weight. Reads them unless the previous call read the same tensor. */
async function readStored(kernels: Kernels, { scale }: QuantizedWeight): Promise<KernelBuffer> {
  const { shard, entry } = scale;
  const stored = kernels.buffer("stored scales", entry.end - entry.begin);
  if (STORED.get(kernels) === scale) return stored;
  STORED.delete(kernels);
  await shard.readInto(entry, 0, stored.bytes);
  STORED.set(kernels, scale);
  return stored;
}

/** Unswizzles one-byte scales, row by row, matrix by matrix. */
function unswizzle(
  kernels: Kernels,
  { geometry, shape }: QuantizedWeight,
  buffer: KernelBuffer,
): KernelBuffer {
  const [matrices] = matricesOf(shape);
  const [rows, columns] = geometry.grid;
  const plainBuffer = kernels.buffer("plain scales", matrices * rows * columns);
  // an empty stack may have any number of matrices
  if (plainBuffer.bytes.length === 0) return plainBuffer;
  for (let matrix = 0; matrix < matrices; matrix++)
    kernels.run("unswizzle", Math.ceil(rows / SWIZZLE_TILE[0]), {
      src: buffer.address + matrix * (buffer.bytes.length / matrices),
      dst: plainBuffer.address + matrix * rows * columns,
      rows,
      columns,
      rowStride: columns,
      columnStride: 1,
    });
  return plainBuffer;
}

/** The bytes that occur in a tensor of scales, and the number of occurrences of each byte. */
interface ByteCounts {
  readonly length: number;
  readonly bytes: Uint8Array;
  readonly counts: Float64Array;
}

const COUNTED = new WeakMap<StoredTensor, ByteCounts>();

/** Counts the occurrences of each byte in the scales of a weight. The result is cached. */
export function countScaleBytes(
  kernels: Kernels,
  { scale }: QuantizedWeight,
  scales: KernelBuffer,
): Float64Array {
  const cached = COUNTED.get(scale);
  const { length } = scales.bytes;
  if (cached?.length === length) {
    const counts = new Float64Array(BYTES.length);
    for (const [i, byte] of cached.bytes.entries()) counts[byte] = cached.counts[i] as number;
    return counts;
  }
  const counts = histogram(kernels, scales);
  const bytes = BYTES.filter((byte) => counts[byte] !== 0);
  COUNTED.set(scale, { length, bytes, counts: Float64Array.from(bytes, (byte) => counts[byte] as number) });
  return counts;
}

/** Counts the occurrences of each byte. */
export function histogram(kernels: Kernels, { address, bytes: { length } }: KernelBuffer): Float64Array {
  return countBytes(kernels, { address, rows: 1, width: length, pitch: length });
}
