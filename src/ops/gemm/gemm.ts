/** Matrix products of plain and quantized operands, with cuBLASLt's epilogues (numerics.md §6, datapath.md §2). */
import { type Backend, datapathName } from "../../backends/backend.js";
import {
  extentOf,
  GEMM_OUT_DTYPES,
  type GemmArgs,
  type GemmOperand,
  type GemmOutDType,
  isGemmOut,
} from "../../backends/gemm-args.js";
import { ArgumentError, DTypeError, ShapeError } from "../../errors.js";
import { readsBlockExponents } from "../../formats/datapath.js";
import { boolean, callable, type Domain, finite, integer, needed, oneOf, optionsOf } from "../../options.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { dtypeOf, requireTensor, requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, isWide, type Shape, sameShape, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, requireShape } from "../execute.js";
import { requireApart } from "../overlap.js";
import { biasGradient, gelu, geluGradient } from "./epilogue.js";
import { type GemmInput, linesOf, matrixOf, requireInput, tensorsOf } from "./operand.js";
import {
  familyOf,
  type GemmPlan,
  type GemmPlanOptions,
  multiply,
  type PlannedGemm,
  planOf,
  requirePlan,
} from "./plan.js";

/** Which operands are transposed, a's letter first: TN is b·aᵀ (fprop), NN b·a (dgrad), NT bᵀ·a (wgrad). */
export type GemmLayout = "TN" | "NN" | "NT";

/** How `gemm` multiplies, and what it does with the product; every field may be left out. */
export interface GemmOptions extends GemmPlanOptions {
  /** TransformerEngine's A: the weight, [N,K] in layout TN. */
  readonly a: GemmInput;
  /** TransformerEngine's B: the input, [...,K] in layout TN. */
  readonly b: GemmInput;
  /** Default TN. */
  readonly layout?: GemmLayout | undefined;
  /** Default 1. */
  readonly alpha?: number | undefined;
  /** Adds beta * c before the bias; default 1 where `c` is given, else 0. */
  readonly beta?: number | undefined;
  readonly c?: Tensor | undefined;
  /** Where to write; with `accumulate`, what to add to as well. Default: a new tensor. */
  readonly out?: Tensor | undefined;
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

/** What `gemm` gives: the product [M, N], what was asked for beside it, and the plan it was computed by. */
export interface GemmResult {
  readonly out: Tensor<GemmOutDType>;
  /** With `gelu`: its argument. */
  readonly preGelu?: Tensor<WideDType>;
  /** With `biasGradient`, [N]. */
  readonly biasGradient?: Tensor<WideDType>;
  /** With an FP8 output: the largest magnitude before `outScale`, f32 [1]. */
  readonly amax?: Tensor<"f32">;
  readonly plan: GemmPlan;
  /** Set where the bits follow from a model that was not measured on this chip with this library, and why. */
  readonly unverified?: string;
}

export const LAYOUTS: readonly GemmLayout[] = ["TN", "NN", "NT"];

const parts = integer(1);
const partsOrAuto: Domain = (user, name, value) => value !== "auto" && parts(user, name, value);

const checkOptions = optionsOf<GemmOptions>({
  a: needed(requireInput),
  b: needed(requireInput),
  layout: oneOf(LAYOUTS),
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
});

/**
 * op(b)·op(a), accumulated as the datapath does, then (alpha * sA) * sB times it, plus beta * c, plus bias, each
 * step one f32 rounding, then GELU or its derivative, then one rounding to `outDtype`: nearest even, overflow to
 * infinity, FP8 saturating. The result is [..., N], in layout NT [columns of b, N].
 *
 * A quantized operand gives the copy scaled along the summed dimension: rowwise for a in T and b in N, else
 * columnwise. NVFP4's amaxes enter alpha. An empty sum is zero, without bias. Throws `ShapeError`, `DTypeError`
 * and `ArgumentError` for operands and options that do not go together, `UnsupportedError` with the reason where
 * the datapath has no rule for them.
 */
export function gemm(options: GemmOptions): GemmResult {
  const { a, b } = checkOptions("gemm", options);
  const backend = commonBackend(
    "gemm",
    ...tensorsOf(a),
    ...tensorsOf(b),
    options.c,
    options.out,
    options.bias,
    options.geluInput,
  );
  const scope = new Scope();
  try {
    return scoped(options, backend, scope);
  } finally {
    scope.dispose();
  }
}

function scoped(options: GemmOptions, backend: Backend, scope: Scope): GemmResult {
  const { a, b, layout = "TN" } = options;
  const family = familyOf(backend, options);
  const readsScales = readsBlockExponents(family);
  const w = linesOf("a", a, { direction: layout === "TN" ? "rowwise" : "columnwise", readsScales });
  const x = linesOf("b", b, { direction: layout === "NT" ? "columnwise" : "rowwise", readsScales });
  const [rows, depth] = extentOf(x);
  const [columns, other] = extentOf(w);
  if (depth !== other) {
    throw new ShapeError(
      `gemm: layout ${layout} sums over ${other} of a [${matrixOf(a)}] and ${depth} of b [${matrixOf(b)}]; they must be equal`,
    );
  }
  const shape = layout === "NT" ? [rows, columns] : [...leading(b), columns];
  const planned = planOf(family, options, { x, w });
  const dtype = outTypeOf(options);
  const target = outputOf(backend, options, dtype, shape);
  const args = argsOf(options, x, w, planned, shape);
  const result = run({ backend, options, args, target, rows, columns, planned });
  if (!options.out) scope.keep(target);
  if (result.preGelu) scope.keep(result.preGelu);
  if (result.biasGradient) scope.keep(result.biasGradient);
  if (result.amax) scope.keep(result.amax);
  return { out: target, ...result };
}

interface Product {
  readonly backend: Backend;
  readonly options: GemmOptions;
  readonly args: Omit<GemmArgs, "out" | "amax">;
  readonly target: Tensor<GemmOutDType>;
  readonly rows: number;
  readonly columns: number;
  readonly planned: PlannedGemm;
}

/** The product itself, straight into the target or through what GELU needs. */
function run({ backend, options, args, target, rows, columns, planned }: Product): Omit<GemmResult, "out"> {
  const { bias, geluInput } = options;
  const amax = isWide(target.dtype) ? undefined : new Tensor(backend, "f32", [1]);
  const summed = geluInput ? columns : matrixOf(options.b)[1];
  const sums = options.biasGradient
    ? new Tensor(backend, sumTypeOf(options, target.dtype), [summed])
    : undefined;
  const extra = { ...(amax && { amax }), ...(sums && { biasGradient: sums }) };
  if (options.gelu) {
    const type =
      options.auxDtype ??
      (bias ? requireWide("gemm", "bias", bias).dtype : isWide(target.dtype) ? target.dtype : "bf16");
    const preGelu = new Tensor(backend, type, target.shape);
    if (options.geluEpilogue === "fused") {
      const made = multiply(backend, { ...args, out: target, preGelu, amax }, planned);
      return { ...made, preGelu, ...extra };
    }
    const made = multiply(backend, { ...args, out: preGelu, outScale: 1 }, planned);
    gelu(preGelu, target, args.outScale, amax);
    return { ...made, preGelu, ...extra };
  }
  if (!geluInput) {
    const made = multiply(backend, { out: target, amax, ...args }, planned);
    if (sums) biasGradient(options.b, sums);
    return { ...made, ...extra };
  }
  const product = new Tensor(backend, "f32", [rows, columns]);
  const made = multiply(backend, { ...args, out: product, outScale: 1 }, planned);
  const pre = requireWide("gemm", "geluInput", geluInput);
  if (!sameShape(asMatrix(pre.shape), [rows, columns])) requireShape("gemm", "geluInput", pre, target.shape);
  geluGradient(product, pre.reshape([rows, columns]), target, args.outScale, extra);
  return { ...made, ...extra };
}

function leading(b: GemmInput): Shape {
  return ("shape" in b ? b.shape : b.data.shape).slice(0, -1);
}

function argsOf(
  options: GemmOptions,
  x: GemmOperand,
  w: GemmOperand,
  planned: PlannedGemm,
  shape: Shape,
): Omit<GemmArgs, "out" | "amax"> {
  const { alpha = 1, outScale = 1, bias, gelu, geluEpilogue = "exact", geluInput, progress } = options;
  const { family: datapath, splitAccumulator, splitK, algorithm } = planned;
  const [columns, depth] = extentOf(w);
  if (geluEpilogue === "fused" && !gelu)
    throw new ArgumentError("gemm: geluEpilogue says who computes gelu; set gelu as well");
  if (gelu && geluInput)
    throw new ArgumentError("gemm: gelu is the forward pass and geluInput the backward pass; give one");
  if (gelu && options.biasGradient)
    throw new ArgumentError(
      "gemm: gelu is the forward pass and a bias gradient belongs to the backward; drop one",
    );
  if (options.biasGradient && bias)
    throw new ArgumentError("gemm: a product has a bias or gives its gradient, not both");
  if (bias) requireShape("gemm", "bias", bias, [columns]);
  const added = bias && depth > 0 ? requireWide("gemm", "bias", bias) : undefined;
  const { beta, c } = addendOf(options, shape);
  const sums = { x, w, datapath, splitAccumulator, splitK, algorithm };
  return { alpha, beta, c, bias: added, outScale, progress, ...sums };
}

function addendOf({ beta, c, out, accumulate }: GemmOptions, shape: Shape): Pick<GemmArgs, "beta" | "c"> {
  if (accumulate && !out) throw new ArgumentError("gemm: accumulate adds to `out`; give it");
  if (accumulate && c)
    throw new ArgumentError("gemm: accumulate adds to `out` and c is given as well; give one");
  const addend = accumulate ? out : c;
  if (!addend) {
    if (beta)
      throw new ArgumentError(
        `gemm: beta is ${beta} and there is no c to multiply; give c, or accumulate into out`,
      );
    return { beta: 0 };
  }
  requireShape("gemm", accumulate ? "out" : "c", addend, shape);
  return { beta: beta ?? 1, c: requireWide("gemm", accumulate ? "out" : "c", addend) };
}

function outTypeOf({ out, outDtype, b }: GemmOptions): GemmOutDType {
  const dtype =
    outDtype ?? out?.dtype ?? (b instanceof QuantizedTensor ? b.dtype : "shape" in b ? b.dtype : "f32");
  if (out && out.dtype !== dtype)
    throw new DTypeError(`gemm: out is ${out.dtype} and outDtype ${dtype}; they must be equal`);
  if (isGemmOut(dtype)) {
    return outDtype || out || isWide(dtype) ? dtype : "f32";
  }
  if (outDtype || out)
    throw new DTypeError(`gemm: the output cannot be ${dtype}; it is one of ${GEMM_OUT_DTYPES.join(", ")}`);
  return "f32";
}

function outputOf(
  backend: Backend,
  options: GemmOptions,
  dtype: GemmOutDType,
  shape: Shape,
): Tensor<GemmOutDType> {
  const { out } = options;
  if (!out) return new Tensor(backend, dtype, shape);
  requireShape("gemm", "out", out, shape);
  requireFree(out, options);
  return out as Tensor<GemmOutDType>;
}

/** Of the product and of what follows it, before either runs: b may be summed once more after the result is written. */
function requireFree(out: Tensor, { a, b, bias, c, geluInput }: GemmOptions): void {
  requireApart("gemm", { out, w: a, x: b, bias, c }, { w: "a", x: "b" });
  requireApart("activationBackward", { out, x: geluInput }, { activationBackward: "gemm", x: "geluInput" });
}

/** The gradient of a bias has the type of what is summed. */
function sumTypeOf({ b, geluInput }: GemmOptions, out: GemmOutDType): WideDType {
  if (b instanceof QuantizedTensor && !geluInput) return b.dtype;
  return isWide(out) ? out : "f32";
}
