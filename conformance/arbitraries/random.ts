/** Generates many numbers from one drawn seed: a large input then shrinks as fast as a small one. */

import { integer } from "../../src/options.js";
import { hostArray, MAX_DRAWS } from "../../src/random.js";

const word = integer(-(2 ** 31), 2 ** 32 - 1);
const length = integer(0, MAX_DRAWS);

/**
 * splitmix32: a counter with the step 2^32 / golden ratio, mixed by two multiplications. Its period is 2^32. Throws
 * `ArgumentError` if the seed is not a 32-bit integer.
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

/**
 * The first `count` outputs of splitmix32, at most 2^31. Throws `ArgumentError` for an invalid count or a seed that is not a
 * 32-bit integer, `OutOfMemoryError` if the host has no memory for them.
 */
export function words(seed: number, count: number): Uint32Array {
  length("words", "count", count);
  const next = splitmix32(seed);
  const drawn = hostArray(Uint32Array, count);
  for (let i = 0; i < count; i++) drawn[i] = next();
  return drawn;
}
