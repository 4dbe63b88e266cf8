/** Sums over blocks with one-byte scales, one entry for each scale byte. */
import type { Kernels } from "../../kernels/kernels.js";
import { ranksOf } from "../../kernels/magnitudes.js";
import type { ScaleSums } from "./scale-sums.js";

/**
 * The f64 indices of the fields of an entry; see assembly/checkpoints/statistics-layout.ts. Each of the 256 scale bytes has an
 * entry.
 */
const ENTRY = {
  y: 0,
  yy: 1,
  count: 2,
  squares: 3,
  /** The u32 indices of the other fields. */
  rank: 8,
  infinite: 9,
  nonzero: 10,
  doubles: 8,
} as const;
const BYTES = 256;
/** The number of f64 of the table: the entries, then the logarithm of the first block. */
const DOUBLES = BYTES * ENTRY.doubles + 1;

/** Sums over the 4-bit codes under one scale byte. */
export interface ScaleTally {
  readonly byte: number;
  /** The number of nonzero codes. */
  nonzero: number;
  /** The sum of the ranks of codes, and the largest rank. A rank is the square of a value, in the unit that `ranksOf` returns. */
  ranks: number;
  rank: number;
}

/** The table to whose entries the kernels add blocks. */
export class ScaleEntries {
  /** The address of the entries. */
  readonly table: number;
  readonly #tallies = new Map<number, ScaleTally>();

  /** `kind`: the table of magnitudes of the code type. */
  constructor(
    private readonly kernels: Kernels,
    private readonly kind: Uint8Array,
  ) {
    this.table = kernels.buffer("scale entries", 8 * DOUBLES).address;
    this.#clear(this.#entries);
  }

  get #entries(): Float64Array {
    return this.kernels.doubles(this.table, DOUBLES);
  }

  #clear(entries: Float64Array): void {
    entries.fill(0);
    entries[DOUBLES - 1] = Number.NaN;
  }

  /** For 4-bit codes, the tallies of all scale bytes, summed over all calls of `drain`. Bytes with only zero codes are absent. */
  get tallies(): readonly ScaleTally[] {
    return [...this.#tallies.values()];
  }

  /** Returns the sums of the blocks that have a nonzero code, and clears the entries. */
  drain(): ScaleSums[] {
    const { magnitudes, unit } = ranksOf(this.kind);
    const entries = this.#entries;
    const counters = this.kernels.words(this.table, 2 * DOUBLES);
    const firstY = entries[DOUBLES - 1] as number;
    const sumsOfScales: ScaleSums[] = [];
    for (let byte = 0; byte < BYTES; byte++) {
      const double = (field: number): number => entries[byte * ENTRY.doubles + field] as number;
      const word = (field: number): number => counters[2 * byte * ENTRY.doubles + field] as number;
      const [blocks, infinite] = [double(ENTRY.count), word(ENTRY.infinite)];
      if (blocks + infinite === 0) continue;
      const [y, yy, ranks, rank] = [
        double(ENTRY.y),
        double(ENTRY.yy),
        double(ENTRY.squares),
        word(ENTRY.rank),
      ];
      const tally = this.#tallies.get(byte) ?? { byte, nonzero: 0, ranks: 0, rank: 0 };
      tally.nonzero += word(ENTRY.nonzero) + 2 ** 32 * word(ENTRY.nonzero + 1);
      tally.ranks += ranks;
      tally.rank = Math.max(tally.rank, rank);
      this.#tallies.set(byte, tally);
      const amax = magnitudes[rank] as number;
      sumsOfScales.push({ byte, blocks, infinite, firstY, y, yy, squares: ranks * unit, amax });
    }
    this.#clear(entries);
    return sumsOfScales;
  }
}
