/** Philox 4x32-10 (Salmon et al., SC'11), and the 16 random bits of one tensor element. */

const WORD = 0xffff_ffffn;
const ROUNDS = 10;
const MULTIPLIERS = [0xd2511f53n, 0xcd9e8d57n] as const;
const WEYL = [0x9e3779b9n, 0xbb67ae85n] as const;

/** Four 32-bit words of a counter, or of a draw. */
export type Words = readonly [bigint, bigint, bigint, bigint];

/** One draw of four words from a counter and a key of two words. */
export function philox4x32(counter: Words, key: readonly [bigint, bigint]): Words {
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

/** The 16 bits of element `index` of the rowwise (0) or columnwise (1) copy: eight elements share a draw. */
export function random16(seed: bigint, offset: bigint, copy: 0 | 1, index: bigint): number {
  const draw = index >> 3n;
  const high = (draw >> 32n) | (BigInt(copy) << 31n);
  const key = [seed & WORD, (seed >> 32n) & WORD] as const;
  const words = philox4x32([draw & WORD, high, offset & WORD, (offset >> 32n) & WORD], key);
  const word = words[Number((index >> 1n) & 3n)] ?? 0n;
  return Number(index % 2n === 0n ? word & 0xffffn : word >> 16n);
}
