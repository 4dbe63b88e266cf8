/** The description of a product for cuBLASLt as plain numbers, which native/gemm/gemm.cc reads. */
import { isSquare, tileSize } from "../../../formats/block.js";
import type { BlockScaleFormat, OperandTraits, StagingName } from "../../../formats/datapath.js";
import { roundUp, type WideDType } from "../../../tensor/shape.js";
import type { NativeArgs } from "../addon.js";

/**
 * An element type of cuBLASLt: its cudaDataType, its bits per element, and its kind. The kind decides which products accept it.
 */
interface BlasTypeRow {
  readonly cuda: number;
  readonly bits: 4 | 8 | 16 | 32;
  readonly kind: "single" | "half" | "fp8" | "fp4";
  /** The types that cannot be the other operand of a product with this type. */
  readonly excludes?: readonly string[];
}

/** The element types of operands and results. tf32 operands are f32 values rounded to tf32. */
export const BLAS_TYPES = {
  f32: { cuda: 0, bits: 32, kind: "single" },
  f16: { cuda: 2, bits: 16, kind: "half" },
  bf16: { cuda: 14, bits: 16, kind: "half" },
  e4m3: { cuda: 28, bits: 8, kind: "fp8" },
  e5m2: { cuda: 29, bits: 8, kind: "fp8", excludes: ["e5m2"] },
  e2m1: { cuda: 33, bits: 4, kind: "fp4" },
} as const satisfies Record<string, BlasTypeRow>;

export type BlasType = keyof typeof BLAS_TYPES;

/** Whether cuBLASLt multiplies elements of a format without conversion. f32 must first be rounded to tf32. */
export function isBlasOperand(format: string): format is BlasType {
  return Object.hasOwn(BLAS_TYPES, format) && BLAS_TYPES[format as BlasType].kind !== "single";
}

/** Whether cuBLASLt multiplies operands of these two types. */
export function hasProduct(x: BlasType, w: BlasType): boolean {
  const row: BlasTypeRow = BLAS_TYPES[x];
  return !row.excludes?.includes(w);
}

/** Returns the dtype that cuBLASLt requires of the bias, given the types of the operands (16-bit or FP8) and of the result. */
export function biasType(operands: BlasType, out: WideDType): WideDType {
  return BLAS_TYPES[operands].kind === "half" ? out : FP8_BIAS[out];
}

const FP8_BIAS: Readonly<Record<WideDType, WideDType>> = { f32: "bf16", bf16: "bf16", f16: "f16" };

/**
 * Values of cublasLtMatmulMatrixScale_t: one f32 per tensor, UE4M3 per 16 elements along K, E8M0 per 32, f32 per 128 and f32
 * per 128x128 block.
 */
const SCALE_MODE = { tensor: 0, "1x16": 1, "1x32": 2, "1x128": 4, "128x128": 5 } as const;

export type BlasScale = keyof typeof SCALE_MODE;

/**
 * The block scales that cuBLASLt applies: the block, the dtype of the scales, the lines per scale, and the operands they are
 * for.
 */
const BLOCK_SCALES = [
  { scale: "1x128", format: "f32", lines: 1, kind: "fp8", stagings: ["plain"] },
  { scale: "128x128", format: "f32", lines: 128, kind: "fp8", stagings: ["plain"] },
  { scale: "1x32", format: "e8m0", lines: 1, kind: "fp8", stagings: ["scaled", "grouped"] },
  { scale: "1x16", format: "e4m3", lines: 1, kind: "fp4", stagings: ["scaled", "grouped"] },
] as const satisfies readonly {
  readonly scale: BlasScale;
  readonly format: BlockScaleFormat;
  readonly lines: number;
  readonly kind: BlasTypeRow["kind"];
  readonly stagings: readonly StagingName[];
}[];

/** Returns the scale mode for an operand's block scales, or undefined if cuBLASLt does not support them. */
export function blockScaleOf(
  type: BlasType,
  { format, lines }: NonNullable<OperandTraits["scales"]>,
  staging: StagingName,
): Exclude<BlasScale, "tensor"> | undefined {
  return BLOCK_SCALES.find(
    (row) =>
      row.format === format &&
      row.lines === lines &&
      row.kind === BLAS_TYPES[type].kind &&
      row.stagings.some((each) => each === staging),
  )?.scale;
}

/**
 * An operand: `lines` lines of `depth` elements, which start `pitch` elements apart. If transposed, it is stored as `depth`
 * rows of `lines` elements, `pitch` apart.
 */
export interface BlasOperand {
  readonly type: BlasType;
  readonly lines: number;
  readonly pitch: number;
  readonly transposed: boolean;
  readonly scale?: BlasScale | undefined;
}

/** A row-major product: out[m, n] is the sum over k of x[m, k] * w[n, k]. */
export interface BlasProduct {
  readonly x: BlasOperand;
  readonly w: BlasOperand;
  readonly depth: number;
  /** The dtype and the row pitch (in elements) of the result and its addend. */
  readonly out: { readonly type: BlasType; readonly pitch: number };
  readonly bias?: BlasType | undefined;
  /**
   * The dtype in which a fused GELU stores its argument. Absent if GELU is not fused. The argument has as many elements per row
   * as the result has columns.
   */
  readonly preGelu?: BlasType | undefined;
  /**
   * For FP8: whether cuBLASLt accumulates all of K in the tensor core. If false, it adds partial sums of 128 elements in f32.
   */
  readonly fastAccumulation: boolean;
  /** Whether f32 operands are multiplied as tf32. */
  readonly tf32: boolean;
  /** Whether alpha and beta are read on the device. */
  readonly deviceScalars: boolean;
  /** A batch of `count` products of the same shape. x, w and out are the distances between consecutive items, in elements. */
  readonly batch?:
    | { readonly count: number; readonly x: number; readonly w: number; readonly out: number }
    | undefined;
}

/**
 * Describes a product to cuBLASLt, which is column-major. Our row-major X W^T is its op(A) op(B) with A = W and B = X, because
 * the columns of its result D are our rows.
 */
export function describe(product: BlasProduct): NativeArgs<"gemmPlan"> {
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
    aType: BLAS_TYPES[w.type].cuda,
    bType: BLAS_TYPES[x.type].cuda,
    cType: BLAS_TYPES[out.type].cuda,
    dType: BLAS_TYPES[out.type].cuda,
    aPitch: w.pitch,
    bPitch: x.pitch,
    cPitch: out.pitch,
    dPitch: out.pitch,
    tf32,
    fastAccumulation,
    deviceScalars,
    aScaleMode: w.scale && SCALE_MODE[w.scale],
    bScaleMode: x.scale && SCALE_MODE[x.scale],
    biasType: bias && BLAS_TYPES[bias].cuda,
    auxType: preGelu && BLAS_TYPES[preGelu].cuda,
  };
}

/**
 * The layout in which cuBLASLt reads block scales: strides in elements (or 128x4 tiles if swizzled), and the size in bytes with
 * padding.
 */
export interface BlasScales {
  readonly lineStride: number;
  readonly blockStride: number;
  readonly swizzled: boolean;
  readonly bytes: number;
}

/** Returns the layout in which cuBLASLt reads an operand's block scales (numerics.md §3.2, §3.3, §4.6). */
export function scalesOf(scale: Exclude<BlasScale, "tensor">, lines: number, depth: number): BlasScales {
  const [tileLines, length] = tileSize(scale);
  const square = isSquare(scale);
  const blocks = Math.ceil(depth / length);
  if (BLOCK_SCALES.some((row) => row.scale === scale && row.format === "f32")) {
    if (square) {
      const pitch = roundUp(blocks, 4);
      return {
        lineStride: pitch,
        blockStride: 1,
        swizzled: false,
        bytes: Math.ceil(lines / tileLines) * pitch * 4,
      };
    }
    const pitch = roundUp(lines, 4);
    return {
      lineStride: 1,
      blockStride: pitch,
      swizzled: false,
      bytes: blocks * pitch * 4,
    };
  }
  return {
    lineStride: 0,
    blockStride: 0,
    swizzled: true,
    bytes: roundUp(lines, 128) * roundUp(blocks, 4),
  };
}
