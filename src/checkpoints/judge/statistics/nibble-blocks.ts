/** Blocks of 16 or 32 codes of four bits with one-byte scales, counted by scale byte and sum of ranks. */

import type { Kernels } from "../../kernels/kernels.js";
import { nibbleLogarithms, nibbleMagnitudes, ranksOf } from "../../kernels/magnitudes.js";
import type { CodeTypeName } from "../../stored/code-types.js";
import type { ScaleSums } from "./scale-sums.js";

const BYTES = 256;
/** The byte offsets of the table; see assembly/checkpoints/nibble-blocks.ts. */
const TABLE = { ranks: 0, nonzero: BYTES, counts: 9 * BYTES } as const;
/** The blocks that fit a u32. */
const MAX_BLOCKS = 2 ** 32 - 1;

/** The codes under one scale byte. */
export interface ScaleTally {
  readonly byte: number;
  /** The number of nonzero codes. */
  nonzero: number;
  /** The sum of ranks, and the largest rank: squares of values, in units of `ranksOf`. */
  ranks: number;
  rank: number;
}

/** Whether blocks of `wide` codes can be counted. */
export function areCounted(wide: number): boolean {
  return wide === 16 || wide === 32;
}

/** A table that the kernel adds blocks to. */
export class NibbleBlocks {
  readonly #tallies = new Map<number, ScaleTally>();
  readonly #address: number;
  readonly #stride: number;
  readonly #logarithms: Float64Array;
  readonly #kind: Uint8Array;
  #blocks = 0;

  /** `bytes`: the scale bytes that occur. */
  constructor(
    private readonly kernels: Kernels,
    type: CodeTypeName,
    private readonly wide: number,
    private readonly bytes: readonly number[],
  ) {
    this.#kind = nibbleMagnitudes(type);
    this.#logarithms = nibbleLogarithms(type, wide);
    // a multiple of 64 bytes that is no multiple of 4096, so that the rows of scale bytes use all sets of a cache
    this.#stride = 64 * (2 * Math.ceil((4 * this.#logarithms.length) / 128) + 1);
    this.#address = kernels.place("nibble blocks", TABLE.counts + BYTES * this.#stride).address;
  }

  /** Clears the parts of the table that the next blocks use. */
  #begin(): void {
    this.kernels.bytes(this.#address, TABLE.counts).fill(0);
    for (const byte of this.bytes) this.kernels.bytes(this.#rowOf(byte), this.#stride).fill(0);
  }

  #rowOf(byte: number): number {
    return this.#address + TABLE.counts + byte * this.#stride;
  }

  /** What has been counted under each scale byte, over all calls of `drain`. Bytes with only zeros may be absent. */
  get tallies(): readonly ScaleTally[] {
    return [...this.#tallies.values()];
  }

  /** Whether `rows` more rows of `blocks` blocks can be added before the next call of `drain`. */
  fits(rows: number, blocks: number): boolean {
    return this.#blocks + rows * blocks <= MAX_BLOCKS;
  }

  /** Adds rows of `blocks` blocks, and their sums that do not depend on scales to `sums`. */
  add(codes: number, rows: number, blocks: number, scales: number, sums: number): void {
    if (this.#blocks === 0) this.#begin();
    this.#blocks += rows * blocks;
    this.kernels.call("nibbleBlocks", {
      codes,
      rows,
      wide: this.wide,
      blocks,
      scales,
      kind: this.kernels.put("magnitudes", this.#kind),
      sums,
      table: this.#address,
      stride: this.#stride,
    });
  }

  /** Returns the sums of the blocks that have a nonzero code. The next blocks have other sums. */
  drain(): ScaleSums[] {
    if (this.#blocks === 0) return [];
    this.#blocks = 0;
    const { kernels } = this;
    const { magnitudes, unit } = ranksOf(this.#kind);
    const logarithms = kernels.put("logarithms", this.#logarithms);
    const { length } = this.#logarithms;
    const sums = kernels.place("sums of counts", 8 * 4).address;
    const ranks = kernels.bytes(this.#address + TABLE.ranks, BYTES);
    const nonzero = new BigUint64Array(ranks.buffer, this.#address + TABLE.nonzero, BYTES);
    const present = this.bytes.filter((byte) => ranks[byte] !== 0);
    const [first = 0] = present;
    const counts = new Uint32Array(ranks.buffer, this.#rowOf(first), length);
    const firstY = this.#logarithms[counts.findIndex((count, sum) => sum > 0 && count > 0)] ?? 0;
    return present.map((byte) => {
      kernels.call("sumCounts", { counts: this.#rowOf(byte), length, logarithms, first: firstY, sums });
      const [blocks = 0, y = 0, yy = 0, sum = 0] = kernels.doubles(sums, 4);
      const rank = ranks[byte] as number;
      const tally = this.#tallies.get(byte) ?? { byte, nonzero: 0, ranks: 0, rank: 0 };
      tally.nonzero += Number(nonzero[byte]);
      tally.ranks += sum;
      tally.rank = Math.max(tally.rank, rank);
      this.#tallies.set(byte, tally);
      const amax = magnitudes[rank] as number;
      return { byte, blocks, infinite: 0, firstY, y, yy, squares: sum * unit, amax };
    });
  }
}
