/** Matrix products of unquantized and quantized operands, with the epilogues of cuBLASLt (numerics.md §6, datapath.md §2). */
import type { Backend } from "../../backends/backend.js";
import {
  extentOf,
  GEMM_OUT_DTYPES,
  type GemmArgs,
  type GemmOperand,
  type GemmOutDType,
  isGemmOut,
} from "../../backends/ops/gemm.js";
import { ArgumentError, DTypeError, ShapeError } from "../../errors.js";
import { readsBlockExponents } from "../../formats/datapath.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, isWide, type Shape, sameShape, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, requireShape } from "../execute.js";
import { requireApart } from "../overlap.js";
import { biasGradient, gelu, geluGradient } from "./epilogue.js";
import { type Operands, operandsOf, productOf } from "./named-operands.js";
import { type GemmInput, linesOf, matrixOf, tensorsOf } from "./operand.js";
import { checkGemm, type GemmOptions, type GemmResult, type GemmSettings } from "./options.js";
import { familyOf, multiply, type PlannedGemm, planOf } from "./plan.js";
import { requireSameTransform, transformed } from "./transform.js";

/**
 * Computes the matrix product x·wᵀ, [M, N], of an input x [M, K] and a weight w [N, K]. Instead of x and w, the operands can be
 * given as a, b and a layout, as in TransformerEngine's `general_gemm`; the product is then op(b)·op(a). Layout TN is the same
 * product with b for x and a for w.
 *
 * The datapath defines how the sum is accumulated. With the factor s = (alpha * sW) * sX, where sW and sX are per-tensor scales,
 * the epilogue computes fma(s, sum, beta * c): one fused multiply-add, which rounds once to f32. With several splits of K it is
 * fma(beta, c, s * sum). The factor s and the products by it or by beta outside of the fma are rounded to f32. Scales of rows
 * multiply the sum before alpha does (datapath.md §2). Then bias is added and rounded to f32, GELU or its derivative is applied,
 * if requested, and the result is rounded once to `outDtype`: to nearest even, with overflow to infinity or, for FP8, saturating
 * (numerics.md §6). The result has the leading dimensions of x or b; in layout NT it is [columns of b, N].
 *
 * For a quantized operand, the copy whose scale blocks lie along K is read. This is the rowwise copy for x and w, for a in TN and
 * for b in TN and NN, and the columnwise copy otherwise. If one of the copies has passed through the Hadamard transform, the
 * other must have passed through the same, signs included; a tensor that is not quantized counts as not transformed. The amaxes
 * of NVFP4 operands are multiplied into alpha. A bf16 operand is multiplied by the bf16 values of codes (datapath.md §3).
 *
 * A NaN operand gives NaN, as does infinity minus infinity; an FP8 result then holds its NaN code. If K is 0, the sum is 0 and
 * the bias is not added. A result without elements is empty.
 *
 * @throws `ArgumentError` for operands that are named by both pairs of names or by half of one, for operands that have passed
 * through different Hadamard transforms, and for options that exclude each other.
 * @throws `ShapeError` or `DTypeError` for operands, addends or an output that do not match.
 * @throws `UnsupportedError` if the datapath has no rule for the operands or the backend has no kernel. The message has the
 * reason.
 * @throws `DisposedError` for a disposed tensor, `OutOfMemoryError` if the memory for the result is not available.
 */
export function gemm(options: GemmOptions): GemmResult {
  const ownOptions = checkGemm("gemm", options);
  const operands = operandsOf<GemmInput>("gemm", ownOptions);
  const scope = new Scope();
  try {
    const prepared = prepareGemm("gemm", operands, ownOptions);
    const { backend, shape, args, rows, columns, planned, dtype } = prepared;
    const target = outputOf(backend, operands, ownOptions, dtype, shape);
    const result = run({ backend, operands, options: ownOptions, args, target, rows, columns, planned });
    scope.keep(target);
    if (result.preGelu) scope.keep(result.preGelu);
    if (result.biasGradient) scope.keep(result.biasGradient);
    if (result.amax) scope.keep(result.amax);
    return { out: target, ...result };
  } finally {
    scope.dispose();
  }
}

/** @shared A product with checked operands and options, before its result is allocated. */
export interface PreparedGemm {
  readonly backend: Backend;
  readonly args: Omit<GemmArgs, "out" | "amax">;
  readonly planned: PlannedGemm;
  readonly rows: number;
  readonly columns: number;
  /** The shape and dtype of the result. */
  readonly shape: Shape;
  readonly dtype: GemmOutDType;
}

/** @shared Returns a product of these operands. The open scope owns the tensors that this call creates. Throws as `gemm` does. */
export function prepareGemm(op: string, operands: Operands<GemmInput>, options: GemmSettings): PreparedGemm {
  const { a, b, layout, names } = operands;
  const backend = commonBackend(
    op,
    ...tensorsOf(a),
    ...tensorsOf(b),
    options.c,
    options.out,
    options.bias,
    options.geluInput,
  );
  const family = familyOf(backend, options);
  const readsScales = readsBlockExponents(family);
  const ofA = layout === "TN" ? "rowwise" : "columnwise";
  const ofB = layout === "NT" ? "columnwise" : "rowwise";
  requireSameTransform(op, transformed(names.a, a, ofA), transformed(names.b, b, ofB));
  const w = linesOf(op, names.a, a, { direction: ofA, readsScales });
  const x = linesOf(op, names.b, b, { direction: ofB, readsScales });
  const [rows, depth] = extentOf(x);
  const [columns, other] = extentOf(w);
  if (depth !== other) {
    throw new ShapeError(
      `${op}: ${productOf(operands)} sums over ${other} of ${names.a} [${matrixOf(a)}] and ${depth} of ${names.b} [${matrixOf(b)}]; they must be equal`,
    );
  }
  const shape = layout === "NT" ? [rows, columns] : [...leading(b), columns];
  const planned = planOf(op, family, options, { x, w });
  const dtype = outTypeOf(op, options, b);
  const args = argsOf(op, options, x, w, planned, shape);
  return { backend, args, planned, rows, columns, shape, dtype };
}

interface Product {
  readonly backend: Backend;
  readonly operands: Operands<GemmInput>;
  readonly options: GemmSettings;
  readonly args: Omit<GemmArgs, "out" | "amax">;
  readonly target: Tensor<GemmOutDType>;
  readonly rows: number;
  readonly columns: number;
  readonly planned: PlannedGemm;
}

/** Computes the product. If GELU or its derivative follows, the product is computed into a temporary tensor. */
function run(request: Product): Omit<GemmResult, "out"> {
  const { backend, operands, options, args, target, rows, columns, planned } = request;
  const { b, names } = operands;
  const { bias, geluInput } = options;
  const amax = isWide(target.dtype) ? undefined : new Tensor(backend, "f32", [1]);
  const summed = geluInput ? columns : matrixOf(b)[1];
  const sums = options.biasGradient
    ? new Tensor(backend, sumTypeOf(options, b, target.dtype), [summed])
    : undefined;
  const extra = { ...(amax && { amax }), ...(sums && { biasGradient: sums }) };
  if (options.gelu) {
    const type =
      options.auxDtype ??
      (bias ? requireWide("gemm", "bias", bias).dtype : isWide(target.dtype) ? target.dtype : "bf16");
    const preGelu = new Tensor(backend, type, target.shape);
    if (options.geluEpilogue === "fused") {
      const result = multiply(backend, { ...args, out: target, preGelu, amax }, planned);
      return { ...result, preGelu, ...extra };
    }
    const result = multiply(backend, { ...args, out: preGelu, outScale: 1 }, planned);
    gelu(preGelu, target, args.outScale, amax);
    return { ...result, preGelu, ...extra };
  }
  if (!geluInput) {
    const result = multiply(backend, { out: target, amax, ...args }, planned);
    if (sums) biasGradient(names.b, b, sums);
    return { ...result, ...extra };
  }
  const product = new Tensor(backend, "f32", [rows, columns]);
  const result = multiply(backend, { ...args, out: product, outScale: 1 }, planned);
  const pre = requireWide("gemm", "geluInput", geluInput);
  if (!sameShape(asMatrix(pre.shape), [rows, columns])) requireShape("gemm", "geluInput", pre, target.shape);
  geluGradient(product, pre.reshape([rows, columns]), target, args.outScale, extra);
  return { ...result, ...extra };
}

function leading(b: GemmInput): Shape {
  return ("shape" in b ? b.shape : b.data.shape).slice(0, -1);
}

function argsOf(
  op: string,
  options: GemmSettings,
  x: GemmOperand,
  w: GemmOperand,
  planned: PlannedGemm,
  shape: Shape,
): Omit<GemmArgs, "out" | "amax"> {
  const { alpha = 1, outScale = 1, bias, gelu, geluEpilogue = "exact", geluInput, progress } = options;
  const { family: datapath, splitAccumulator, splitK, algorithm } = planned;
  const [columns, depth] = extentOf(w);
  if (geluEpilogue === "fused" && !gelu)
    throw new ArgumentError(`${op}: geluEpilogue chooses how gelu is computed; set gelu as well`);
  if (gelu && geluInput)
    throw new ArgumentError(`${op}: gelu is the forward pass and geluInput the backward pass; give one`);
  if (gelu && options.biasGradient)
    throw new ArgumentError(
      `${op}: gelu is the forward pass and a bias gradient belongs to the backward; drop one`,
    );
  if (options.biasGradient && bias)
    throw new ArgumentError(`${op}: a product has a bias or gives its gradient, not both`);
  if (bias) requireShape(op, "bias", bias, [columns]);
  const added = bias && depth > 0 ? requireWide(op, "bias", bias) : undefined;
  const { beta, c } = addendOf(op, options, shape);
  const sums = { x, w, datapath, splitAccumulator, splitK, algorithm };
  return { alpha, beta, c, bias: added, outScale, progress, ...sums };
}

function addendOf(
  op: string,
  { beta, c, out, accumulate }: GemmSettings,
  shape: Shape,
): Pick<GemmArgs, "beta" | "c"> {
  if (accumulate && !out) throw new ArgumentError(`${op}: accumulate adds to \`out\`; give it`);
  if (accumulate && c)
    throw new ArgumentError(`${op}: accumulate adds to \`out\` and c is given as well; give one`);
  const addend = accumulate ? out : c;
  if (!addend) {
    if (beta)
      throw new ArgumentError(
        `${op}: beta is ${beta} and there is no c to multiply; give c, or accumulate into out`,
      );
    return { beta: 0 };
  }
  requireShape(op, accumulate ? "out" : "c", addend, shape);
  return { beta: beta ?? 1, c: requireWide(op, accumulate ? "out" : "c", addend) };
}

function outTypeOf(op: string, { out, outDtype }: GemmSettings, b: GemmInput): GemmOutDType {
  const dtype =
    outDtype ?? out?.dtype ?? (b instanceof QuantizedTensor ? b.dtype : "shape" in b ? b.dtype : "f32");
  if (out && out.dtype !== dtype)
    throw new DTypeError(`${op}: out is ${out.dtype} and outDtype ${dtype}; they must be equal`);
  if (isGemmOut(dtype)) {
    return outDtype || out || isWide(dtype) ? dtype : "f32";
  }
  if (outDtype || out)
    throw new DTypeError(`${op}: the output cannot be ${dtype}; it is one of ${GEMM_OUT_DTYPES.join(", ")}`);
  return "f32";
}

function outputOf(
  backend: Backend,
  operands: Operands<GemmInput>,
  options: GemmSettings,
  dtype: GemmOutDType,
  shape: Shape,
): Tensor<GemmOutDType> {
  const { out } = options;
  if (!out) return new Tensor(backend, dtype, shape);
  requireShape("gemm", "out", out, shape);
  requireFree(out, operands, options);
  return out as Tensor<GemmOutDType>;
}

/**
 * Throws `ArgumentError` if `out` overlaps an input of the product or of an operation that follows it. The overlap with b
 * matters even then, because the bias gradient may read b after `out` is written.
 */
function requireFree(
  out: Tensor,
  { a, b, names }: Operands<GemmInput>,
  { bias, c, geluInput }: GemmSettings,
): void {
  requireApart("gemm", { out, w: a, x: b, bias, c }, { w: names.a, x: names.b });
  requireApart("activationBackward", { out, x: geluInput }, { activationBackward: "gemm", x: "geluInput" });
}

/** Returns the dtype of the bias gradient: the dtype of the tensor whose columns are summed. */
function sumTypeOf({ geluInput }: GemmSettings, b: GemmInput, out: GemmOutDType): WideDType {
  if (b instanceof QuantizedTensor && !geluInput) return b.dtype;
  return isWide(out) ? out : "f32";
}
