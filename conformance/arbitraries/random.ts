/** Many numbers from one drawn seed, so that large inputs shrink as fast as small ones. */

import { integer } from "../../src/options.js";

const word = integer(-(2 ** 31), 2 ** 32 - 1);
const length = integer(0);

/**
 * splitmix32: a counter stepped by 2^32 / golden ratio, then mixed by two multiplications; period 2^32.
 * Throws `ArgumentError` for a seed that is no integer of 32 bits.
 */
export function splitmix32(seed: number): () => number {
  word("splitmix32", "seed", seed);
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  };
}

/** `count` words of splitmix32. Throws `ArgumentError`, as that. */
export function words(seed: number, count: number): Uint32Array {
  length("words", "count", count);
  const next = splitmix32(seed);
  return Uint32Array.from({ length: count }, next);
}
