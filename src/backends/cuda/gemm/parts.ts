/** Split-K: where cuBLASLt cuts K, and where we do. */
import { isTensorWide } from "../../../formats/block.js";
import { roundUp } from "../../../tensor/shape.js";
import type { Attempt, StagedOperand } from "./attempt.js";
import { BLAS_TYPES, type BlasOperand, type BlasProduct } from "./descriptor.js";

/** Whether an algorithm of cuBLASLt that cuts K in parts gives other sums than datapath.md §2 says. */
export function isCutOtherwise(attempt: Attempt, parts: number, tile: number): boolean {
  return parts > 1 && (leavesOut(attempt.x.depth, parts, tile) || mayMultiplyByZero(attempt));
}

/** Its parts are floor(K / parts) long, rounded up to whole tiles; where that is too short it drops the end of K. */
function leavesOut(depth: number, parts: number, tile: number): boolean {
  return parts * roundUp(Math.floor(depth / parts), tile) < depth;
}

/** Sums in parts by factors on the device that come to zero are left out, and infinities, NaN and signs with them. */
function mayMultiplyByZero({ product }: Attempt): boolean {
  const { x, w, deviceScalars } = product;
  return !product.preGelu && (deviceScalars || isWhole(x) || isWhole(w));
}

/** Whether an operand has one scale, which the product reads. */
function isWhole({ scale }: BlasOperand): boolean {
  return scale !== undefined && isTensorWide(scale);
}

/** One part of K. */
export interface Slice {
  readonly product: BlasProduct;
  /** Where it begins, in bytes of each operand. */
  readonly offsets: { readonly xOffset: number; readonly wOffset: number };
}

/** The parts of a product that is split along K in whole tiles; none for one that cannot be cut so. */
export function slicesOf({ x, w, fused, product }: Attempt, parts: number, tile: number): readonly Slice[] {
  if (fused || x.scale || w.scale) return [];
  const length = Math.ceil(Math.ceil(x.depth / tile) / parts) * tile;
  const offset = ({ transposed, lines, type }: StagedOperand, k: number): number =>
    (k * (transposed ? lines : 1) * BLAS_TYPES[type].bits) / 8;
  return Array.from({ length: Math.ceil(x.depth / length) }, (_, i) => {
    const first = i * length;
    const depth = Math.min(length, x.depth - first);
    const offsets = { xOffset: offset(x, first), wOffset: offset(w, first) };
    return { product: { ...product, depth }, offsets };
  });
}
