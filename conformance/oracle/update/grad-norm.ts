/** The norm of gradients: squares are summed within pieces, then over the pieces of a tensor, then over tensors. */

import { add, div, mul } from "../core/rational.js";
import { laneSum } from "../rows/norm.js";
import { sqrt } from "./optimizer.js";

const PIECE = 4096;

/** The sum of the squares of each piece of one tensor. */
export function pieceSums(x: readonly number[]): readonly number[] {
  return Array.from({ length: Math.ceil(x.length / PIECE) }, (_, i) =>
    laneSum(x.slice(i * PIECE, (i + 1) * PIECE).map((value) => mul(value, value))),
  );
}

/** Adds the sums of the pieces. */
export function sumPieces(sums: readonly number[]): number {
  return laneSum(sums);
}

/** The sum of the squares of one tensor. */
function squareSum(x: readonly number[]): number {
  return sumPieces(pieceSums(x));
}

export function gradNorm(
  tensors: readonly (readonly number[])[],
  maxNorm: number,
): { readonly norm: number; readonly factor: number } {
  const norm = sqrt(laneSum(tensors.map(squareSum)));
  const ratio = div(Math.fround(maxNorm), add(norm, Math.fround(1e-6)));
  return { norm, factor: Math.min(1, ratio) };
}
