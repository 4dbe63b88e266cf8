/** The forward and backward pass of a linear layer under a recipe (numerics.md §6.1). */
import type { Region } from "../autocast/autocast.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { hasGivenScale } from "../formats/block.js";
import { castTo } from "../ops/cast/cast.js";
import { gemm } from "../ops/gemm/gemm.js";
import { requireTransformable } from "../ops/quantize/quantize.js";
import { columnSum } from "../ops/rows/norm.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { isDelayed } from "../recipes/is-delayed.js";
import type { Recipe } from "../recipes/recipe.js";
import { type Gradient, type Value, wideOf } from "../tape/value.js";
import { requireQuantizable } from "../tensor/geometry.js";
import { QuantizedTensor, type Usage } from "../tensor/quantized.js";
import { asMatrix, type Shape, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { LinearCall, LinearInput, LinearParts, LinearResult, WantedGradients } from "./linear-parts.js";
import { dgradOf, wgradOf, wideGrad } from "./linear-products.js";
import type { Parameter } from "./parameter.js";
import type { Fits } from "./quantization.js";

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
  const { weight, bias, quantization, fuseWgradAccumulation } = parts;
  const { recipe, group } = region;
  const { dtype } = input;
  requireFit(parts, input, recipe);
  const given = input.quantize ? undefined : input.value();
  quantization.enter(region, weight.value, blocksFit(weight, { ...input, given }, tracked.wgrad));
  const keepsOriginal = wanted.wgrad && parts.saveOriginalInput && !(given instanceof QuantizedTensor);
  const keepsX = wanted.wgrad && !keepsOriginal;
  const inputQuantizer = quantization.quantizer("input");
  const inputBy = (usage: Usage): QuantizedTensor =>
    quantizedInput(inputQuantizer, { given, quantize: input.quantize }, usage);
  const x = inputBy({ rowwise: true, columnwise: keepsX });
  const w = quantizedWeight(parts, call, tracked.dgrad);
  const added = bias ? { bias: castTo(bias.tensor, dtype === "f32" ? "bf16" : dtype) } : {};
  const out = outputOf(call.fp8Output ? quantization.quantizer("output") : undefined, dtype, (outDtype) =>
    wideOf("linear", gemm({ x, w, outDtype, ...recipe.fprop, ...added }).out),
  );
  const backwardBy = wanted.dgrad || wanted.wgrad ? quantization.forBackward() : undefined;
  const gradUsage = { rowwise: wanted.dgrad, columnwise: wanted.wgrad };
  const gradQuantizer =
    backwardBy && ((): Quantizer => backwardBy.quantizer("gradOutput").setUsage(gradUsage));
  const ownsX = x !== given;
  if (ownsX && keepsX) x.updateUsage({ rowwise: false });
  else if (ownsX) x.dispose();
  return {
    out,
    saved: [
      ...(ownsX && keepsX ? [x] : []),
      ...(w !== weight.value && wanted.dgrad ? [w] : []),
      ...(given && keepsOriginal && input.makes ? [given] : []),
      ...(backwardBy?.saved ?? []),
    ],
    ...(gradQuantizer ? { gradQuantizer } : {}),
    backward: (grad, pass, summed) => {
      const sumsBias = bias?.requiresGrad === true;
      const biasOf = (): Tensor<WideDType> | undefined =>
        sumsBias ? columnSum(summed ?? wideGrad(grad, dtype), bias.tensor.dtype) : undefined;
      if (!backwardBy || !gradQuantizer) return { bias: biasOf() };
      backwardBy.enter(pass, group);
      const fuses = sumsBias && !summed && !(grad instanceof QuantizedTensor) && recipe.kind !== "custom";
      const { out: dy, biasGrad: dbias } = fuses
        ? gradQuantizer().biasGradQuantize(grad, bias.tensor.dtype)
        : { biasGrad: biasOf(), out: quantized(gradQuantizer(), grad) };
      const { dgrad, wgrad } = recipe;
      const products = { dtype, weight, fuseWgradAccumulation, dgrad, wgrad };
      const dx = wanted.dgrad
        ? outputOf(call.fp8Grad ? backwardBy.quantizer("gradInput") : undefined, dtype, (outDtype) =>
            dgradOf(w, dy, { ...products, dtype: outDtype }),
          )
        : undefined;
      const columns = keepsOriginal ? inputBy({ rowwise: false, columnwise: true }) : x;
      const dw = wanted.wgrad ? wgradOf(columns, dy, products) : undefined;
      if (dy !== grad) dy.dispose();
      if (columns !== x) columns.dispose();
      return { x: dx, weight: dw, bias: dbias };
    },
  };
}

/** Throws if the weight or an input of this shape does not fit the recipe. */
export function requireFit(
  { weight, saveOriginalInput }: LinearParts,
  { shape }: Pick<LinearInput, "shape">,
  recipe: Recipe,
): void {
  if (saveOriginalInput && isDelayed(recipe))
    throw new ArgumentError(
      "linear: saveOriginalInput does not go with DelayedScaling, which would record the input's amax twice; drop one",
    );
  requireAligned("input", shape);
  requireAligned("weight", weight.shape);
}

/** Throws unless the shape has the alignment that TransformerEngine requires of operands of low-precision products. */
function requireAligned(name: string, shape: Shape): void {
  const [rows, columns] = asMatrix(shape);
  if (rows % 8 === 0 && columns % 16 === 0) return;
  throw new ShapeError(
    `linear: the ${name} is [${shape}]; under a recipe the last dimension must be a multiple of 16 and the product of the others of 8; pad it`,
  );
}

/**
 * Returns a check to run with the recipe's quantizers. It throws unless the quantization blocks divide the input and the
 * weight; tensors that are already quantized are not checked. If wgrad is needed, it also throws unless the Hadamard transform
 * accepts the dtype of the input.
 */
export function blocksFit(
  weight: Parameter,
  { shape, dtype, given }: Pick<LinearInput, "shape" | "dtype"> & { readonly given?: Value | undefined },
  wgrad: boolean,
): Fits {
  return (quantizer) => {
    if (!(given instanceof QuantizedTensor)) {
      const by = quantizer("input");
      requireBlocks("input", shape, by);
      if (wgrad) requireTransformable("linear", by.spec, dtype);
    }
    if (!(weight.value instanceof QuantizedTensor))
      requireBlocks("weight", weight.shape, quantizer("weight"));
  };
}

/** Throws what `quantize` would throw, with a message that names the tensor of the layer. */
function requireBlocks(name: string, shape: Shape, { spec }: Quantizer): void {
  const [rows, columns] = asMatrix(shape);
  requireQuantizable(`linear: the ${name} is [${shape}]`, spec, rows, columns);
}

function quantizedInput(
  quantizer: Quantizer,
  { given, quantize }: { readonly given: Value | undefined; readonly quantize: LinearInput["quantize"] },
  usage: Usage,
): QuantizedTensor {
  quantizer.setUsage(usage);
  if (given instanceof QuantizedTensor) return quantized(quantizer, given);
  return quantize ? quantize(quantizer) : quantized(quantizer, wideOf("linear: the input", given as Tensor));
}

function quantizedWeight(
  { weight, quantization }: LinearParts,
  call: LinearCall,
  columnwise: boolean,
): QuantizedTensor {
  const { value } = weight;
  return value instanceof QuantizedTensor ? value : quantization.weight(value, { ...call, columnwise });
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
