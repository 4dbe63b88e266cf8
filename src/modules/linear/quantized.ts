/** The forward and backward pass of a linear layer under a recipe (numerics.md §6.1). */
import type { Region } from "../../autocast.js";
import { ArgumentError } from "../../errors.js";
import { hasGivenScale } from "../../formats/block.js";
import { castTo } from "../../ops/cast/cast.js";
import { gemm } from "../../ops/gemm/gemm.js";
import type { GemmInput } from "../../ops/gemm/operand.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import { borrowed } from "../../tape/uses.js";
import { type Gradient, wideOf } from "../../tape/value.js";
import { COLUMNWISE, QuantizedTensor, ROWWISE } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { isCached } from "../quantization.js";
import type { BackwardQuantization } from "../recipe-in-force.js";
import { isArriving, madeOf } from "../tensor-parallel/rows.js";
import { amaxGroup } from "../tensor-parallel/tensor-parallel.js";
import { blocksFit, requireFit } from "./fit.js";
import { GradientOperand } from "./gradient-operand.js";
import { InputOperand } from "./input-operand.js";
import type { LinearCall, LinearInput, LinearParts, LinearResult, WantedGradients } from "./parts.js";
import { biasGradOf, dgradOf, type Products, wgradOf, wideGrad } from "./products.js";
import { WeightOperand } from "./weight-operand.js";

/** A call of a linear layer in an enabled autocast region. */
interface QuantizedCall {
  readonly call: LinearCall;
  readonly region: Region;
  readonly wanted: WantedGradients;
  /**
   * Equal to `wanted`, except in the first run of a recomputed region: that run keeps nothing (`wanted` is false) but its
   * second run will need these gradients.
   */
  readonly tracked: WantedGradients;
}

/** A call whose operands are quantized. */
interface PreparedCall extends QuantizedCall {
  readonly parts: LinearParts;
  /** The activation type. */
  readonly dtype: WideDType;
  readonly x: InputOperand;
  readonly w: WeightOperand;
}

/**
 * Runs the forward pass under the recipe of the region. If the layer does not fit the recipe, it throws before anything has
 * changed.
 */
export function quantizedForward(parts: LinearParts, input: LinearInput, how: QuantizedCall): LinearResult {
  const { call, region, wanted, tracked } = how;
  const { weight, quantization, parallel } = parts;
  const { dtype } = input;
  requireFit(parts, input, region.recipe);
  const given = input.quantize ? undefined : input.value();
  if (given instanceof QuantizedTensor && parallel?.gathers("input"))
    throw new ArgumentError(
      "linear: the input is quantized, with a scale of this rank alone; under sequenceParallel the layer quantizes it for all ranks, so give it wide",
    );
  quantization.enter(region, weight, blocksFit(parts, { ...input, given }, tracked));
  const x = new InputOperand(parts, input, given, wanted.wgrad);
  // the second run of a recomputed region quantizes a weight again, unless it was cached
  const w = new WeightOperand(parts, call, (isCached(call) ? tracked : wanted).dgrad);
  const prepared = { ...how, parts, dtype, x, w };
  const out = fprop(prepared);
  if (wanted.dgrad) w.keepColumnwise();
  const by = wanted.dgrad || wanted.wgrad ? quantization.forBackward() : undefined;
  x.keepForBackward();
  const saved = [...x.saved, ...(w.made && wanted.dgrad ? [w.own] : []), ...(by?.saved ?? [])];
  if (!by) {
    const backward: LinearResult["backward"] = (grad, _, { summed } = {}) => ({
      bias: biasGrad(parts, summed ?? grad, dtype),
    });
    return { out, saved, backward };
  }
  return {
    out,
    saved,
    gradQuantizer: () => by.quantizer("gradOutput").setUsage(gradUsage(wanted)),
    backward: backwardOf(prepared, by),
  };
}

/** Computes the result of the layer. */
function fprop({ parts, call, region: { recipe }, dtype, x, w }: PreparedCall): Gradient {
  const { bias, quantization, parallel } = parts;
  const b = bias && wideOf("linear: the bias", borrowed(bias));
  const fusedBias = b && parallel?.mode !== "row";
  const added = fusedBias ? { bias: castTo(b, dtype === "f32" ? "bf16" : dtype) } : {};
  const rowsOfW = w.copies(ROWWISE);
  const made = madeOf(parallel?.wholeInput(x.shape) ?? x.shape, rowsOfW.shape[0] as number, dtype);
  const rows = x.rows.arrivals(parallel?.chunksOf("input", x.rows.own, made) ?? 1, ROWWISE);
  const out = outputOf(call.fp8Output ? quantization.quantizer("output") : undefined, dtype, (outDtype) => {
    const product = (of: GemmInput, into?: Tensor<WideDType>): Tensor<WideDType> => {
      const target = into ? { out: into } : { outDtype };
      return wideOf("linear", gemm({ x: of, w: rowsOfW, ...target, ...recipe.fprop, ...added }).out);
    };
    return parallel?.output(rows, product, { ...made, dtype: outDtype }, b) ?? product(x.rows.own);
  });
  if (isArriving(rows)) x.rows.arrived(ROWWISE);
  else if (rows !== x.rows.own) rows.dispose();
  if (rowsOfW !== w.own) rowsOfW.dispose();
  return out;
}

/** The backward pass of a call. `by` quantizes the gradient of the result. */
function backwardOf(prepared: PreparedCall, by: BackwardQuantization): LinearResult["backward"] {
  const { parts, region, wanted, dtype, x } = prepared;
  const { weight, fuseWgradAccumulation, parallel } = parts;
  const { recipe, group } = region;
  const products = { dtype, weight, fuseWgradAccumulation, dgrad: recipe.dgrad, wgrad: recipe.wgrad };
  return (grad, pass, given = {}) => {
    by.enter(pass, amaxGroup(parallel?.group, group));
    const dy = new GradientOperand(parts, grad, {
      quantizerOf: (whole) => by.quantizer("gradOutput", whole),
      usage: gradUsage(wanted),
      isFused: !given.summed && recipe.kind !== "custom",
      biasGrad: () => biasGrad(parts, given.summed ?? grad, dtype),
      given,
      dtype,
    });
    // where forward products ran beside exchanges, the rows of the input are gathered beside dgrad
    const ahead = x.rows.isCut && wanted.wgrad && wanted.dgrad ? x.columns(true) : undefined;
    const dx = wanted.dgrad ? dgrad(prepared, dy, by, products) : undefined;
    const columnsOfDy = dy.columns();
    const columnsOfX = ahead ?? (wanted.wgrad ? x.columns(false) : undefined);
    const dw = columnsOfX && columnsOfDy && wgradOf(columnsOfX.copy, columnsOfDy, products);
    dy.free();
    columnsOfX?.free();
    return { x: dx, weight: dw, bias: dy.bias };
  };
}

/** Computes the gradient of the input. */
function dgrad(
  { parts: { weight, parallel }, call, dtype, w }: PreparedCall,
  dy: GradientOperand,
  by: BackwardQuantization,
  products: Products,
): Gradient {
  const columnsOfW = w.copies(COLUMNWISE);
  const shape = parallel?.wholeGradOutput(dy.shape) ?? dy.shape;
  const made = madeOf(shape, weight.shape[1] as number, dtype);
  const rows = dy.arrivals(parallel?.chunksOf("gradOutput", dy.own, made) ?? 1);
  const dx = outputOf(call.fp8Grad ? by.quantizer("gradInput") : undefined, dtype, (outDtype) => {
    const product = (of: Gradient, into?: Tensor<WideDType>): Tensor<WideDType> =>
      dgradOf(columnsOfW, of, { ...products, dtype: outDtype }, into);
    return parallel?.gradInput(rows, product, { ...made, dtype: outDtype }) ?? product(dy.own);
  });
  if (columnsOfW !== w.own) columnsOfW.dispose();
  return dx;
}

/** The copies of the result's gradient that the products of the backward pass read. */
const gradUsage = ({ dgrad, wgrad }: WantedGradients) => ({ rowwise: dgrad, columnwise: wgrad });

/** Sums the columns of the result's gradient, if the bias wants that. */
function biasGrad(parts: LinearParts, grad: Gradient, dtype: WideDType): Tensor<WideDType> | undefined {
  return parts.bias?.requiresGrad ? biasGradOf(parts, wideGrad(grad, dtype)) : undefined;
}

/**
 * Returns a product, quantized if a quantizer is given. Delayed scaling quantizes the f32 product, as a GEMM with FP8 output
 * does; other recipes quantize the product rounded to `dtype` (numerics.md §6.3).
 */
function outputOf(
  quantizer: Quantizer | undefined,
  dtype: WideDType,
  product: (dtype: WideDType) => Tensor<WideDType>,
): Gradient {
  if (!quantizer) return product(dtype);
  quantizer.setUsage(ROWWISE);
  const wide = product(hasGivenScale(quantizer.spec) ? "f32" : dtype);
  const target = quantizer.makeEmpty(wide.backend, wide.shape, dtype);
  quantizer.updateQuantized(wide, target);
  wide.dispose();
  return target;
}
