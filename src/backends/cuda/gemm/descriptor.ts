/** A product as cuBLASLt is told of it: plain numbers, which native/gemm/gemm.cc reads. */
import { roundUp } from "../../../tensor/shape.js";
import type { NativeArgs } from "../addon.js";

/** cudaDataType of elements. tf32 operands are f32 that were rounded. */
const CUDA_TYPE = { f32: 0, f16: 2, bf16: 14, e4m3: 28, e5m2: 29, e2m1: 33 } as const;

export type BlasType = keyof typeof CUDA_TYPE;

/** Bits of an element. */
export const BLAS_BITS: Readonly<Record<BlasType, number>> = {
  f32: 32,
  f16: 16,
  bf16: 16,
  e4m3: 8,
  e5m2: 8,
  e2m1: 4,
};

/** cublasLtMatmulMatrixScale_t: one f32, UE4M3 for 16 along K, E8M0 for 32, f32 for 128 and for 128 x 128. */
const SCALE_MODE = { tensor: 0, "1x16": 1, "1x32": 2, "1x128": 4, "128x128": 5 } as const;

export type BlasScale = keyof typeof SCALE_MODE;

/** An operand: `lines` of `depth` elements, `pitch` apart; transposed, `depth` rows of `lines`. */
export interface BlasOperand {
  readonly type: BlasType;
  readonly lines: number;
  readonly pitch: number;
  readonly transposed: boolean;
  readonly scale?: BlasScale | undefined;
}

/** out[m, n] = the sum over k of x[m, k] * w[n, k], row-major. */
export interface BlasProduct {
  readonly x: BlasOperand;
  readonly w: BlasOperand;
  readonly depth: number;
  /** Of the result and of what is added to it. */
  readonly out: { readonly type: BlasType; readonly pitch: number };
  readonly bias?: BlasType | undefined;
  /** GELU by cuBLASLt, and its argument in this type, as many elements from row to row as there are columns. */
  readonly preGelu?: BlasType | undefined;
  /** FP8: one chain along K, where cuBLASLt would else add chains of 128 in f32. */
  readonly fastAccumulation: boolean;
  /** f32 operands are multiplied as tf32. */
  readonly tf32: boolean;
  /** alpha and beta are read on the device. */
  readonly deviceScalars: boolean;
  /** Products of one shape that lie `stride` elements apart. */
  readonly batch?:
    | { readonly count: number; readonly x: number; readonly w: number; readonly out: number }
    | undefined;
}

/** cuBLASLt is column-major: row-major W X^T is its op(A) op(B) with A = W and B = X, and D's columns are our rows. */
export function describe(product: BlasProduct): NativeArgs {
  const { x, w, depth, out, bias, fastAccumulation, tf32, deviceScalars, batch, preGelu } = product;
  const strides = batch && {
    aStride: batch.w,
    bStride: batch.x,
    cStride: batch.out,
    dStride: batch.out,
  };
  return {
    m: w.lines,
    n: x.lines,
    k: depth,
    batch: batch?.count ?? 1,
    ...strides,
    transposeA: !w.transposed,
    transposeB: x.transposed,
    aType: CUDA_TYPE[w.type],
    bType: CUDA_TYPE[x.type],
    cType: CUDA_TYPE[out.type],
    dType: CUDA_TYPE[out.type],
    aPitch: w.pitch,
    bPitch: x.pitch,
    cPitch: out.pitch,
    dPitch: out.pitch,
    tf32,
    fastAccumulation,
    deviceScalars,
    aScaleMode: w.scale && SCALE_MODE[w.scale],
    bScaleMode: x.scale && SCALE_MODE[x.scale],
    biasType: bias && CUDA_TYPE[bias],
    auxType: preGelu && CUDA_TYPE[preGelu],
  };
}

/** Where cuBLASLt reads the scales of blocks: strides in elements, or its 128x4 tiles, and bytes with padding. */
export interface BlasScales {
  readonly lineStride: number;
  readonly blockStride: number;
  readonly swizzled: boolean;
  readonly bytes: number;
}

/** The layout of an operand's block scales (numerics.md §3.2, §3.3, §4.6). */
export function scalesOf(scale: Exclude<BlasScale, "tensor">, lines: number, depth: number): BlasScales {
  if (scale === "1x128") {
    const pitch = roundUp(lines, 4);
    return {
      lineStride: 1,
      blockStride: pitch,
      swizzled: false,
      bytes: Math.ceil(depth / 128) * pitch * 4,
    };
  }
  if (scale === "128x128") {
    const pitch = roundUp(Math.ceil(depth / 128), 4);
    return { lineStride: pitch, blockStride: 1, swizzled: false, bytes: Math.ceil(lines / 128) * pitch * 4 };
  }
  const blocks = Math.ceil(depth / (scale === "1x16" ? 16 : 32));
  return {
    lineStride: 0,
    blockStride: 0,
    swizzled: true,
    bytes: roundUp(lines, 128) * roundUp(blocks, 4),
  };
}
