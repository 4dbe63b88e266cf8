/** The forward and backward pass of a linear layer under a recipe (numerics.md §6.1). */
import type { Region } from "../autocast/autocast.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { hasGivenScale } from "../formats/block.js";
import { castTo } from "../ops/cast/cast.js";
import { gemm } from "../ops/gemm/gemm.js";
import type { GemmInput } from "../ops/gemm/operand.js";
import { requireTransformable } from "../ops/quantize/quantize.js";
import { onSideStream } from "../ops/side-stream.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { isDelayed } from "../recipes/is-delayed.js";
import type { Recipe } from "../recipes/recipe.js";
import { borrowed } from "../tape/uses.js";
import { type Gradient, type Value, wideOf } from "../tape/value.js";
import { requireQuantizable } from "../tensor/geometry.js";
import { QuantizedTensor, type Usage } from "../tensor/quantized.js";
import { asMatrix, type Shape, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { LinearCall, LinearInput, LinearParts, LinearResult, WantedGradients } from "./linear-parts.js";
import { biasGradOf, dgradOf, wgradOf, wideGrad } from "./linear-products.js";
import { areWholeBlocks, type QuantizerOf, RowOperand } from "./parallel/row-operand.js";
import { isArriving, madeOf } from "./parallel/rows.js";
import { amaxGroup } from "./parallel/tensor-parallel.js";
import { type Fits, isCached } from "./quantization.js";
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

/**
 * Runs the forward pass under the recipe of `region`. If the layer does not fit the recipe, it throws before anything has
 * changed.
 */
export function quantizedForward(
  parts: LinearParts,
  input: LinearInput,
  { call, region, wanted, tracked }: QuantizedCall,
): LinearResult {
  const { weight, bias, quantization, fuseWgradAccumulation, parallel } = parts;
  const { recipe, group } = region;
  const { dtype, backend } = input;
  requireFit(parts, input, recipe);
  const given = input.quantize ? undefined : input.value();
  if (given instanceof QuantizedTensor && parallel?.gathers("input"))
    throw new ArgumentError(
      "linear: the input is quantized, with a scale of this rank alone; under sequenceParallel the layer quantizes it for all ranks, so give it wide",
    );
  quantization.enter(region, weight, blocksFit(parts, { ...input, given }, tracked));
  // The quantizers are read here and not in the backward pass, because a call in between may replace them.
  const ownQuantizer = quantization.quantizer("input");
  const wholeQuantizer = parallel?.gathers("input") && quantization.quantizer("input", true);
  // an input whose rows are gathered before quantization is quantized only once, so its codes are kept
  const regathers = wholeQuantizer !== undefined && !areWholeBlocks(ownQuantizer.spec, input.shape);
  const keepsOriginal =
    wanted.wgrad && parts.saveOriginalInput && !(given instanceof QuantizedTensor) && !regathers;
  const keepsX = wanted.wgrad && !keepsOriginal;
  const quantizerOf = (whole: boolean): Quantizer => (whole && wholeQuantizer) || ownQuantizer;
  const inputBy = (usage: Usage): RowOperand =>
    new RowOperand(parallel?.gathers("input"), quantizerOf, usage, {
      shape: input.shape,
      quantize: (quantizer) => quantizedInput(quantizer, { given, quantize: input.quantize }),
      wide: () => wideOf("linear: the input", given ?? input.value()),
    });
  const x = inputBy({ rowwise: true, columnwise: keepsX });
  const ownsX = x.own !== given;
  if (input.makes && !keepsOriginal && ownsX) given?.dispose();
  // the second run of a recomputed region quantizes a weight again, unless it was cached
  const weights = new WeightOperand(parts, call, (isCached(call) ? tracked : wanted).dgrad);
  const b = bias && wideOf("linear: the bias", borrowed(bias));
  const fusedBias = b && parallel?.mode !== "row";
  const added = fusedBias ? { bias: castTo(b, dtype === "f32" ? "bf16" : dtype) } : {};
  const w = weights.copies(ROWWISE);
  const whole = parallel?.wholeInput(input.shape) ?? input.shape;
  const result = madeOf(whole, w.shape[0] as number, dtype);
  const chunks = parallel?.chunksOf("input", x.own, result) ?? 1;
  const rows = x.arrivals(chunks, ROWWISE);
  const out = outputOf(call.fp8Output ? quantization.quantizer("output") : undefined, dtype, (outDtype) => {
    const product = (of: GemmInput, into?: Tensor<WideDType>): Tensor<WideDType> => {
      const target = into ? { out: into } : { outDtype };
      return wideOf("linear", gemm({ x: of, w, ...target, ...recipe.fprop, ...added }).out);
    };
    return parallel?.output(rows, product, { ...result, dtype: outDtype }, b) ?? product(x.own);
  });
  const isCut = isArriving(rows);
  if (isCut) x.arrived(ROWWISE);
  else if (rows !== x.own) rows.dispose();
  if (w !== weights.own) w.dispose();
  if (wanted.dgrad) weights.keepColumnwise();
  const backwardBy = wanted.dgrad || wanted.wgrad ? quantization.forBackward() : undefined;
  const gradUsage = { rowwise: wanted.dgrad, columnwise: wanted.wgrad };
  const gradQuantizer =
    backwardBy && ((): Quantizer => backwardBy.quantizer("gradOutput").setUsage(gradUsage));
  if (ownsX && keepsX) x.keepColumnwise();
  else if (ownsX) x.own.dispose();
  return {
    out,
    saved: [
      ...(ownsX && keepsX ? [x.own] : []),
      ...(weights.made && wanted.dgrad ? [weights.own] : []),
      ...(given && keepsOriginal && input.makes ? [given] : []),
      ...(backwardBy?.saved ?? []),
    ],
    ...(gradQuantizer ? { gradQuantizer } : {}),
    backward: (grad, pass, { summed, temporary } = {}) => {
      const biasOf = (): Tensor<WideDType> | undefined =>
        bias?.requiresGrad ? biasGradOf(parts, summed ?? wideGrad(grad, dtype)) : undefined;
      if (!backwardBy) return { bias: biasOf() };
      backwardBy.enter(pass, amaxGroup(parallel?.group, group));
      const { operand, bias: dbias } = quantizedGradient(parts, grad, {
        quantizerOf: (whole) => backwardBy.quantizer("gradOutput", whole),
        usage: gradUsage,
        fuses: !summed && recipe.kind !== "custom",
        biasOf,
        dtype,
      });
      if (temporary) summed?.dispose();
      if (temporary && operand.own !== grad) grad.dispose();
      const ownsGrad = temporary || operand.own !== grad;
      const { dgrad, wgrad } = recipe;
      const products = { dtype, weight, fuseWgradAccumulation, dgrad, wgrad };
      const inputRows = (): RowOperand => (keepsOriginal ? inputBy(COLUMNWISE) : x);
      const isAhead = isCut && wanted.wgrad && wanted.dgrad;
      const early = isAhead ? inputRows() : undefined;
      // the rows of the input are gathered beside dgrad
      const gathered = early && onSideStream(backend, () => early.copies(COLUMNWISE));
      const columnsOfW = wanted.dgrad ? weights.copies(COLUMNWISE) : undefined;
      const shape = parallel?.wholeGradOutput(grad.shape) ?? grad.shape;
      const made = madeOf(shape, weight.shape[1] as number, dtype);
      const gradChunks = (columnsOfW && parallel?.chunksOf("gradOutput", operand.own, made)) ?? 1;
      const arriving = operand.arrivals(gradChunks, gradUsage);
      const dx =
        columnsOfW &&
        outputOf(call.fp8Grad ? backwardBy.quantizer("gradInput") : undefined, dtype, (outDtype) => {
          const product = (of: Gradient, into?: Tensor<WideDType>) =>
            dgradOf(columnsOfW, of, { ...products, dtype: outDtype }, into);
          const out = { ...made, dtype: outDtype };
          return parallel?.gradInput(arriving, product, out) ?? product(operand.own);
        });
      if (columnsOfW && columnsOfW !== weights.own) columnsOfW.dispose();
      const dy = isArriving(arriving) ? operand.arrived(gradUsage) : arriving;
      if (dy !== operand.own) operand.own.dispose();
      // the gradient of the weight reads the columnwise copy
      if (ownsGrad) dy?.updateUsage({ rowwise: false });
      const from = early ?? (wanted.wgrad ? inputRows() : undefined);
      const columns = gathered ?? from?.copies(COLUMNWISE);
      const dw = columns && dy && wgradOf(columns, dy, products);
      if (ownsGrad) dy?.dispose();
      if (columns && columns !== x.own) columns.dispose();
      if (keepsOriginal) from?.own.dispose();
      return { x: dx, weight: dw, bias: dbias };
    },
  };
}

const ROWWISE: Usage = { rowwise: true, columnwise: false };
const COLUMNWISE: Usage = { rowwise: false, columnwise: true };

/** The quantization of a gradient. */
interface GradientQuantization {
  readonly quantizerOf: QuantizerOf;
  readonly usage: Usage;
  /** Whether the bias gradient may be summed in the pass that quantizes. */
  readonly fuses: boolean;
  /** Sums the bias gradient in a separate pass. */
  readonly biasOf: () => Tensor<WideDType> | undefined;
  readonly dtype: WideDType;
}

/** Returns the gradient of the result as an operand of the products, and the gradient of the bias. */
function quantizedGradient(
  { bias, parallel }: LinearParts,
  grad: Gradient,
  { quantizerOf, usage, fuses, biasOf, dtype }: GradientQuantization,
): { readonly operand: RowOperand; readonly bias: Tensor<WideDType> | undefined } {
  let sums: Tensor<WideDType> | undefined;
  const quantize = (quantizer: Quantizer): QuantizedTensor => {
    if (!fuses || !bias?.requiresGrad || grad instanceof QuantizedTensor) return quantized(quantizer, grad);
    const type = bias.dtype;
    const { out, biasGrad } = quantizer.biasGradQuantize(grad, parallel?.biasSumType(type) ?? type);
    sums = parallel?.gradBias(biasGrad, type) ?? biasGrad;
    return out;
  };
  const from = { shape: grad.shape, quantize, wide: () => wideGrad(grad, dtype) };
  const operand = new RowOperand(parallel?.gathers("gradOutput"), quantizerOf, usage, from);
  return { operand, bias: sums ?? biasOf() };
}

/** Throws if the weight or an input of this shape does not fit the recipe. */
export function requireFit(
  { weight, saveOriginalInput, parallel }: LinearParts,
  { shape }: Pick<LinearInput, "shape">,
  recipe: Recipe,
): void {
  if (parallel?.sequence && isDelayed(recipe) && !recipe.reduceAmax)
    throw new ArgumentError(
      "linear: sequenceParallel gathers codes, which need one scale on all ranks; leave reduceAmax of DelayedScaling on",
    );
  if (saveOriginalInput && isDelayed(recipe))
    throw new ArgumentError(
      "linear: saveOriginalInput does not go with DelayedScaling, which would record the input's amax twice; drop one",
    );
  requireAligned("input", parallel?.wholeInput(shape) ?? shape);
  requireAligned("weight", weight.shape);
}

/** Throws unless the last dimension is aligned as TransformerEngine requires it of operands of low-precision products. */
function requireAligned(name: string, shape: Shape): void {
  if (asMatrix(shape)[1] % 16 === 0) return;
  throw new ShapeError(
    `linear: the ${name} is [${shape}]; under a recipe the last dimension must be a multiple of 16; pad it`,
  );
}

/**
 * Returns a check to run with the recipe's quantizers. It throws unless the quantization blocks divide the columns of the input,
 * of the weight and, if a gradient is wanted, of the gradient of the result, whose columns are the rows of the weight; tensors
 * that are already quantized are not checked. If wgrad is needed, it also throws unless the Hadamard transform accepts the dtype
 * of the input.
 */
export function blocksFit(
  { weight, parallel }: Pick<LinearParts, "weight" | "parallel">,
  { shape, dtype, given }: Pick<LinearInput, "shape" | "dtype"> & { readonly given?: Value | undefined },
  { wgrad, dgrad }: WantedGradients,
): Fits {
  return (quantizer, gradient) => {
    if (!(given instanceof QuantizedTensor)) {
      const by = quantizer("input");
      requireBlocks("input", parallel?.wholeInput(shape) ?? shape, by);
      if (wgrad) requireTransformable("linear", by.spec, dtype);
    }
    if (!(weight.own instanceof QuantizedTensor)) requireBlocks("weight", weight.shape, quantizer("weight"));
    if (gradient && (wgrad || dgrad)) {
      const user = `linear: the weight is [${weight.shape}], and its rows are the columns of the gradient of the result`;
      requireQuantizable(user, gradient.spec, weight.shape[0] as number);
    }
  };
}

/** Throws what `quantize` would throw, with a message that names the tensor of the layer. */
function requireBlocks(name: string, shape: Shape, { spec }: Quantizer): void {
  requireQuantizable(`linear: the ${name} is [${shape}]`, spec, asMatrix(shape)[1]);
}

function quantizedInput(
  quantizer: Quantizer,
  { given, quantize }: { readonly given: Value | undefined; readonly quantize: LinearInput["quantize"] },
): QuantizedTensor {
  if (given instanceof QuantizedTensor) return quantized(quantizer, given);
  return quantize ? quantize(quantizer) : quantized(quantizer, wideOf("linear: the input", given as Tensor));
}

/**
 * Returns `x` quantized as the usage of `quantizer` says. If `x` is already quantized, it can only gain the columnwise data,
 * derived from its rowwise data.
 */
function quantized(quantizer: Quantizer, x: Gradient): QuantizedTensor {
  if (!(x instanceof QuantizedTensor)) return quantizer.quantize(x);
  return quantizer.usage.columnwise ? x.updateUsage({ columnwise: true }) : x;
}

/**
 * Returns a product, quantized if a quantizer is given. Delayed scaling quantizes the f32 product, as a GEMM with FP8 output
 * does; other recipes quantize the product rounded to `dtype` (numerics.md §6.3).
 */
function outputOf(
  quantizer: Quantizer | undefined,
  dtype: WideDType,
  product: (dtype: WideDType) => Tensor<WideDType>,
): Tensor<WideDType> | QuantizedTensor {
  if (!quantizer) return product(dtype);
  quantizer.setUsage({ rowwise: true, columnwise: false });
  const wide = product(hasGivenScale(quantizer.spec) ? "f32" : dtype);
  const target = quantizer.makeEmpty(wide.backend, wide.shape, dtype);
  quantizer.updateQuantized(wide, target);
  wide.dispose();
  return target;
}
