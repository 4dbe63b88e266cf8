/** The forward and backward pass of a linear layer under a recipe (numerics.md §6.1). */
import { ArgumentError } from "../../errors.js";
import { plainDatapath } from "../../functional/datapath.js";
import { castTo } from "../../ops/cast/cast.js";
import { gemm } from "../../ops/gemm/gemm.js";
import type { GemmInput } from "../../ops/gemm/operand.js";
import { dequantize } from "../../ops/quantize/dequantize.js";
import type { BackwardOverride } from "../../recipes/table.js";
import { transientValue } from "../../tape/uses.js";
import { type Gradient, wideOf } from "../../tape/value.js";
import { COLUMNWISE, QuantizedTensor, ROWWISE } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { BackwardQuantization } from "../recipe-state.js";
import { isChunked, resultSpec } from "../tensor-parallel/rows.js";
import { amaxGroup } from "../tensor-parallel/tensor-parallel.js";
import { blockFitCheck, requireFit } from "./fit.js";
import { GradientOperand } from "./gradient-operand.js";
import { InputOperand, type WgradSource } from "./input-operand.js";
import { mixedForward } from "./mixed.js";
import type {
  LinearGradients,
  LinearInput,
  LinearParts,
  LinearResult,
  QuantizedCall,
  RequiredGradients,
} from "./parts.js";
import { biasGradOf, dgradOf, type Products, wgradOf, wideGrad } from "./products.js";
import { quantizedProduct } from "./quantized-product.js";
import { isCached } from "./weight-cache.js";
import { WeightOperand } from "./weight-operand.js";
import { wideGradients, wideWeightIn } from "./wide.js";

/** A call whose operands are quantized. */
interface PreparedCall extends QuantizedCall {
  readonly layer: LinearParts;
  /** The activation type. */
  readonly dtype: WideDType;
  readonly x: InputOperand;
  readonly w: WeightOperand;
}

/**
 * Runs the forward pass under the recipe of the region. If the layer does not fit the recipe, it throws before anything has
 * changed.
 */
export function quantizedForward(
  layer: LinearParts,
  input: LinearInput,
  options: QuantizedCall,
): LinearResult {
  const { call, region, required, tracked } = options;
  const { weight, quantization, parallel } = layer;
  const { dtype } = input;
  requireFit(layer, input, region.recipe);
  const value = input.quantize ? undefined : input.value();
  if (value instanceof QuantizedTensor && parallel?.gathers("input"))
    throw new ArgumentError(
      "linear: the input is quantized with the scale of one rank; under sequenceParallel the layer quantizes it for all ranks, so give it in f32, bf16 or f16",
    );
  const override = region.recipe.backwardOverride;
  const quantizesGradients = override === "none";
  quantization.beginForward(region, weight, blockFitCheck(layer, { ...input, inputValue: value }, tracked));
  if (!quantization.isPlain) return mixedForward(layer, input, value ?? input.value(), options);
  const x = new InputOperand(layer, input, value, required.wgrad ? WGRAD_SOURCES[override] : undefined);
  // the second run of a recomputed region quantizes a weight again, unless it was cached
  const columnwise = quantizesGradients && (isCached(call) ? tracked : required).dgrad;
  const w = new WeightOperand(layer, call, columnwise);
  const preparedCall = { ...options, layer, dtype, x, w };
  const out = fprop(preparedCall);
  if (required.dgrad) w.keepColumnwise();
  x.keepForBackward();
  if (!quantizesGradients) {
    const keepsRows = override === "dequantized" && required.dgrad && w.isTemporary;
    return {
      out,
      saved: [...x.saved, ...(keepsRows ? [w.local] : [])],
      backward: (grad) => overriddenBackward(preparedCall, grad),
    };
  }
  const gradQuantization = required.dgrad || required.wgrad ? quantization.forBackward() : undefined;
  const keepsWeight = w.isTemporary && required.dgrad;
  const savedValues = [...x.saved, ...(keepsWeight ? [w.local] : []), ...(gradQuantization?.saved ?? [])];
  if (!gradQuantization) {
    const backward: LinearResult["backward"] = (grad, _, { biasSource } = {}) => ({
      bias: biasGrad(layer, biasSource ?? grad, dtype),
    });
    return { out, saved: savedValues, backward };
  }
  return {
    out,
    saved: savedValues,
    quantizesGradInput: call.fp8Grad === true,
    gradQuantizer: () => gradQuantization.quantizer("gradOutput").setUsage(gradUsage(required)),
    backward: createBackward(preparedCall, gradQuantization),
  };
}

/** The form of the input that wgrad reads, by `backwardOverride`. */
const WGRAD_SOURCES: Readonly<Record<BackwardOverride, WgradSource>> = {
  none: "columnwise",
  highPrecision: "original",
  dequantized: "rowwise",
};

/** Computes the gradients in high precision, as the recipe's `backwardOverride` says. */
function overriddenBackward(
  { layer, required, region, dtype, x, w }: PreparedCall,
  grad: Gradient,
): LinearGradients {
  const weightForGrad = (): Tensor<WideDType> =>
    region.recipe.backwardOverride === "dequantized"
      ? dequantize(w.allRows(ROWWISE), dtype)
      : wideWeightIn(layer.weight, dtype);
  const call = { layer, required, dtype, datapath: plainDatapath(layer.weight.backend, dtype) };
  return wideGradients(call, grad, {
    input: () => x.wide(),
    weight: weightForGrad,
    overlaps: x.rows.isChunked,
  });
}

/** Computes the result of the layer. */
function fprop({ layer, call, region: { recipe }, dtype, x, w }: PreparedCall): Gradient {
  const { bias, quantization, parallel } = layer;
  const b = bias && wideOf("linear: the bias", transientValue(bias));
  // a row-parallel layer adds the bias after the sum over ranks
  const isBiasFused = b && parallel?.mode !== "row";
  const fusedBias = isBiasFused ? { bias: castTo(b, dtype === "f32" ? "bf16" : dtype) } : {};
  const weight = w.allRows(ROWWISE);
  const result = resultSpec(parallel?.fullInputShape(x.shape) ?? x.shape, weight.shape[0] as number, dtype);
  const chunks = parallel?.chunksOf("input", x.rows.local, result) ?? 1;
  const rows = x.rows.gatherInChunks(chunks, ROWWISE);
  const outputQuantizer = call.fp8Output ? quantization.copies("output").rowwise : undefined;
  const out = quantizedProduct(outputQuantizer, dtype, (outDtype) => {
    const product = (xRows: GemmInput, target?: Tensor<WideDType>): Tensor<WideDType> => {
      const destination = target ? { out: target } : { outDtype };
      const options = { ...destination, ...recipe.fprop, ...fusedBias };
      return wideOf("linear", gemm({ x: xRows, w: weight, ...options }).out);
    };
    return parallel?.output(rows, product, { ...result, dtype: outDtype }, b) ?? product(x.rows.local);
  });
  if (isChunked(rows)) x.rows.releaseChunks(ROWWISE);
  else if (rows !== x.rows.local) rows.dispose();
  if (weight !== w.local) weight.dispose();
  return out;
}

/** Returns the backward pass of a call. `quantization` quantizes the gradient of the result. */
function createBackward(
  preparedCall: PreparedCall,
  quantization: BackwardQuantization,
): LinearResult["backward"] {
  const { layer, region, required, dtype, x } = preparedCall;
  const { weight, fuseWgradAccumulation, parallel } = layer;
  const { recipe, group } = region;
  const products = { dtype, weight, fuseWgradAccumulation, dgrad: recipe.dgrad, wgrad: recipe.wgrad };
  return (grad, pass, traits = {}) => {
    quantization.registerUpdates(pass, amaxGroup(parallel?.group, group));
    const dy = new GradientOperand(layer, grad, {
      quantizerOf: (gathered) => quantization.quantizer("gradOutput", gathered),
      usage: gradUsage(required),
      isFused: !traits.biasSource && recipe.kind !== "custom",
      biasGrad: () => biasGrad(layer, traits.biasSource ?? grad, dtype),
      traits,
      dtype,
    });
    // if the forward pass overlapped products and gathers, the rows of the input are gathered while dgrad is computed
    const overlaps = x.rows.isChunked && required.wgrad && required.dgrad;
    const gatheredInput = overlaps ? x.columnwise(true) : undefined;
    const dx = required.dgrad ? dgrad(preparedCall, dy, quantization, products) : undefined;
    const columnwiseGrad = dy.columnwise();
    const columnwiseInput = gatheredInput ?? (required.wgrad ? x.columnwise(false) : undefined);
    const dw = columnwiseInput && columnwiseGrad && wgradOf(columnwiseInput.copy, columnwiseGrad, products);
    dy.free();
    columnwiseInput?.free();
    return { x: dx, weight: dw, bias: dy.bias };
  };
}

/** Computes the gradient of the input. */
function dgrad(
  { layer: { weight, parallel }, call, dtype, w }: PreparedCall,
  dy: GradientOperand,
  quantization: BackwardQuantization,
  products: Products,
): Gradient {
  const columnwiseWeight = w.allRows(COLUMNWISE);
  const shape = parallel?.fullGradOutputShape(dy.shape) ?? dy.shape;
  const result = resultSpec(shape, weight.shape[1] as number, dtype);
  const rows = dy.gatherInChunks(parallel?.chunksOf("gradOutput", dy.local, result) ?? 1);
  const inputGradQuantizer = call.fp8Grad ? quantization.copies("gradInput").rowwise : undefined;
  const dx = quantizedProduct(inputGradQuantizer, dtype, (outDtype) => {
    const product = (dyRows: Gradient, target?: Tensor<WideDType>): Tensor<WideDType> =>
      dgradOf(columnwiseWeight, dyRows, { ...products, dtype: outDtype }, target);
    return parallel?.gradInput(rows, product, { ...result, dtype: outDtype }) ?? product(dy.local);
  });
  if (columnwiseWeight !== w.local) columnwiseWeight.dispose();
  return dx;
}

/** The copies of the result's gradient that the products of the backward pass read. */
const gradUsage = ({ dgrad, wgrad }: RequiredGradients) => ({ rowwise: dgrad, columnwise: wgrad });

/** Returns the gradient of the bias, the sums of the columns of `grad`. Returns undefined if the bias needs none. */
function biasGrad(layer: LinearParts, grad: Gradient, dtype: WideDType): Tensor<WideDType> | undefined {
  return layer.bias?.requiresGrad ? biasGradOf(layer, wideGrad(grad, dtype)) : undefined;
}
