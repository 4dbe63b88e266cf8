/** Rotary embeddings: the rotation of one head, and the position of each row. */
import { add, mul } from "../core/rational.js";

/** The rotation of a head. */
export interface Rotation {
  /** The cosine and sine of each pair, or undefined for a position that the tables do not have. */
  readonly angles: readonly (readonly [cos: number, sin: number])[] | undefined;
  /** The number of pairs. */
  readonly pairs: number;
  readonly interleaved: boolean;
  readonly inverse: boolean;
}

/** The head after the rotation. */
export function rotateRow(
  head: readonly number[],
  { angles, pairs, interleaved, inverse }: Rotation,
): number[] {
  const out = [...head];
  for (let i = 0; i < pairs; i++) {
    const [first, second] = interleaved ? [2 * i, 2 * i + 1] : [i, i + pairs];
    const [a, b] = [head[first] as number, head[second] as number];
    const [c, sine] = angles?.[i] ?? [Number.NaN, Number.NaN];
    const s = inverse ? -sine : sine;
    out[first] = add(mul(a, c), -mul(b, s));
    out[second] = add(mul(b, c), mul(a, s));
  }
  return out;
}

/** The position of each row of packed sequences; undefined for a row of no sequence. */
export function tokenPositions(
  rows: number,
  cuSeqlens: readonly number[],
  starts: readonly number[],
): (number | undefined)[] {
  return Array.from({ length: rows }, (_, row) => {
    const b = cuSeqlens
      .slice(0, -1)
      .findIndex((begin, i) => begin <= row && row < (cuSeqlens[i + 1] as number));
    return b < 0 ? undefined : row - (cuSeqlens[b] as number) + (starts[b] ?? 0);
  });
}
