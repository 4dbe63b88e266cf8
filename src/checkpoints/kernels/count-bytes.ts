/** Counts bytes in kernel memory. */
import type { Kernels } from "./kernels.js";

const BYTES = 256;
/** The number of tables of counts, which the kernel updates in turn. */
const TABLES = 8;

/** Rows of `width` bytes that are `pitch` bytes apart. */
interface ByteBlock {
  readonly address: number;
  readonly rows: number;
  readonly width: number;
  readonly pitch: number;
}

/** Counts the occurrences of each byte. */
export function countBytes(
  kernels: Kernels,
  { address: codes, rows, width, pitch }: ByteBlock,
): Float64Array {
  const { address: counts } = kernels.buffer("byte counts", 4 * TABLES * BYTES);
  const counters = kernels.words(counts, TABLES * BYTES);
  counters.fill(0);
  kernels.call("countBlock", { codes, rows, width, pitch, counts });
  const sums = new Float64Array(BYTES);
  for (let i = 0; i < counters.length; i++)
    sums[i % BYTES] = (sums[i % BYTES] as number) + (counters[i] as number);
  return sums;
}
