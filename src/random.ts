/** Random numbers on the host, for initial parameters and the order of samples. They are equal on every machine. */
import { OutOfMemoryError } from "./errors.js";
import { finite, integer, needed, optionsOf, u64 } from "./options.js";

/** A source of random bits: the generator Philox 4x32-10 with the key `seed`. Its counter consists of `offset` and an index. */
export interface RandomSource {
  /** The key: an unsigned 64-bit integer. */
  readonly seed: bigint;
  /** One half of the counter: an unsigned 64-bit integer. Each offset gives an independent sequence of random bits. */
  readonly offset: bigint;
}

const MULTIPLIER_0 = 0xd2511f53;
const MULTIPLIER_1 = 0xcd9e8d57;
const WEYL_0 = 0x9e3779b9;
const WEYL_1 = 0xbb67ae85;
const ROUNDS = 10;

/** Returns the high 32 bits of the unsigned product of two 32-bit numbers, from the four products of their halves. */
function highProduct(factor: number, x: number): number {
  const high = x >>> 16;
  const low = x & 0xffff;
  const first = Math.imul(factor >>> 16, low);
  const second = Math.imul(factor & 0xffff, high);
  const carry = ((first & 0xffff) + (second & 0xffff) + (Math.imul(factor & 0xffff, low) >>> 16)) >>> 16;
  return (Math.imul(factor >>> 16, high) + (first >>> 16) + (second >>> 16) + carry) | 0;
}

export const checkDraw = optionsOf<RandomSource>({ seed: needed(u64), offset: needed(u64) }, "draw");

/** The check of a number of values. */
/** The maximum number of values of one draw. */
export const MAX_DRAWS = 2 ** 31;

const countOf = integer(0, MAX_DRAWS);

/** Returns a zeroed array of the host. Throws `OutOfMemoryError` if the host has no memory for it. */
export function hostArray<A>(kind: new (count: number) => A, count: number): A {
  try {
    return new kind(count);
  } catch {
    throw new OutOfMemoryError(
      4 * count,
      0,
      "the host has no memory for an array of that size; ask for fewer values",
    );
  }
}

/**
 * @internal Philox 4x32-10 (Salmon et al., SC 2011). Fills `words` with consecutive 128-bit outputs (blocks of 4 words),
 * starting with block number `first`. The length of `words` must be a multiple of 4. The bits of `high` are set in the second
 * word of the counter.
 */
export function philox({ seed, offset }: RandomSource, first: number, words: Uint32Array, high = 0): void {
  const offsetLow = Number(offset & 0xffffffffn) | 0;
  const offsetHigh = Number((offset >> 32n) & 0xffffffffn) | 0;
  const seedLow = Number(seed & 0xffffffffn) | 0;
  const seedHigh = Number((seed >> 32n) & 0xffffffffn) | 0;
  for (let at = 0; at < words.length; at += 4) {
    const block = first + at / 4;
    // words are signed here: V8 multiplies and adds those as integers
    let c0 = block | 0;
    let c1 = Math.floor(block / 2 ** 32) | high;
    let c2 = offsetLow;
    let c3 = offsetHigh;
    let k0 = seedLow;
    let k1 = seedHigh;
    for (let round = 0; round < ROUNDS; round++) {
      const high0 = highProduct(MULTIPLIER_0, c0);
      const high1 = highProduct(MULTIPLIER_1, c2);
      const low0 = Math.imul(MULTIPLIER_0, c0);
      const low1 = Math.imul(MULTIPLIER_1, c2);
      c0 = high1 ^ c1 ^ k0;
      c1 = low1;
      c2 = high0 ^ c3 ^ k1;
      c3 = low0;
      k0 = (k0 + WEYL_0) | 0;
      k1 = (k1 + WEYL_1) | 0;
    }
    words[at] = c0;
    words[at + 1] = c1;
    words[at + 2] = c2;
    words[at + 3] = c3;
  }
}

/**
 * Returns `count` random 32-bit words.
 *
 * @throws `ArgumentError` for an invalid draw or count.
 */
export function randomWords(draw: RandomSource, count: number): Uint32Array {
  const ownDraw = checkDraw("randomWords", draw);
  countOf("randomWords", "count", count);
  const words = hostArray(Uint32Array, Math.ceil(count / 4) * 4);
  philox(ownDraw, 0, words);
  return words.subarray(0, count);
}

/** The bit of a counter that the draws of columnwise copies have (numerics.md, choice 6). */
const COLUMNWISE = 0x80000000;

/** @internal The 8 random bits with which a quantizer rounds element `index` of a copy (numerics.md, choice 6). */
export function elementBits(draw: RandomSource, index: number, columnwise: boolean): number {
  const words = new Uint32Array(4);
  philox(draw, Math.floor(index / 16), words, columnwise ? COLUMNWISE : 0);
  const word = words[(index >> 2) & 3] as number;
  return (word >>> ([0, 16, 8, 24][index % 4] as number)) & 0xff;
}

/** @internal The 16 random bits with which `encode` rounds element `index` (numerics.md, choice 6). */
export function castBits(draw: RandomSource, index: number): number {
  const words = new Uint32Array(4);
  philox(draw, Math.floor(index / 8), words);
  const word = words[(index >> 1) & 3] as number;
  return index % 2 === 0 ? word & 0xffff : word >>> 16;
}

/** The number of 16-bit uniform values that are summed. The sum of 12 of them has variance 1 in units of 2^16. */
const SUMMANDS = 12;

/**
 * The number of values that are drawn at a time, an even number. Drawing all at once would take six times the memory of the
 * result.
 */
const PIECE = 1024;

/**
 * Returns `count` approximately normal f32 values with mean 0 and standard deviation `std`. Each is the sum of twelve 16-bit
 * uniform values. The sum is exact and only the scaling rounds, so no math library affects the bits. The magnitude is at most 6
 * * std.
 *
 * @throws `ArgumentError` for an invalid draw, count or standard deviation.
 */
export function normal(draw: RandomSource, count: number, std: number): Float32Array {
  const ownDraw = checkDraw("normal", draw);
  countOf("normal", "count", count);
  finite("normal", "std", std);
  const piece = Math.min(PIECE, count + (count % 2));
  const words = new Uint32Array((piece * SUMMANDS) / 2);
  const halves = new Uint16Array(words.buffer);
  const scale = std / 2 ** 16;
  const values = hostArray(Float32Array, count);
  for (let i = 0; i < count; i++) {
    const position = (i % piece) * SUMMANDS;
    if (position === 0) philox(ownDraw, ((i / piece) * words.length) / 4, words);
    let sum = 0;
    for (let j = 0; j < SUMMANDS; j++) sum += halves[position + j] as number;
    values[i] = (sum - (SUMMANDS * 0xffff) / 2) * scale;
  }
  return values;
}

/**
 * Returns the numbers from 0 to count - 1 in random order, by a Fisher-Yates shuffle whose draws are unbiased.
 *
 * @throws `ArgumentError` for an invalid draw or count.
 */
export function permutation(draw: RandomSource, count: number): Uint32Array {
  const ownDraw = checkDraw("permutation", draw);
  countOf("permutation", "count", count);
  const order = hostArray(Uint32Array, count);
  for (let i = 0; i < count; i++) order[i] = i;
  const words = new Uint32Array(4);
  let used = 0;
  const word = (): number => {
    if (used % 4 === 0) philox(ownDraw, used / 4, words);
    return words[used++ % 4] as number;
  };
  for (let last = count - 1; last > 0; last--) {
    const limit = 2 ** 32 - (2 ** 32 % (last + 1));
    let drawn = word();
    while (drawn >= limit) drawn = word();
    const other = drawn % (last + 1);
    [order[last], order[other]] = [order[other] as number, order[last] as number];
  }
  return order;
}
