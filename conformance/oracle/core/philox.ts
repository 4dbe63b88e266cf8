/** Philox 4x32-10 (Salmon et al., SC'11), and the random bits of one tensor element (numerics.md choice 6). */

const WORD = 0xffff_ffffn;
const ROUNDS = 10;
const MULTIPLIERS = [0xd2511f53n, 0xcd9e8d57n] as const;
const WEYL = [0x9e3779b9n, 0xbb67ae85n] as const;

/** Four 32-bit words: a counter, or the result of one draw. */
export type PhiloxWords = readonly [bigint, bigint, bigint, bigint];

/** One draw of four words, from a counter and a key of two words. */
export function philox4x32(counter: PhiloxWords, key: readonly [bigint, bigint]): PhiloxWords {
  let [x, y, z, w] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < ROUNDS; round++) {
    const p0 = MULTIPLIERS[0] * x;
    const p1 = MULTIPLIERS[1] * z;
    [x, y, z, w] = [(p1 >> 32n) ^ y ^ k0, p1 & WORD, (p0 >> 32n) ^ w ^ k1, p0 & WORD];
    k0 = (k0 + WEYL[0]) & WORD;
    k1 = (k1 + WEYL[1]) & WORD;
  }
  return [x, y, z, w];
}

/** Draw number `draw` of the rowwise (0) or columnwise (1) copy. */
function drawWords(seed: bigint, offset: bigint, copy: 0 | 1, draw: bigint): PhiloxWords {
  const high = (draw >> 32n) | (BigInt(copy) << 31n);
  const key = [seed & WORD, (seed >> 32n) & WORD] as const;
  return philox4x32([draw & WORD, high, offset & WORD, (offset >> 32n) & WORD], key);
}

/** The 16 random bits with which `encode` rounds element `index`. Eight elements share a draw. */
export function random16(seed: bigint, offset: bigint, copy: 0 | 1, index: bigint): number {
  const randomWords = drawWords(seed, offset, copy, index >> 3n);
  const word = randomWords[Number((index >> 1n) & 3n)] ?? 0n;
  return Number(index % 2n === 0n ? word & 0xffffn : word >> 16n);
}

/**
 * The 8 random bits with which a quantizer rounds element `index`. Sixteen elements share a draw, four of them a word.
 */
export function random8(seed: bigint, offset: bigint, copy: 0 | 1, index: bigint): number {
  const randomWords = drawWords(seed, offset, copy, index / 16n);
  const word = randomWords[Number(index % 16n) >> 2] ?? 0n;
  // odd elements use the upper half of the word, and the last two of the four the upper byte of their half
  const half = index % 2n === 0n ? word % 65536n : word / 65536n;
  return Number(index % 4n < 2n ? half % 256n : half / 256n);
}
