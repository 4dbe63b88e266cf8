/** Batched matrix products, as attention uses them (datapath.md §2). */
import { datapathName } from "../../backends/backend.js";
import { extentOf, type GemmOperand } from "../../backends/ops/gemm.js";
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

/** Options of `batchedGemm`: three-dimensional operands of the same dtype (bf16, f16 or f32), and settings. */
export type BatchedGemmOptions = NamedOperands<Tensor> & BatchedGemmSettings;

/** Settings of `batchedGemm`. All fields are optional. */
export interface BatchedGemmSettings {
  /** The factor of each product. Default 1. */
  readonly alpha?: number | undefined;
  /** The tensor that receives the result, [batch, M, N]. Default: a new tensor. */
  readonly out?: Tensor | undefined;
  /** The dtype of the result. Default: the dtype of `out`, else the dtype of the operands. */
  readonly outDtype?: WideDType | undefined;
  /** How sums are accumulated. Default: the backend's datapath. */
  readonly datapath?: DatapathFamily | undefined;
  /** The plan of an earlier result. It determines datapath, splitK and algorithm. */
  readonly plan?: GemmPlan | undefined;
}

/** The result of `batchedGemm`. */
export interface BatchedGemmResult {
  /** The products, [batch, M, N]. */
  readonly out: Tensor<WideDType>;
  /** The plan by which every item was computed. */
  readonly plan: GemmPlan;
  /** As `unverified` of `GemmResult`. */
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
 * Computes a batch of products out[i] = alpha * x[i]·w[i]ᵀ, [batch, M, N], of x [batch, M, K] and w [batch, N, K]. With
 * operands a, b and a layout it computes alpha * op(b[i])·op(a[i]). Each item is bitwise equal to the result of `gemm` for it
 * under the same plan, including NaN. The batch and K may be 0.
 *
 * @throws `ArgumentError` for operands that are named by both pairs of names or by half of one, and for an output that overlaps
 * an operand.
 * @throws `ShapeError` or `DTypeError` for operands or an output that do not match.
 * @throws `UnsupportedError` if the datapath has no rule for the operands. The message has the reason.
 * @throws `DisposedError` for a disposed tensor.
 */
export function batchedGemm(options: BatchedGemmOptions): BatchedGemmResult {
  const ownOptions = checkOptions("batchedGemm", options);
  const operands = operandsOf<Tensor>("batchedGemm", ownOptions);
  const { a, b, layout, names } = operands;
  const { out, alpha = 1 } = ownOptions;
  const backend = commonBackend("batchedGemm", a, b, out);
  const w = operandOf(names.a, a, layout !== "TN");
  const x = operandOf(names.b, b, layout === "NT");
  requireMatch(operands, x, w);
  const dtype = ownOptions.outDtype ?? requireWide("batchedGemm", "out", out ?? b).dtype;
  const [batch] = b.shape as [number];
  const shape = [batch, extentOf(x)[0], extentOf(w)[0]];
  if (out) {
    requireTarget(out, dtype, shape);
    requireApart("gemm", { out, w: a, x: b }, { gemm: "batchedGemm", w: names.a, x: names.b });
  }
  const planned = planOf("batchedGemm", familyOf(backend, ownOptions), ownOptions, { x, w });
  const { family: datapath, splitAccumulator, splitK, algorithm } = planned;
  using scope = new Scope();
  const target = (out as Tensor<WideDType> | undefined) ?? new Tensor(backend, dtype, shape);
  const sums = { x, w, batch, datapath, splitAccumulator, splitK, algorithm };
  const result = multiply(backend, { ...sums, alpha, beta: 0, out: target, outScale: 1 }, planned);
  return { out: scope.keep(target), ...result };
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
