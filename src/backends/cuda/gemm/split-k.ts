/** Split-K on cuBLASLt: whether its own split-K is usable, and its replacement by one product per split. */
import { isTensorWide } from "../../../formats/block.js";
import { roundUp } from "../../../tensor/shape.js";
import type { Attempt, StagedOperand } from "./attempt.js";
import { BLAS_TYPES, type BlasOperand, type BlasProduct } from "./descriptor.js";

/** Whether a split-K algorithm of cuBLASLt would compute other sums than datapath.md §2 defines. */
export function splitsDifferently(attempt: Attempt, splits: number, tile: number): boolean {
  return splits > 1 && (dropsEnd(attempt.x.depth, splits, tile) || mayMultiplyByZero(attempt));
}

/**
 * Whether cuBLASLt would leave out the end of K. Each of its splits has floor(K / splits) elements, rounded up to whole tiles;
 * all splits together may be shorter than K.
 */
function dropsEnd(depth: number, splits: number, tile: number): boolean {
  return splits * roundUp(Math.floor(depth / splits), tile) < depth;
}

/**
 * Whether the product of alpha and the operand scales may be zero on the device. cuBLASLt then skips the sums of the splits,
 * and infinities, NaN and signs of zero are lost.
 */
function mayMultiplyByZero({ product }: Attempt): boolean {
  const { x, w, deviceScalars } = product;
  return !product.preGelu && (deviceScalars || isTensorScaled(x) || isTensorScaled(w));
}

/** Whether the product applies a per-tensor scale to the operand. */
function isTensorScaled({ scale }: BlasOperand): boolean {
  return scale !== undefined && isTensorWide(scale);
}

/** One split of K. */
export interface Slice {
  readonly product: BlasProduct;
  /** The byte offsets of the split in the operands. */
  readonly offsets: { readonly xOffset: number; readonly wOffset: number };
}

/**
 * Returns the products of the splits of K, each a whole number of tiles long except the last. Returns an empty list if the
 * product cannot be divided: with a fused epilogue or block scales.
 */
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
