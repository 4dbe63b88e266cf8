/** What a matrix product takes, as plain data; part of the vocabulary of ops.ts. */
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

/** Scales of blocks along K: (line, k) has scale floor(line / lines) * lineStride + floor(k / length) * blockStride. */
export interface GemmBlockScales {
  /** The scales, f32, e8m0 or e4m3, in the layout that the strides say. */
  readonly tensor: Tensor;
  /** Lines that share a scale: 1 or 128. */
  readonly lines: number;
  /** k's that share a scale: 16, 32 or 128. */
  readonly length: number;
  /** Elements from the scale of one group of lines to that of the next. */
  readonly lineStride: number;
  /** Elements from the scale of one block along K to that of the next. */
  readonly blockStride: number;
}

/** One operand as lines along K, codes or values. */
export interface GemmOperand {
  /** [lines, K], or [K, lines] where `transposed`; of a batch, so many of them one after another. */
  readonly data: Tensor;
  /** Set where `data` is [K, lines]. Default: [lines, K]. */
  readonly transposed?: boolean | undefined;
  /** What decides whether and how a datapath multiplies it: element format and block scales. */
  readonly traits: OperandTraits;
  /** Absent without scales of blocks. */
  readonly blockScales?: GemmBlockScales | undefined;
  /** A factor of the whole operand, f32 [1]. */
  readonly tensorScale?: Tensor<"f32"> | undefined;
  /** NVFP4: the amax under which the block scales were made, f32 [1], and its divisor. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** 6 times the largest block scale; given with `amax`. */
  readonly amaxDivisor?: number | undefined;
}

/** How many lines an operand has, and how long they are; of a batch, each item of it. */
export function extentOf({ data, transposed }: GemmOperand): readonly [lines: number, depth: number] {
  const { shape } = data;
  const [rows, columns] = [shape[shape.length - 2] as number, shape[shape.length - 1] as number];
  return transposed ? [columns, rows] : [rows, columns];
}

/**
 * out[m, n] = epilogue(sum over k of x[m, k] * w[n, k]) under `datapath`: s = (alpha * sW) * sX times the sum, plus
 * beta * c, plus bias[n], rounded once to out's type; FP8 codes are of that times outScale.
 */
export interface GemmArgs {
  /** The input: M lines along K. */
  readonly x: GemmOperand;
  /** The weight: N lines along K. */
  readonly w: GemmOperand;
  /** Products of one shape: x, w, c and out are [batch, ...], plain and without an amax. Absent: one, of matrices. */
  readonly batch?: number | undefined;
  /** How sums are accumulated (datapath.md §1). */
  readonly datapath: DatapathFamily;
  /** FP8 partial sums leave the tensor core every 128 k's. Implied by block scales. */
  readonly splitAccumulator: boolean;
  /** Parts K is cut in; "auto" leaves it to the backend, and the reference takes one. */
  readonly splitK: number | "auto";
  /** The algorithm to compute by; default: the backend's choice (`Backend.algorithmFor`). */
  readonly algorithm?: GemmAlgorithm | undefined;
  /** A factor of the product, an f32. */
  readonly alpha: number;
  /** The factor of `c`, an f32; 0 where there is no `c`. */
  readonly beta: number;
  /** What is added, of out's shape; may be `out` itself. */
  readonly c?: Tensor<WideDType> | undefined;
  /** [N], added to every row. */
  readonly bias?: Tensor<WideDType> | undefined;
  /** Becomes the value before GELU, of which `out` is then a GPU library's approximation, fused into the product. */
  readonly preGelu?: Tensor<WideDType> | undefined;
  /** Becomes the product, [M, N]. */
  readonly out: Tensor<GemmOutDType>;
  /** The factor of an FP8 `out`, an f32; without effect on another type. */
  readonly outScale: number;
  /** Becomes max |x| before outScale, NaN ignored, f32 [1]. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** Called now and then with the share of the work done. */
  readonly progress?: ((done: number) => void) | undefined;
}
