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
  readonly tensor: Tensor;
  readonly lines: number;
  readonly length: number;
  readonly lineStride: number;
  readonly blockStride: number;
}

/** One operand as lines along K, codes or values. */
export interface GemmOperand {
  /** [lines, K], or [K, lines] where `transposed`; of a batch, so many of them one after another. */
  readonly data: Tensor;
  readonly transposed?: boolean | undefined;
  readonly traits: OperandTraits;
  readonly blockScales?: GemmBlockScales | undefined;
  /** A factor of the whole operand, f32 [1]. */
  readonly tensorScale?: Tensor<"f32"> | undefined;
  /** NVFP4: the amax under which the block scales were made, f32 [1], and its divisor. */
  readonly amax?: Tensor<"f32"> | undefined;
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
  readonly x: GemmOperand;
  readonly w: GemmOperand;
  /** Products of one shape: x, w, c and out are [batch, ...], plain and without an amax. Absent: one, of matrices. */
  readonly batch?: number | undefined;
  readonly datapath: DatapathFamily;
  /** FP8 partial sums leave the tensor core every 128 k's. Implied by block scales. */
  readonly splitAccumulator: boolean;
  /** Parts K is cut in; "auto" leaves it to the backend, and the reference takes one. */
  readonly splitK: number | "auto";
  /** The algorithm to compute by; default: the backend's choice (`Backend.algorithmFor`). */
  readonly algorithm?: GemmAlgorithm | undefined;
  readonly alpha: number;
  readonly beta: number;
  readonly c?: Tensor<WideDType> | undefined;
  readonly bias?: Tensor<WideDType> | undefined;
  /** Becomes the value before GELU, of which `out` is then a GPU library's approximation, fused into the product. */
  readonly preGelu?: Tensor<WideDType> | undefined;
  readonly out: Tensor<GemmOutDType>;
  readonly outScale: number;
  /** Becomes max |x| before outScale, NaN ignored, f32 [1]. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** Called now and then with the share of the work done. */
  readonly progress?: ((done: number) => void) | undefined;
}
