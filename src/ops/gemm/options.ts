/** The options of a matrix product, their checks, and its results. */
import { datapathName } from "../../backends/backend.js";
import { GEMM_OUT_DTYPES, type GemmOutDType } from "../../backends/ops/gemm.js";
import { boolean, callable, type Domain, finite, integer, oneOf, optionsOf } from "../../options.js";
import { dtypeOf, requireTensor, requireWide, wideDType } from "../../tensor/require.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type NamedOperands, operandRows } from "./named-operands.js";
import { type GemmInput, requireInput } from "./operand.js";
import { type GemmPlan, type GemmPlanOptions, requirePlan } from "./plan.js";

/** Options of `gemm`: operands and settings. */
export type GemmOptions = NamedOperands<GemmInput> & GemmSettings;

/** Settings of `gemm`. All fields are optional. */
export interface GemmSettings extends GemmPlanOptions {
  /** The factor of the product. Default 1. */
  readonly alpha?: number | undefined;
  /** The factor of `c`. Default: 1 if `c` is given or `accumulate` is set, else 0. */
  readonly beta?: number | undefined;
  /** A tensor that is multiplied by beta and added before the bias. It has the shape of the result and is f32, bf16 or f16. */
  readonly c?: Tensor | undefined;
  /** The tensor that receives the result. With `accumulate` it is also the addend. Default: a new tensor. */
  readonly out?: Tensor | undefined;
  /** Whether to add the product to the contents of `out`, which must be f32, bf16 or f16. Default false. */
  readonly accumulate?: boolean | undefined;
  /** A vector [N] that is added to every row. */
  readonly bias?: Tensor | undefined;
  /** Whether to apply GELU and also return its argument, rounded to `auxDtype`. Default false. */
  readonly gelu?: boolean | undefined;
  /**
   * How `gelu` is computed. `exact`: by our kernels, bitwise equal on all backends. `fused`: by the GPU library within the
   * product; this is faster, but an approximation that is not published. Default `exact`.
   */
  readonly geluEpilogue?: "exact" | "fused" | undefined;
  /**
   * The dtype in which the argument of GELU is returned. Default: the bias's dtype, else the output's if that is f32, bf16 or
   * f16, else bf16.
   */
  readonly auxDtype?: WideDType | undefined;
  /**
   * The argument of GELU in the forward pass (`preGelu`). If given, the product is multiplied by the derivative of GELU at this
   * argument.
   */
  readonly geluInput?: Tensor | undefined;
  /**
   * Whether to also return the bias gradient: the column sums of the result if `geluInput` is given, else of `b`. Default
   * false.
   */
  readonly biasGradient?: boolean | undefined;
  /**
   * The dtype of the result. Default: the dtype of `out`, else the dtype of b (x) if it is f32, bf16 or f16, else the nominal
   * dtype of a quantized b, else f32.
   */
  readonly outDtype?: GemmOutDType | undefined;
  /** The factor by which an FP8 output is multiplied before it is rounded. Default 1. */
  readonly outScale?: number | undefined;
  /** A function that is called from time to time with the fraction of the work done, 0 to 1. */
  readonly progress?: ((done: number) => void) | undefined;
}

/** The result of `gemm`. */
export interface GemmResult {
  /** The product, [M, N]: the option `out` if given, else a new tensor. */
  readonly out: Tensor<GemmOutDType>;
  /** The argument of GELU. Present if `gelu` was set. */
  readonly preGelu?: Tensor<WideDType>;
  /** The bias gradient, a vector. Present if `biasGradient` was set. */
  readonly biasGradient?: Tensor<WideDType>;
  /** For an FP8 output: the maximum magnitude of the result before it was multiplied by `outScale`, f32 [1]. */
  readonly amax?: Tensor<"f32">;
  /** The plan by which the product was computed. The same plan gives the same bits on every backend that supports it. */
  readonly plan: GemmPlan;
  /**
   * Set if the bits rely on a model of the hardware that was not measured on this chip with this library. The text is the
   * reason.
   */
  readonly unverified?: string;
}

const splits = integer(1);
const splitsOrAuto: Domain = (user, name, value) => (value === "auto" ? value : splits(user, name, value));

/**
 * Checks the options of `gemm`. Throws `ArgumentError` or `DTypeError` for an invalid value; `operandsOf` checks the
 * combination of operands.
 *
 * @shared
 */
export const checkGemm = optionsOf<Partial<Record<"x" | "w" | "a" | "b" | "layout", unknown>> & GemmSettings>(
  {
    ...operandRows(requireInput),
    alpha: finite,
    beta: finite,
    c: requireWide,
    out: requireTensor,
    accumulate: boolean,
    bias: requireWide,
    gelu: boolean,
    geluEpilogue: oneOf(["exact", "fused"]),
    auxDtype: wideDType,
    geluInput: requireWide,
    biasGradient: boolean,
    outDtype: dtypeOf(GEMM_OUT_DTYPES),
    outScale: finite,
    datapath: datapathName,
    useSplitAccumulator: boolean,
    splitK: splitsOrAuto,
    plan: requirePlan,
    progress: callable,
  },
);
