/** Sums over blocks by the byte of their scale, of which the statistics of a weight are made. */
import type { Kernels } from "../../kernels/kernels.js";
import type { ByteScales } from "../../stored/byte-scales.js";
import { scaleOf } from "../../stored/scales.js";
import { SUM } from "./sum-indices.js";

/** Each of 256 entries has eight f64, of which the last one is two u32; see assembly/checkpoints/statistics.ts. */
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

/** Of a correlation, the sums by their index, from the first one on. */
const PAIRS = { count: 0, firstX: 1, firstY: 2, x: 3, y: 4, xx: 5, yy: 6, xy: 7 } as const;

/** What is known of the ranks of codes. */
export interface Ranks {
  /** The magnitude of each rank. */
  readonly magnitudes: Float64Array;
  /** The unit of the sums of squares. */
  readonly unit: number;
}

/** The entries of blocks that the kernels add to. */
export class ByteSums {
  /** Where the entries are. */
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

  /** Adds what the entries have to the f64 sums at an address, and clears them. Their scales are those of a matrix. */
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
      const own = (field: number): number => entries[byte * ENTRY.doubles + field] as number;
      const word = (field: number): number => words[2 * byte * ENTRY.doubles + field] as number;
      const pair = (at: number, n: number, y: number, yy: number): void => {
        if (n > 0 && value > 0 && value < Number.POSITIVE_INFINITY)
          addPairs(sums.subarray(at), Math.log2(value), firstY, n, y, yy);
      };
      pair(SUM.relaid, own(ENTRY.relaidCount), own(ENTRY.relaidY), own(ENTRY.relaidYY));
      const blocks = own(ENTRY.count) + word(ENTRY.infinite);
      if (blocks === 0) continue;
      pair(SUM.stored, own(ENTRY.count), own(ENTRY.y), own(ENTRY.yy));
      add(SUM.nonzero, blocks);
      if (value === 0) add(SUM.zeroScaled, blocks);
      const amax = ranks.magnitudes[word(ENTRY.rank)] as number;
      const squares = own(ENTRY.squares) * ranks.unit;
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

/** Adds `n` pairs of one x. Their sums of y and of its square are those of differences from `firstY`. */
function addPairs(sums: Float64Array, x: number, firstY: number, n: number, y: number, yy: number): void {
  const isFirst = sums[PAIRS.count] === 0;
  if (isFirst) sums.set([x, firstY], PAIRS.firstX);
  const dx = x - (sums[PAIRS.firstX] as number);
  // entries of another matrix begin with another y
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
