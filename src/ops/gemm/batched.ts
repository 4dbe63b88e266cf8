/** Many matrix products of one shape at once, such as attention's (datapath.md §2). */
import { datapathName } from "../../backends/backend.js";
import { extentOf, type GemmOperand } from "../../backends/gemm-args.js";
import { DTypeError, ShapeError } from "../../errors.js";
import type { DatapathFamily } from "../../formats/datapath.js";
import { finite, needed, oneOf, optionsOf } from "../../options.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, requireShape } from "../execute.js";
import { requireApart } from "../overlap.js";
import { type GemmLayout, LAYOUTS } from "./gemm.js";
import { familyOf, type GemmPlan, multiply, planOf, requirePlan } from "./plan.js";

/** How `batchedGemm` multiplies; every field may be left out. */
export interface BatchedGemmOptions {
  /** [batch, N, K] in layout TN, else [batch, K, N]; bf16, f16 or f32, as `b`. */
  readonly a: Tensor;
  /** [batch, K, M] in layout NT, else [batch, M, K]. */
  readonly b: Tensor;
  /** Default TN. */
  readonly layout?: GemmLayout | undefined;
  /** Default 1. */
  readonly alpha?: number | undefined;
  /** Where to write, [batch, M, N]. Default: a new tensor. */
  readonly out?: Tensor | undefined;
  /** Default: the type of `out`, else b's. */
  readonly outDtype?: WideDType | undefined;
  /** Default: the backend's. */
  readonly datapath?: DatapathFamily | undefined;
  /** Fixes datapath, splitK and algorithm, as an earlier result gave them. */
  readonly plan?: GemmPlan | undefined;
}

/** What `batchedGemm` gives: the products, [batch, M, N], and the plan they were computed by. */
export interface BatchedGemmResult {
  readonly out: Tensor<WideDType>;
  /** Of every item. */
  readonly plan: GemmPlan;
  /** As of `gemm`. */
  readonly unverified?: string;
}

const checkOptions = optionsOf<BatchedGemmOptions>({
  a: needed(requireWide),
  b: needed(requireWide),
  layout: oneOf(LAYOUTS),
  alpha: finite,
  out: requireWide,
  outDtype: wideDType,
  datapath: datapathName,
  plan: requirePlan,
});

/**
 * out[i] = alpha * op(b[i])·op(a[i]), [batch, M, N]: each item has the bits that `gemm` gives for it under the same plan.
 * Empty batches and sums are allowed. Throws `ShapeError` and `DTypeError` for operands that do not go together,
 * `UnsupportedError` with the reason where the datapath has no rule for them.
 */
export function batchedGemm(options: BatchedGemmOptions): BatchedGemmResult {
  checkOptions("batchedGemm", options);
  const { a, b, out, layout = "TN", alpha = 1 } = options;
  const backend = commonBackend("batchedGemm", a, b, out);
  const w = operandOf("a", a, layout !== "TN");
  const x = operandOf("b", b, layout === "NT");
  requireMatch(layout, x, w);
  const dtype = options.outDtype ?? requireWide("batchedGemm", "out", out ?? b).dtype;
  const [batch] = b.shape as [number];
  const shape = [batch, extentOf(x)[0], extentOf(w)[0]];
  if (out) {
    requireTarget(out, dtype, shape);
    requireApart("gemm", { out, w: a, x: b }, { gemm: "batchedGemm", w: "a", x: "b" });
  }
  const planned = planOf(familyOf(backend, options), options, { x, w });
  const { family: datapath, splitAccumulator, splitK, algorithm } = planned;
  using scope = new Scope();
  const target = (out as Tensor<WideDType> | undefined) ?? new Tensor(backend, dtype, shape);
  const sums = { x, w, batch, datapath, splitAccumulator, splitK, algorithm };
  const made = multiply(backend, { ...sums, alpha, beta: 0, out: target, outScale: 1 }, planned);
  return { out: scope.keep(target), ...made };
}

function operandOf(name: string, x: Tensor, transposed: boolean): GemmOperand {
  const data = requireWide("batchedGemm", name, x);
  if (x.shape.length !== 3)
    throw new ShapeError(`batchedGemm: ${name} is [${x.shape}]; it must be [batch, rows, columns]`);
  return { data, transposed, traits: { format: data.dtype } };
}

function requireMatch(layout: GemmLayout, x: GemmOperand, w: GemmOperand): void {
  const [a, b] = [w.data, x.data];
  if (a.dtype !== b.dtype)
    throw new DTypeError(`batchedGemm: a is ${a.dtype} and b ${b.dtype}; they must be of one type`);
  if (a.shape[0] !== b.shape[0])
    throw new ShapeError(`batchedGemm: a is [${a.shape}] and b [${b.shape}]; their batches must be equal`);
  const [[, depth], [, other]] = [extentOf(x), extentOf(w)];
  if (depth !== other) {
    throw new ShapeError(
      `batchedGemm: layout ${layout} sums over ${other} of a [${a.shape}] and ${depth} of b [${b.shape}]; they must be equal`,
    );
  }
}

function requireTarget(out: Tensor, dtype: WideDType, shape: readonly number[]): void {
  requireShape("batchedGemm", "out", out, shape);
  if (out.dtype !== dtype)
    throw new DTypeError(`batchedGemm: out is ${out.dtype} and outDtype ${dtype}; they must be equal`);
}
