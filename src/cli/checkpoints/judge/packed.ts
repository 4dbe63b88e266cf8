/** Findings about packed tensors of GGUF files, whose values are read as F32. */
import { WIDE } from "../../../formats/contract.gen.js";
import { packedAs } from "../gguf/file.js";
import type { Kernels } from "../kernels/kernels.js";
import type { StoredTensor } from "../stored/open.js";
import { type Finding, finding } from "./findings.js";

/** The bytes of F32 that are read at a time: whole blocks of each layout. */
const CHUNK_BYTES = 1 << 20;
const INFINITY = 0x7f800000;

/** The bytes of F32 that `judgePacked` reads of a tensor. */
export function packedBytes({ shard, entry }: StoredTensor): number {
  return packedAs(shard, entry.name) ? entry.end - entry.begin : 0;
}

/** Counts the values of a packed tensor that are NaN or infinite, which only its scales can make so. */
export async function judgePacked(
  kernels: Kernels,
  { shard, entry }: StoredTensor,
  onBytes: (count: number) => void = () => {},
): Promise<Finding[]> {
  const packed = packedAs(shard, entry.name);
  if (!packed) return [];
  const size = entry.end - entry.begin;
  let notFinite = 0;
  for (let at = 0; at < size; at += CHUNK_BYTES) {
    const { address, bytes } = kernels.place("packed values", Math.min(CHUNK_BYTES, size - at));
    await shard.readInto(entry, at, bytes);
    const count = bytes.length / 4;
    if (kernels.call("largestBits", { src: address, type: WIDE.f32, count }) >>> 0 >= INFINITY)
      for (const value of new Float32Array(bytes.buffer, bytes.byteOffset, count))
        if (!Number.isFinite(value)) notFinite++;
    onBytes(bytes.length);
  }
  const what = `${notFinite} of ${size / 4} values of ${packed.layout} are NaN or infinite, as scales of their blocks are`;
  return notFinite > 0 ? [finding("scale-not-finite", entry.name, what)] : [];
}
