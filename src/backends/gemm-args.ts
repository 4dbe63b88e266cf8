/** The arguments of a matrix product, as plain data; part of the operations of ops.ts. */
import type { DatapathFamily, OperandTraits } from "../formats/datapath.js";
import type { GemmAlgorithm } from "../formats/gemm-algorithm.js";
import { type DType, WIDE_DTYPES, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** Types a product can be rounded to. */
export const GEMM_OUT_DTYPES = [...WIDE_DTYPES, "e4m3", "e5m2"] as const satisfies readonly DType[];
/** A type that a product can be rounded to. */
export type GemmOutDType = (typeof GEMM_OUT_DTYPES)[number];

/** Whether a product can be rounded to that type. */
export function isGemmOut(dtype: DType): dtype is GemmOutDType {
  return GEMM_OUT_DTYPES.some((name) => name === dtype);
}

/** Block scales along K: element (line, k) has scale floor(line / lines) * lineStride + floor(k / length) * blockStride. */
export interface GemmBlockScales {
  /** The scales, f32, e8m0 or e4m3, in the layout given by the strides. */
  readonly tensor: Tensor;
  /** Lines that share a scale: 1 or 128. */
  readonly lines: number;
  /** Elements along K that share a scale: 16, 32 or 128. */
  readonly length: number;
  /** Elements from the scale of one group of lines to that of the next. */
  readonly lineStride: number;
  /** Elements from the scale of one block along K to that of the next. */
  readonly blockStride: number;
}

/** One operand as lines along K, codes or values. */
export interface GemmOperand {
  /** [lines, K], or [K, lines] if `transposed`; a batch holds its items one after another. */
  readonly data: Tensor;
  /** Set where `data` is [K, lines]. Default: [lines, K]. */
  readonly transposed?: boolean | undefined;
  /** The properties by which a datapath decides whether and how to multiply it: element format and block scales. */
  readonly traits: OperandTraits;
  /** Absent without block scales. */
  readonly blockScales?: GemmBlockScales | undefined;
  /** A factor of the whole operand, f32 [1]. */
  readonly tensorScale?: Tensor<"f32"> | undefined;
  /** NVFP4: the tensor amax that the block scales are relative to, f32 [1]. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** NVFP4: 6 times the maximum block scale; given with `amax`. */
  readonly amaxDivisor?: number | undefined;
}

/** The lines and depth of an operand; for a batch, those of each item. */
export function extentOf({ data, transposed }: GemmOperand): readonly [lines: number, depth: number] {
  const { shape } = data;
  const [rows, columns] = [shape[shape.length - 2] as number, shape[shape.length - 1] as number];
  return transposed ? [columns, rows] : [rows, columns];
}

/**
 * out[m, n] = epilogue(sum over k of x[m, k] * w[n, k]) under `datapath`. The epilogue multiplies the sum by s = (alpha * sW) *
 * sX, adds beta * c and bias[n], and rounds once to the type of out; for FP8, it multiplies by outScale before rounding.
 */
export interface GemmArgs {
  /** The input: M lines along K. */
  readonly x: GemmOperand;
  /** The weight: N lines along K. */
  readonly w: GemmOperand;
  /** The batch size: x, w, c and out are [batch, ...], without block scales or amax. Absent: one product of matrices. */
  readonly batch?: number | undefined;
  /** How sums are accumulated (datapath.md §1). */
  readonly datapath: DatapathFamily;
  /** Whether FP8 partial sums are promoted to f32 every 128 elements of K. Implied by block scales. */
  readonly splitAccumulator: boolean;
  /** The number of splits of K; "auto" leaves it to the backend, and the reference uses 1. */
  readonly splitK: number | "auto";
  /** The library algorithm to use; default: the backend's choice (`Backend.algorithmFor`). */
  readonly algorithm?: GemmAlgorithm | undefined;
  /** A factor of the product, an f32. */
  readonly alpha: number;
  /** The factor of `c`, an f32; 0 where there is no `c`. */
  readonly beta: number;
  /** The addend, of out's shape; may be `out` itself. */
  readonly c?: Tensor<WideDType> | undefined;
  /** [N], added to every row. */
  readonly bias?: Tensor<WideDType> | undefined;
  /** Output: the argument of GELU, which a GPU library then fuses into the product by approximation. */
  readonly preGelu?: Tensor<WideDType> | undefined;
  /** Output: the product, [M, N]. */
  readonly out: Tensor<GemmOutDType>;
  /** The factor of an FP8 `out`, an f32; ignored for other types. */
  readonly outScale: number;
  /** Output: max |x| before outScale, NaN ignored, f32 [1]. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** Called from time to time with the fraction of the work done. */
  readonly progress?: ((done: number) => void) | undefined;
}
