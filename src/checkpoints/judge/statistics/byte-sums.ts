/** Sums over blocks, grouped by the byte of their scale. The statistics of a weight are computed from them. */
import type { Kernels } from "../../kernels/kernels.js";
import type { ByteScales } from "../../stored/byte-scales.js";
import { scaleOf } from "../../stored/scales.js";
import { SUM } from "./sum-indices.js";

/** An entry for each of 256 bytes has eight f64, of which the last one is two u32; see assembly/checkpoints/statistics.ts. */
const ENTRY = {
  y: 0,
  yy: 1,
  count: 2,
  squares: 3,
  relaidY: 4,
  relaidYY: 5,
  relaidCount: 6,
  /** Indices of u32. */
  rank: 14,
  infinite: 15,
  doubles: 8,
} as const;
const BYTES = 256;

/** The fields of a correlation's sums. */
const PAIRS = { count: 0, firstX: 1, firstY: 2, x: 3, y: 4, xx: 5, yy: 6, xy: 7 } as const;

/** The magnitudes of code ranks. */
export interface Ranks {
  /** The magnitude of each rank. */
  readonly magnitudes: Float64Array;
  /** The unit of the sums of squares. */
  readonly unit: number;
}

/** Entries that the kernels add blocks to. */
export class ByteSums {
  /** The address of the entries. */
  readonly table: number;

  constructor(
    private readonly kernels: Kernels,
    private readonly scales: ByteScales,
    private readonly ranks: Ranks,
  ) {
    this.table = kernels.place("scale entries", 8 * (BYTES * ENTRY.doubles + 1)).address;
    this.#clear();
  }

  get #entries(): Float64Array {
    return this.kernels.doubles(this.table, BYTES * ENTRY.doubles + 1);
  }

  #clear(): void {
    this.#entries.fill(0);
    this.#entries[BYTES * ENTRY.doubles] = Number.NaN;
  }

  /** Adds the entries to the f64 sums at an address, and clears them. The scales are those of one matrix. */
  flush(matrix: number, address: number): void {
    const entries = this.#entries;
    const words = new Uint32Array(entries.buffer, entries.byteOffset, 2 * entries.length);
    const sums = this.kernels.doubles(address, SUM.count);
    const { ranks, scales } = this;
    const add = (at: number, value: number): void => {
      sums[at] = (sums[at] as number) + value;
    };
    const firstY = entries[BYTES * ENTRY.doubles] as number;
    for (const [byte, value] of scales.valuesOf(matrix).entries()) {
      const double = (field: number): number => entries[byte * ENTRY.doubles + field] as number;
      const word = (field: number): number => words[2 * byte * ENTRY.doubles + field] as number;
      const pair = (at: number, n: number, y: number, yy: number): void => {
        if (n > 0 && value > 0 && value < Number.POSITIVE_INFINITY)
          addPairs(sums.subarray(at), Math.log2(value), firstY, n, y, yy);
      };
      pair(SUM.relaid, double(ENTRY.relaidCount), double(ENTRY.relaidY), double(ENTRY.relaidYY));
      const blocks = double(ENTRY.count) + word(ENTRY.infinite);
      if (blocks === 0) continue;
      pair(SUM.stored, double(ENTRY.count), double(ENTRY.y), double(ENTRY.yy));
      add(SUM.nonzero, blocks);
      if (value === 0) add(SUM.zeroScaled, blocks);
      const amax = ranks.magnitudes[word(ENTRY.rank)] as number;
      const squares = double(ENTRY.squares) * ranks.unit;
      const inverse = 1 / value;
      const readings = [
        [SUM.amax, scaleOf(scales, value)],
        [SUM.inverseAmax, scaleOf(scales, inverse)],
      ] as const;
      for (const [at, scale] of readings) {
        const by = Math.abs(scale);
        if (!(by < Number.POSITIVE_INFINITY)) continue;
        if (amax * by > (sums[at] as number)) sums[at] = amax * by;
        add(at + 1, squares * by * by);
      }
    }
    this.#clear();
  }
}

/** Adds `n` pairs with the same x. `y` and `yy`: sums of the differences from `firstY` and of their squares. */
function addPairs(sums: Float64Array, x: number, firstY: number, n: number, y: number, yy: number): void {
  const isFirst = sums[PAIRS.count] === 0;
  if (isFirst) sums.set([x, firstY], PAIRS.firstX);
  const dx = x - (sums[PAIRS.firstX] as number);
  // entries of another matrix have another first y
  const shift = firstY - (sums[PAIRS.firstY] as number);
  const dy = y + n * shift;
  const dyy = yy + 2 * shift * y + n * shift * shift;
  for (const [at, more] of [
    [PAIRS.count, n],
    [PAIRS.x, n * dx],
    [PAIRS.y, dy],
    [PAIRS.xx, n * dx * dx],
    [PAIRS.yy, dyy],
    [PAIRS.xy, dx * dy],
  ] as const)
    sums[at] = (sums[at] as number) + more;
}
