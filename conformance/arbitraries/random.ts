/** Many numbers from one drawn seed, so that large inputs shrink as fast as small ones. */

/** splitmix32: a counter stepped by 2^32 / golden ratio, then mixed by two multiplications; period 2^32. */
export function splitmix32(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  };
}

/** `count` words of splitmix32. */
export function words(seed: number, count: number): Uint32Array {
  const next = splitmix32(seed);
  return Uint32Array.from({ length: count }, next);
}
