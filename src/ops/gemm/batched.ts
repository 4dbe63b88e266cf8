/** Batched matrix products, as in attention (datapath.md §2). */
import { datapathName } from "../../backends/backend.js";
import { extentOf, type GemmOperand } from "../../backends/gemm-args.js";
import { DTypeError, ShapeError } from "../../errors.js";
import type { DatapathFamily } from "../../formats/datapath.js";
import { finite, optionsOf } from "../../options.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, requireShape } from "../execute.js";
import { requireApart } from "../overlap.js";
import { type NamedOperands, type Operands, operandRows, operandsOf, productOf } from "./named-operands.js";
import { familyOf, type GemmPlan, multiply, planOf, requirePlan } from "./plan.js";

/** Options of `batchedGemm`: three-dimensional operands of one type, bf16, f16 or f32, and its settings. */
export type BatchedGemmOptions = NamedOperands<Tensor> & BatchedGemmSettings;

/** Settings of `batchedGemm`; every field may be left out. */
export interface BatchedGemmSettings {
  /** Default 1. */
  readonly alpha?: number | undefined;
  /** The output, [batch, M, N]. Default: a new tensor. */
  readonly out?: Tensor | undefined;
  /** Default: the type of `out`, else of the operands. */
  readonly outDtype?: WideDType | undefined;
  /** Default: the backend's. */
  readonly datapath?: DatapathFamily | undefined;
  /** The plan of an earlier result; fixes datapath, splitK and algorithm. */
  readonly plan?: GemmPlan | undefined;
}

/** The result of `batchedGemm`: the products, [batch, M, N], and their plan. */
export interface BatchedGemmResult {
  /** [batch, M, N]. */
  readonly out: Tensor<WideDType>;
  /** The plan of every item. */
  readonly plan: GemmPlan;
  /** As in `GemmResult`. */
  readonly unverified?: string;
}

const checkOptions = optionsOf<
  Partial<Record<"x" | "w" | "a" | "b" | "layout", unknown>> & BatchedGemmSettings
>({
  ...operandRows(requireWide),
  alpha: finite,
  out: requireWide,
  outDtype: wideDType,
  datapath: datapathName,
  plan: requirePlan,
});

/**
 * out[i] = alpha * x[i]·w[i]ᵀ, [batch, M, N], of x [batch, M, K] and w [batch, N, K], or alpha * op(b[i])·op(a[i]) of a, b and
 * a layout: each item has the bits that `gemm` gives for it under the same plan, NaN included. Batches and sums may be empty.
 *
 * @throws `ArgumentError` for operands named by both pairs or by half of one, and for an output that overlaps one.
 * @throws `ShapeError` or `DTypeError` for operands or an output that do not fit each other.
 * @throws `UnsupportedError` with the reason, where the datapath has no rule for the operands.
 * @throws `DisposedError` for a tensor that was disposed of.
 */
export function batchedGemm(options: BatchedGemmOptions): BatchedGemmResult {
  const operands = operandsOf<Tensor>("batchedGemm", checkOptions("batchedGemm", options));
  const { a, b, layout, names } = operands;
  const { out, alpha = 1 } = options;
  const backend = commonBackend("batchedGemm", a, b, out);
  const w = operandOf(names.a, a, layout !== "TN");
  const x = operandOf(names.b, b, layout === "NT");
  requireMatch(operands, x, w);
  const dtype = options.outDtype ?? requireWide("batchedGemm", "out", out ?? b).dtype;
  const [batch] = b.shape as [number];
  const shape = [batch, extentOf(x)[0], extentOf(w)[0]];
  if (out) {
    requireTarget(out, dtype, shape);
    requireApart("gemm", { out, w: a, x: b }, { gemm: "batchedGemm", w: names.a, x: names.b });
  }
  const planned = planOf("batchedGemm", familyOf(backend, options), options, { x, w });
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

function requireMatch(operands: Operands<Tensor>, x: GemmOperand, w: GemmOperand): void {
  const { a, b, names } = operands;
  if (a.dtype !== b.dtype)
    throw new DTypeError(
      `batchedGemm: ${names.a} is ${a.dtype} and ${names.b} ${b.dtype}; they must be of one type`,
    );
  if (a.shape[0] !== b.shape[0])
    throw new ShapeError(
      `batchedGemm: ${names.a} is [${a.shape}] and ${names.b} [${b.shape}]; their batches must be equal`,
    );
  const [[, depth], [, other]] = [extentOf(x), extentOf(w)];
  if (depth !== other) {
    throw new ShapeError(
      `batchedGemm: ${productOf(operands)} sums over ${other} of ${names.a} [${a.shape}] and ${depth} of ${names.b} [${b.shape}]; they must be equal`,
    );
  }
}

function requireTarget(out: Tensor, dtype: WideDType, shape: readonly number[]): void {
  requireShape("batchedGemm", "out", out, shape);
  if (out.dtype !== dtype)
    throw new DTypeError(`batchedGemm: out is ${out.dtype} and outDtype ${dtype}; they must be equal`);
}
