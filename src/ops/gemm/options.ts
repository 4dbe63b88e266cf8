/** The options of a product, their table, and its results. */
import { datapathName } from "../../backends/backend.js";
import { GEMM_OUT_DTYPES, type GemmOutDType } from "../../backends/gemm-args.js";
import { boolean, callable, type Domain, finite, integer, oneOf, optionsOf } from "../../options.js";
import { dtypeOf, requireTensor, requireWide, wideDType } from "../../tensor/require.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type NamedOperands, operandRows } from "./named-operands.js";
import { type GemmInput, requireInput } from "./operand.js";
import { type GemmPlan, type GemmPlanOptions, requirePlan } from "./plan.js";

/** Options of `gemm`: its operands and settings. */
export type GemmOptions = NamedOperands<GemmInput> & GemmSettings;

/** Settings of `gemm`; every field may be left out. */
export interface GemmSettings extends GemmPlanOptions {
  /** Default 1. */
  readonly alpha?: number | undefined;
  /** Adds beta * c before the bias; default 1 where `c` is given, else 0. */
  readonly beta?: number | undefined;
  /** The addend, multiplied by beta; of the result's shape, f32, bf16 or f16. */
  readonly c?: Tensor | undefined;
  /** The output, and with `accumulate` the addend as well. Default: a new tensor. */
  readonly out?: Tensor | undefined;
  /** Whether to add the product to the contents of `out`, which must be wide. Default false. */
  readonly accumulate?: boolean | undefined;
  /** [N], added to every row. */
  readonly bias?: Tensor | undefined;
  /** Whether to apply GELU and also return its argument, rounded to `auxDtype`. Default false. */
  readonly gelu?: boolean | undefined;
  /**
   * How `gelu` is computed. `exact`: by our kernels, bitwise equal on all backends. `fused`: by the GPU library within the
   * product, which is faster but an unpublished approximation. Default "exact".
   */
  readonly geluEpilogue?: "exact" | "fused" | undefined;
  /** Default: the bias's type, else the output's. */
  readonly auxDtype?: WideDType | undefined;
  /** The argument of GELU in the forward pass (`preGelu`): the product is multiplied by GELU's derivative at it. */
  readonly geluInput?: Tensor | undefined;
  /** Whether to also return the bias gradient: column sums of the result with `geluInput`, else of `b`. Default false. */
  readonly biasGradient?: boolean | undefined;
  /** Default: the type of `out`, else b's if wide, else the type b was quantized from. */
  readonly outDtype?: GemmOutDType | undefined;
  /** The factor of an FP8 output. Default 1. */
  readonly outScale?: number | undefined;
  /** Called from time to time with the fraction of the work done, 0 to 1. */
  readonly progress?: ((done: number) => void) | undefined;
}

/** The result of `gemm`: the product [M, N], the requested extras, and its plan. */
export interface GemmResult {
  /** The product; `out` of the options if given. */
  readonly out: Tensor<GemmOutDType>;
  /** The argument of GELU, if `gelu` was set. */
  readonly preGelu?: Tensor<WideDType>;
  /** The bias gradient, [N], if `biasGradient` was set. */
  readonly biasGradient?: Tensor<WideDType>;
  /** For an FP8 output: the maximum magnitude before `outScale`, f32 [1]. */
  readonly amax?: Tensor<"f32">;
  /** How it was computed; the same plan gives the same bits on every backend that supports it. */
  readonly plan: GemmPlan;
  /** Set, with the reason, if the bits follow from a model that was not measured on this chip with this library. */
  readonly unverified?: string;
}

const splits = integer(1);
const splitsOrAuto: Domain = (user, name, value) => value !== "auto" && splits(user, name, value);

/** Throws `ArgumentError` or `DTypeError` for an option outside its domain; `operandsOf` checks which operands go together. */
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
