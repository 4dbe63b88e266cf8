/** Sums over the four threads that share a row of a tensor core's result. */

/** The number of threads that share a row. Thread l has the columns 8 i + 2 l and 8 i + 2 l + 1. */
export const LANES = 4;

const { fround } = Math;

/** Adds the elements of a lane in order, from column `firstColumn` on, a multiple of 8, to the sum `start`. */
export function laneSum(start: number, lane: number, elements: Float32Array, firstColumn: number): number {
  let sum = start;
  for (let i = firstColumn + 2 * lane; i < elements.length; i += 2 * LANES)
    sum = fround(fround(sum + (elements[i] as number)) + (elements[i + 1] as number));
  return sum;
}

/** The sum (l0 ⊕ l1) ⊕ (l2 ⊕ l3) of four lanes from `start` on. */
export function neighbourSum(lanes: Float32Array, start: number): number {
  const [l0 = 0, l1 = 0, l2 = 0, l3 = 0] = lanes.subarray(start, start + LANES);
  return fround(fround(l0 + l1) + fround(l2 + l3));
}
