/** Split-K, as cuBLASLt does it and as separate products. */
import { isTensorWide } from "../../../formats/block.js";
import { roundUp } from "../../../tensor/shape.js";
import type { Attempt, StagedOperand } from "./attempt.js";
import { BLAS_TYPES, type BlasOperand, type BlasProduct } from "./descriptor.js";

/** Whether a split-K algorithm of cuBLASLt computes other sums than datapath.md §2 defines. */
export function splitsDifferently(attempt: Attempt, splits: number, tile: number): boolean {
  return splits > 1 && (dropsEnd(attempt.x.depth, splits, tile) || mayMultiplyByZero(attempt));
}

/**
 * cuBLASLt's splits have floor(K / splits) elements, rounded up to whole tiles. If that is too short, it drops the end of K.
 */
function dropsEnd(depth: number, splits: number, tile: number): boolean {
  return splits * roundUp(Math.floor(depth / splits), tile) < depth;
}

/** With scalars on the device whose product is zero, cuBLASLt skips split sums, and loses infinities, NaN and signs. */
function mayMultiplyByZero({ product }: Attempt): boolean {
  const { x, w, deviceScalars } = product;
  return !product.preGelu && (deviceScalars || isTensorScaled(x) || isTensorScaled(w));
}

/** Whether an operand has one scale per tensor, which the product reads. */
function isTensorScaled({ scale }: BlasOperand): boolean {
  return scale !== undefined && isTensorWide(scale);
}

/** One split of K. */
export interface Slice {
  readonly product: BlasProduct;
  /** Its byte offset in each operand. */
  readonly offsets: { readonly xOffset: number; readonly wOffset: number };
}

/** The splits of K in whole tiles; empty if the product cannot be split so. */
export function slicesOf({ x, w, fused, product }: Attempt, splits: number, tile: number): readonly Slice[] {
  if (fused || x.scale || w.scale) return [];
  const length = Math.ceil(Math.ceil(x.depth / tile) / splits) * tile;
  const offset = ({ transposed, lines, type }: StagedOperand, k: number): number =>
    (k * (transposed ? lines : 1) * BLAS_TYPES[type].bits) / 8;
  return Array.from({ length: Math.ceil(x.depth / length) }, (_, i) => {
    const first = i * length;
    const depth = Math.min(length, x.depth - first);
    const offsets = { xOffset: offset(x, first), wOffset: offset(w, first) };
    return { product: { ...product, depth }, offsets };
  });
}
