/** The arguments of matrix products, and their tensors. */
import type { DatapathFamily, OperandTraits } from "../../formats/datapath.js";
import type { GemmAlgorithm } from "../../formats/gemm-algorithm.js";
import { type DType, WIDE_DTYPES, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type Tensors, X } from "../tensors.js";

/** The dtypes to which a product can be rounded. */
export const GEMM_OUT_DTYPES = [...WIDE_DTYPES, "e4m3", "e5m2"] as const satisfies readonly DType[];
/** A dtype to which a product can be rounded. */
export type GemmOutDType = (typeof GEMM_OUT_DTYPES)[number];

/** Whether a product can be rounded to that dtype. */
export function isGemmOut(dtype: DType): dtype is GemmOutDType {
  return GEMM_OUT_DTYPES.some((name) => name === dtype);
}

/**
 * The block scales of an operand. The scale of element (line, k) is at index floor(line / lines) * lineStride + floor(k /
 * length) * blockStride of `tensor`.
 */
export interface GemmBlockScales {
  /** The scales: f32, e8m0 or e4m3. */
  readonly tensor: Tensor;
  /** The number of lines that share a scale: 1 or 128. */
  readonly lines: number;
  /** The number of elements along K that share a scale: 16, 32 or 128. */
  readonly length: number;
  /** The distance between the scales of consecutive groups of lines, in elements. */
  readonly lineStride: number;
  /** The distance between the scales of consecutive blocks along K, in elements. */
  readonly blockStride: number;
}

/** One operand of a product: values or codes, as lines along K. */
export interface GemmOperand {
  /** The elements, [lines, K], or [K, lines] if `transposed`. The items of a batch follow each other. */
  readonly data: Tensor;
  /** Whether `data` is stored as [K, lines]. Default false: [lines, K]. */
  readonly transposed?: boolean | undefined;
  /** The properties that decide how a datapath multiplies the operand: its element format and its block scales. */
  readonly traits: OperandTraits;
  /** The block scales. Absent if the operand has none. */
  readonly blockScales?: GemmBlockScales | undefined;
  /** The per-tensor scale of the operand, f32 [1]. */
  readonly tensorScale?: Tensor<"f32"> | undefined;
  /** The factors of lines, f32 with one element for each line. Given in place of `tensorScale` and `blockScales`. */
  readonly lineScales?: Tensor<"f32"> | undefined;
  /** For NVFP4: the amax of the whole tensor, f32 [1]. Block scales are relative to it. */
  readonly amax?: Tensor<"f32"> | undefined;
  /**
   * For row-scaled NVFP4: the amaxes of lines, f32 with one element for each line, in place of `amax`. If an operand has them,
   * the amaxes of both operands are not a part of alpha; the scaled sum is multiplied by them (numerics.md §5.10).
   */
  readonly lineAmaxes?: Tensor<"f32"> | undefined;
  /** For NVFP4: 6 times the maximum block scale. Given together with `amax` or `lineAmaxes`. */
  readonly amaxDivisor?: number | undefined;
}

/** Returns the number of lines and the depth K of an operand, or of each item of a batch. */
export function extentOf({ data, transposed }: GemmOperand): readonly [lines: number, depth: number] {
  const { shape } = data;
  const [rows, columns] = [shape[shape.length - 2] as number, shape[shape.length - 1] as number];
  return transposed ? [columns, rows] : [rows, columns];
}

/**
 * Whether an operand has amaxes of lines. If so, the scaled sum is multiplied by the amaxes of both operands, and alpha does not
 * include them.
 */
export function hasLineAmaxes({ x, w }: Pick<GemmArgs, "x" | "w">): boolean {
  return x.lineAmaxes !== undefined || w.lineAmaxes !== undefined;
}

/**
 * The arguments of a matrix product: out[m, n] = epilogue(sum over k of x[m, k] * w[n, k]), where `datapath` defines how the sum
 * is accumulated. The epilogue is defined in datapath.md §2. Without scales of lines it is fma(s, sum, beta * c), where s =
 * (alpha * sW) * sX, and sW and sX are the per-tensor scales. With scales of lines it is fma((sum * sW[n]) * sX[m], alpha, beta *
 * c). It adds bias[n] and rounds once to the dtype of out. For an FP8 out it multiplies by outScale before this rounding. If an
 * operand has amaxes of lines, the scaled sum is multiplied by both amaxes, bias[n] is added, the result is rounded to the dtype
 * of out, and beta * c is added (numerics.md §5.10).
 */
export interface GemmArgs {
  /** The input: M lines along K. */
  readonly x: GemmOperand;
  /** The weight: N lines along K. */
  readonly w: GemmOperand;
  /**
   * The number of products. If given, x, w, c and out are [batch, ...] and have no block scales or amax. Absent: a single
   * product.
   */
  readonly batch?: number | undefined;
  /** How sums are accumulated (datapath.md §1). */
  readonly datapath: DatapathFamily;
  /** Whether FP8 partial sums are added to an f32 total every 128 elements of K. Block scales imply it. */
  readonly splitAccumulator: boolean;
  /** The number of splits of K. With "auto" the backend chooses; the reference uses 1. */
  readonly splitK: number | "auto";
  /** The library algorithm to use. Default: the backend chooses (`Backend.algorithmFor`). */
  readonly algorithm?: GemmAlgorithm | undefined;
  /** The factor of the product, an f32 value. */
  readonly alpha: number;
  /** The factor of `c`, an f32 value. It is 0 if there is no `c`. */
  readonly beta: number;
  /** The addend, in the shape of out. It may be `out` itself. */
  readonly c?: Tensor<WideDType> | undefined;
  /** A vector [N] that is added to every row. */
  readonly bias?: Tensor<WideDType> | undefined;
  /** Output: the argument of GELU. If given, a GPU library fuses an approximate GELU into the product. */
  readonly preGelu?: Tensor<WideDType> | undefined;
  /** Output: the product, [M, N]. */
  readonly out: Tensor<GemmOutDType>;
  /** The factor of an FP8 `out`, an f32 value. It is ignored for other dtypes. */
  readonly outScale: number;
  /** Output: the maximum magnitude of the result before outScale, f32 [1]. NaN is ignored. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** A function that is called from time to time with the fraction of the work done, 0 to 1. */
  readonly progress?: ((done: number) => void) | undefined;
}

/** Computes a matrix product, or a batch of products. */
export const gemm: Tensors<GemmArgs> = {
  writes: { out: "product", "amax?": "scalar", "preGelu?": "wide" },
  reads: { ...X, w: "checked", "c?": "checked", "bias?": "checked" },
  inPlace: ["c"],
};
