/** Checks that a linear layer and its input fit a recipe, before anything is quantized. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { underivable } from "../../formats/block.js";
import { requireSameTransform } from "../../ops/gemm/transform.js";
import { requireTransformable } from "../../ops/quantize/quantize.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import { isDelayed } from "../../recipes/is-delayed.js";
import type { Recipe } from "../../recipes/recipe.js";
import { codesQuantizer, type RoleCopies } from "../../recipes/role.js";
import type { Product } from "../../recipes/table.js";
import type { Value } from "../../tape/value.js";
import { requireQuantizable } from "../../tensor/geometry.js";
import { type Direction, QuantizedTensor } from "../../tensor/quantized.js";
import { asMatrix, type Shape } from "../../tensor/shape.js";
import { transformOf } from "../../tensor/spec.js";
import type { LinearInput, LinearParts, RequiredGradients } from "./parts.js";
import type { FitCheck } from "./quantizer-checks.js";

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
  if (saveOriginalInput && isDelayed(recipe) && recipe.backwardOverride === "none")
    throw new ArgumentError(
      "linear: saveOriginalInput under DelayedScaling would record the input's amax twice; leave out saveOriginalInput or use another recipe",
    );
  requireAligned("input", parallel?.fullInputShape(shape) ?? shape);
  requireAligned("weight", weight.shape);
}

/** Throws unless the last dimension is aligned as TransformerEngine requires it of operands of low-precision products. */
function requireAligned(name: string, shape: Shape): void {
  if (asMatrix(shape)[1] % 16 === 0) return;
  throw new ShapeError(
    `linear: the ${name} is [${shape}]; under a recipe the last dimension must be a multiple of 16; pad it`,
  );
}

/** The shape and dtype of an input, and the input itself unless it is computed and quantized in one pass. */
interface CheckedInput extends Pick<LinearInput, "shape" | "dtype"> {
  readonly inputValue?: Value | undefined;
}

/**
 * Returns a check to run with the recipe's quantizers. It throws unless
 *
 * * the quantization blocks divide the columns of the input and of the weight. Quantized tensors are not checked.
 * * for dgrad or wgrad, the blocks divide the columns of the result's gradient, which are the rows of the weight.
 * * for wgrad, the Hadamard transform accepts the dtype of the input.
 * * for dgrad, a stored weight has a columnwise copy, or one that follows from its rowwise copy.
 * * the two operands of each product are quantized, or neither is.
 * * the two operands of dgrad pass through the same Hadamard transform or none, and so do the two operands of wgrad.
 */
export function blockFitCheck(
  { weight, parallel }: Pick<LinearParts, "weight" | "parallel">,
  { shape, dtype, inputValue }: CheckedInput,
  { wgrad, dgrad }: RequiredGradients,
): FitCheck {
  return (roleCopies, gradient) => {
    const copies = { input: roleCopies("input"), weight: roleCopies("weight") };
    const values = { input: inputValue, weight: weight.localValue };
    if (!(inputValue instanceof QuantizedTensor)) {
      const fullShape = parallel?.fullInputShape(shape) ?? shape;
      for (const quantizer of requiredQuantizers(copies.input, wgrad))
        requireBlocks("input", fullShape, quantizer);
      const { columnwise } = copies.input;
      if (wgrad && columnwise) requireTransformable("linear", columnwise.spec, dtype);
    }
    if (!(weight.localValue instanceof QuantizedTensor))
      for (const quantizer of requiredQuantizers(copies.weight, dgrad))
        requireBlocks("weight", weight.shape, quantizer);
    const codes = {
      input: codesQuantizer(copies.input, "rowwise"),
      weight: codesQuantizer(copies.weight, "rowwise"),
    };
    requirePair("fprop", ["the input", codes.input], ["the weight", codes.weight]);
    if (!gradient || !(wgrad || dgrad)) return;
    const caller = `linear: the weight is [${weight.shape}], and its rows are the columns of the gradient of the result`;
    for (const { spec } of new Set(
      [dgrad && gradient.rowwise, wgrad && gradient.columnwise].filter((each) => !!each),
    ))
      requireQuantizable(caller, spec, weight.shape[0] as number);
    const requireOperands = (product: Product, role: "weight" | "input", direction: Direction): void => {
      const quantizer = codesQuantizer(copies[role], "columnwise");
      const ofGradient = codesQuantizer(gradient, direction);
      requirePair(product, [`the ${role}`, quantizer], ["the gradient of the result", ofGradient]);
      if (!quantizer || !ofGradient) return;
      const value = values[role];
      const spec = value instanceof QuantizedTensor ? value.spec : quantizer.spec;
      requireSameTransform(
        "linear",
        [`the ${role}`, transformOf(spec, "columnwise")],
        ["the gradient of the result", transformOf(ofGradient.spec, direction)],
      );
    };
    if (dgrad && copies.weight.columnwise) requireColumnwise(weight.localValue);
    if (dgrad) requireOperands("dgrad", "weight", "rowwise");
    if (wgrad) requireOperands("wgrad", "input", "columnwise");
  };
}

/** Throws `ArgumentError` for a stored weight whose columnwise copy is missing and does not follow from the rowwise one. */
function requireColumnwise(value: Value): void {
  if (!(value instanceof QuantizedTensor) || value.columnwise) return;
  const reason = underivable(value.spec, asMatrix(value.shape)[0]);
  if (reason === undefined) return;
  throw new ArgumentError(
    `linear: the weight has rowwise codes only, and the columnwise ones that dgrad reads do not follow from them, because ${reason}; create the layer outside of noGrad, or call it inside noGrad`,
  );
}

/** The quantizers of the copies that a call makes. */
function requiredQuantizers(
  { rowwise, columnwise }: RoleCopies,
  readsColumnwise: boolean,
): ReadonlySet<Quantizer> {
  return new Set([rowwise, readsColumnwise ? columnwise : undefined].filter((each) => each !== undefined));
}

type NamedQuantizer = readonly [name: string, quantizer: Quantizer | undefined];

/** Throws `ArgumentError` if one operand of a product is quantized and the other one is in high precision. */
function requirePair(product: Product, ...operands: readonly [NamedQuantizer, NamedQuantizer]): void {
  const wide = operands.filter(([, quantizer]) => !quantizer);
  if (wide.length !== 1) return;
  const quantizedRole = operands.find(([, quantizer]) => quantizer)?.[0];
  throw new ArgumentError(
    `linear: ${product} multiplies ${quantizedRole}, which is quantized, by ${wide[0]?.[0]}, which is in high precision; give quantizers for both or for neither`,
  );
}

/** Throws what `quantize` would throw, with a message that names the tensor of the layer. */
function requireBlocks(name: string, shape: Shape, { spec }: Quantizer): void {
  requireQuantizable(`linear: the ${name} is [${shape}]`, spec, asMatrix(shape)[1]);
}
