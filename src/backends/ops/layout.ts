/** The arguments of transposes, slices and scale layouts, and their tensors. */
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

/**
 * Arguments of `copySlice`: out[o, outFirst + i, j] = x[o, xFirst + i, j] for i < count, where x is [outer, xLength, inner] and
 * out is [outer, outLength, inner]. If x has length 1, its only slice is copied `count` times. The other elements of out are
 * kept.
 */
export interface CopySliceArgs {
  /** The elements [outer, xLength, inner], of a dtype of at least 8 bits. */
  readonly x: Tensor;
  /** The number of slices of x. */
  readonly xLength: number;
  /** The first slice that is read. */
  readonly xFirst: number;
  /** Output: [outer, outLength, inner], in the dtype of x. Only the copied slices are written. */
  readonly out: Tensor;
  /** The number of slices of out. */
  readonly outLength: number;
  /** The first slice that is written. */
  readonly outFirst: number;
  /** The number of slices that are written. */
  readonly count: number;
  /** The product of the dimensions before the sliced one. */
  readonly outer: number;
  /** The product of the dimensions after the sliced one. */
  readonly inner: number;
}

/** Copies a range of a dimension of one tensor into a range of the same dimension of another. */
export const copySlice: Tensors<CopySliceArgs> = AS_X;

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
