/** The norm of gradients: squares are summed over pieces, then tensors, then all tensors. */

import { add, div, mul } from "../core/rational.js";
import { laneSum } from "../rows/norm.js";
import { sqrt } from "./optimizer.js";

const PIECE = 4096;

/** The sum of the squares of one tensor. */
function squareSum(x: readonly number[]): number {
  const pieces = Array.from({ length: Math.ceil(x.length / PIECE) }, (_, i) =>
    x.slice(i * PIECE, (i + 1) * PIECE),
  );
  return laneSum(pieces.map((piece) => laneSum(piece.map((value) => mul(value, value)))));
}

export function gradNorm(
  tensors: readonly (readonly number[])[],
  maxNorm: number,
): { readonly norm: number; readonly factor: number } {
  const norm = sqrt(laneSum(tensors.map(squareSum)));
  const ratio = div(Math.fround(maxNorm), add(norm, Math.fround(1e-6)));
  return { norm, factor: Math.min(1, ratio) };
}
