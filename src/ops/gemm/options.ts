/** The options of a product, its results, and the table that options are held against. */
import { datapathName } from "../../backends/backend.js";
import { GEMM_OUT_DTYPES, type GemmOutDType } from "../../backends/gemm-args.js";
import { boolean, callable, type Domain, finite, integer, oneOf, optionsOf } from "../../options.js";
import { dtypeOf, requireTensor, requireWide, wideDType } from "../../tensor/require.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type NamedOperands, operandRows } from "./named-operands.js";
import { type GemmInput, requireInput } from "./operand.js";
import { type GemmPlan, type GemmPlanOptions, requirePlan } from "./plan.js";

/** What `gemm` multiplies, and how. */
export type GemmOptions = NamedOperands<GemmInput> & GemmSettings;

/** How `gemm` multiplies, and what it does with the product; every field may be left out. */
export interface GemmSettings extends GemmPlanOptions {
  /** Default 1. */
  readonly alpha?: number | undefined;
  /** Adds beta * c before the bias; default 1 where `c` is given, else 0. */
  readonly beta?: number | undefined;
  /** Added, times beta; of the result's shape, and of f32, bf16 or f16. */
  readonly c?: Tensor | undefined;
  /** Where to write; with `accumulate`, what to add to as well. Default: a new tensor. */
  readonly out?: Tensor | undefined;
  /** Adds the product to what `out` holds, which must be wide. Default false. */
  readonly accumulate?: boolean | undefined;
  /** [N], added to every row. */
  readonly bias?: Tensor | undefined;
  /** Applies GELU and gives the value before it, rounded to `auxDtype`, as well. */
  readonly gelu?: boolean | undefined;
  /**
   * Who computes `gelu`: our kernels, to the bit and the same everywhere, or the GPU library within the product, faster and
   * by an approximation that nobody publishes. Default "exact".
   */
  readonly geluEpilogue?: "exact" | "fused" | undefined;
  /** Default: the bias's type, else the output's. */
  readonly auxDtype?: WideDType | undefined;
  /** Multiplies by the derivative of GELU at this, what `gelu` gave. */
  readonly geluInput?: Tensor | undefined;
  /** Also gives the bias gradient: column sums of the result with `geluInput`, else of `b`. */
  readonly biasGradient?: boolean | undefined;
  /** Default: the type of `out`, else b's if wide, else the type b was quantized from. */
  readonly outDtype?: GemmOutDType | undefined;
  /** The factor of an FP8 output. Default 1. */
  readonly outScale?: number | undefined;
  /** Called now and then with the share of the work done, 0 to 1. */
  readonly progress?: ((done: number) => void) | undefined;
}

/** What `gemm` gives: the product [M, N], what was asked for next to it, and the plan it was computed by. */
export interface GemmResult {
  /** The product, `out` of the options where it was given. */
  readonly out: Tensor<GemmOutDType>;
  /** With `gelu`: its argument. */
  readonly preGelu?: Tensor<WideDType>;
  /** With `biasGradient`, [N]. */
  readonly biasGradient?: Tensor<WideDType>;
  /** With an FP8 output: the largest magnitude before `outScale`, f32 [1]. */
  readonly amax?: Tensor<"f32">;
  /** How it was computed; the same plan gives the same bits on every backend that supports it. */
  readonly plan: GemmPlan;
  /** Set where the bits follow from a model that was not measured on this chip with this library, and why. */
  readonly unverified?: string;
}

const parts = integer(1);
const partsOrAuto: Domain = (user, name, value) => value !== "auto" && parts(user, name, value);

/** Throws `ArgumentError` or `DTypeError` for an option outside its domain; which operands go together is for `operandsOf`. */
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
    splitK: partsOrAuto,
    plan: requirePlan,
    progress: callable,
  },
);
