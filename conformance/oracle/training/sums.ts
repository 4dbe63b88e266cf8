/** Sums over dimensions in f32: one dimension after the other, the last one first, each in chunks of 32 terms. */
import { chunkedSum } from "../rows/norm.js";

/** The f32 sums of x over `axes`, which may be in any order. The result keeps these dimensions, with size 1. */
export function sums(
  x: ArrayLike<number>,
  shape: readonly number[],
  axes: readonly number[],
): { readonly values: readonly number[]; readonly shape: readonly number[] } {
  let values = Array.from(x);
  const sizes = [...shape];
  // a scalar is the sum of its element
  if (sizes.length === 0) return { values: [chunkedSum(values)], shape: sizes };
  for (let axis = sizes.length - 1; axis >= 0; axis--) {
    if (!axes.includes(axis)) continue;
    const product = (list: readonly number[]) => list.reduce((total, size) => total * size, 1);
    const [outer, length, inner] = [
      product(sizes.slice(0, axis)),
      sizes[axis] as number,
      product(sizes.slice(axis + 1)),
    ];
    const terms = (o: number, i: number) =>
      Array.from({ length }, (_, k) => values[(o * length + k) * inner + i] as number);
    const next: number[] = [];
    for (let o = 0; o < outer; o++) for (let i = 0; i < inner; i++) next.push(chunkedSum(terms(o, i)));
    values = next;
    sizes[axis] = 1;
  }
  return { values, shape: sizes };
}
