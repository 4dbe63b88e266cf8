/** Blocks of one-byte codes with one-byte scales, summed by scale byte. */
import type { Kernels } from "../../kernels/kernels.js";
import type { ScaleSums } from "./scale-sums.js";

/** An entry for each of 256 bytes has eight f64; see assembly/checkpoints/statistics.ts. */
const ENTRY = {
  y: 0,
  yy: 1,
  count: 2,
  squares: 3,
  /** Indices of u32. */
  rank: 8,
  infinite: 9,
  doubles: 8,
} as const;
const BYTES = 256;

/** Entries that the kernel adds blocks to. */
export class ByteBlocks {
  /** The address of the entries. */
  readonly table: number;

  /** `magnitudes`: the magnitude of each rank. */
  constructor(
    private readonly kernels: Kernels,
    private readonly magnitudes: Float64Array,
  ) {
    this.table = kernels.place("scale entries", 8 * (BYTES * ENTRY.doubles + 1)).address;
    this.#clear(this.#entries);
  }

  get #entries(): Float64Array {
    return this.kernels.doubles(this.table, BYTES * ENTRY.doubles + 1);
  }

  #clear(entries: Float64Array): void {
    entries.fill(0);
    entries[BYTES * ENTRY.doubles] = Number.NaN;
  }

  /** Returns the sums of the blocks that have a nonzero code, and clears the entries. */
  drain(): ScaleSums[] {
    const entries = this.#entries;
    const words = new Uint32Array(entries.buffer, entries.byteOffset, 2 * entries.length);
    const firstY = entries[BYTES * ENTRY.doubles] as number;
    const all: ScaleSums[] = [];
    for (let byte = 0; byte < BYTES; byte++) {
      const double = (field: number): number => entries[byte * ENTRY.doubles + field] as number;
      const word = (field: number): number => words[2 * byte * ENTRY.doubles + field] as number;
      const [blocks, infinite] = [double(ENTRY.count), word(ENTRY.infinite)];
      if (blocks + infinite === 0) continue;
      const [y, yy, squares] = [double(ENTRY.y), double(ENTRY.yy), double(ENTRY.squares)];
      const amax = this.magnitudes[word(ENTRY.rank)] as number;
      all.push({ byte, blocks, infinite, firstY, y, yy, squares, amax });
    }
    this.#clear(entries);
    return all;
  }
}
