/** The arguments of transposes and scale layouts, and their tensors. */
import type { CopyGeometry } from "../../tensor/geometry.js";
import type { Tensor } from "../../tensor/tensor.js";
import { AS_X, type Tensors } from "../tensors.js";

/** Arguments of `transpose`: out [K, M] is x [M, K] transposed. All dtypes are allowed, also FP4. */
export interface TransposeArgs {
  /** A matrix [M, K] of any dtype. */
  readonly x: Tensor;
  /** Output: [K, M], in the dtype of x. */
  readonly out: Tensor;
}

/** Transposes a matrix of any dtype. */
export const transpose: Tensors<TransposeArgs> = AS_X;

/** Arguments of `swapAxes`: out [outer, q, middle, p, inner] = x [outer, p, middle, q, inner]. */
export interface SwapAxesArgs {
  /** The elements, of a dtype of at least 8 bits. Their number is the product of `sizes`. */
  readonly x: Tensor;
  /** The five dimensions of x. p and q are exchanged. */
  readonly sizes: readonly [outer: number, p: number, middle: number, q: number, inner: number];
  /** Output: [outer, q, middle, p, inner], in the dtype of x. */
  readonly out: Tensor;
}

/** Exchanges two dimensions of a tensor. */
export const swapAxes: Tensors<SwapAxesArgs> = AS_X;

/** Arguments of `relayout`, which converts scales from one layout to another. */
export interface RelayoutArgs {
  /** The scales to rearrange. */
  readonly x: Tensor;
  /** The geometry of the copy that the scales `x` belong to. */
  readonly from: CopyGeometry;
  /** Output: the scales in the layout of `to`. Padding is zero. */
  readonly out: Tensor;
  /** The geometry of the same copy in the new layout. */
  readonly to: CopyGeometry;
}

/** Converts scales from one layout to another. */
export const relayout: Tensors<RelayoutArgs> = AS_X;
