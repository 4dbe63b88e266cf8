/** Scales of one byte as they are stored: which of them occur, and in which order they lie. */
import { fileBytes } from "../../../io/dtypes.js";
import type { Kernels, Place } from "../kernels/kernels.js";
import { conventionOf } from "./conventions.js";
import { toFloats } from "./scales.js";
import { isStacked, matricesOf, type QuantizedWeight } from "./weight.js";

/** Every byte. */
export const BYTES = Uint8Array.from({ length: 256 }, (_, byte) => byte);

/** Whether the scales of a weight have one byte each, which stands for the same scale everywhere. */
export function hasByteScales(weight: QuantizedWeight): boolean {
  return fileBytes(weight.scale.entry.dtype, [1]) === 1 && !isStacked(weight);
}

/** The f32 value of each byte, without a global scale. */
export function byteValues({ scale, convention }: QuantizedWeight): Float32Array {
  return conventionOf(convention).scale.values ?? toFloats(scale.entry.dtype, BYTES);
}

/** The scales of a weight as bytes, row by row, matrix by matrix. */
export async function readScaleBytes(
  kernels: Kernels,
  { scale: { shard, entry }, geometry, shape }: QuantizedWeight,
): Promise<Place> {
  const stored = kernels.place("stored scales", entry.end - entry.begin);
  await shard.readInto(entry, 0, stored.bytes);
  if (!geometry.swizzled) return stored;
  const [matrices] = matricesOf(shape);
  const [rows, columns] = geometry.grid;
  const plain = kernels.place("plain scales", matrices * rows * columns);
  for (let matrix = 0; matrix < matrices; matrix++)
    kernels.run("unswizzle", Math.ceil(rows / 128), {
      src: stored.address + matrix * (stored.bytes.length / matrices),
      dst: plain.address + matrix * rows * columns,
      rows,
      columns,
      rowStride: columns,
      columnStride: 1,
    });
  return plain;
}

/** How often each byte occurs. */
export function histogram(bytes: Uint8Array): Float64Array {
  // neighbours are often equal: with two counters for each byte, one does not wait for the other
  const counts = new Uint32Array(512);
  const even = bytes.length & ~1;
  for (let i = 0; i < even; i += 2) {
    const first = bytes[i] as number;
    const second = 256 + (bytes[i + 1] as number);
    counts[first] = (counts[first] as number) + 1;
    counts[second] = (counts[second] as number) + 1;
  }
  const last = bytes[even];
  if (last !== undefined) counts[last] = (counts[last] as number) + 1;
  return Float64Array.from(BYTES, (byte) => (counts[byte] as number) + (counts[256 + byte] as number));
}
