/** Checks that a linear layer and its input fit a recipe, before anything is quantized. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { requireSameTransform } from "../../ops/gemm/transform.js";
import { requireTransformable } from "../../ops/quantize/quantize.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import { isDelayed } from "../../recipes/is-delayed.js";
import type { Recipe } from "../../recipes/recipe.js";
import type { Value } from "../../tape/value.js";
import { requireQuantizable } from "../../tensor/geometry.js";
import { type Direction, QuantizedTensor, type QuantizeSpec } from "../../tensor/quantized.js";
import { asMatrix, type Shape } from "../../tensor/shape.js";
import { transformOf } from "../../tensor/spec.js";
import type { Fits } from "../quantization.js";
import type { LinearInput, LinearParts, WantedGradients } from "./parts.js";

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
 * of the input. It throws if the two operands of dgrad or of wgrad pass through different Hadamard transforms, which also holds
 * for tensors that are already quantized.
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
      const specOf = (value: unknown, role: "input" | "weight"): QuantizeSpec =>
        value instanceof QuantizedTensor ? value.spec : quantizer(role).spec;
      const ofGradient = (direction: Direction) =>
        ["the gradient of the result", transformOf(gradient.spec, direction)] as const;
      const columnsOf = (name: string, spec: QuantizeSpec) =>
        [`the ${name}`, transformOf(spec, "columnwise")] as const;
      if (dgrad)
        requireSameTransform(
          "linear",
          columnsOf("weight", specOf(weight.own, "weight")),
          ofGradient("rowwise"),
        );
      if (wgrad)
        requireSameTransform("linear", columnsOf("input", specOf(given, "input")), ofGradient("columnwise"));
    }
  };
}

/** Throws what `quantize` would throw, with a message that names the tensor of the layer. */
function requireBlocks(name: string, shape: Shape, { spec }: Quantizer): void {
  requireQuantizable(`linear: the ${name} is [${shape}]`, spec, asMatrix(shape)[1]);
}
