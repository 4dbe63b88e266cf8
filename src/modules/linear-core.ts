/** The products of a linear layer, forward and backward, in high precision or under a recipe (numerics.md §6.1). */
import { currentRegion, type Region } from "../autocast/autocast.js";
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { plainDatapath } from "../functional/datapath.js";
import { castTo } from "../ops/cast.js";
import { dequantize } from "../ops/dequantize.js";
import { requireScalar } from "../ops/execute.js";
import { gemm } from "../ops/gemm.js";
import { columnSum } from "../ops/norm.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { type BackwardPass, type Gradient, type Value, wideOf } from "../tape/variable.js";
import { QuantizedTensor, type Usage } from "../tensor/quantized.js";
import { asMatrix, type Shape, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { dgradOf, wgradOf } from "./linear-products.js";
import type { Parameter } from "./parameter.js";
import type { LinearQuantization, WeightUse } from "./quantization.js";
import { currentPhase } from "./recompute-phase.js";

/** What a call of a linear layer may ask for. */
export interface LinearCall extends Omit<WeightUse, "columnwise"> {
  /** The result is quantized. Default false. */
  readonly fp8Output?: boolean;
  /** The gradient of the input is quantized. Default false. */
  readonly fp8Grad?: boolean;
}

/** A linear layer: y = x·weightᵀ + bias. */
export interface LinearParts {
  readonly weight: Parameter;
  readonly bias?: Parameter | undefined;
  readonly quantization: LinearQuantization;
  /** Keeps the input as it came and quantizes its other copy in the backward pass. */
  readonly saveOriginalInput: boolean;
  /** Adds the weight's gradient to its `mainGrad`. */
  readonly fuseWgradAccumulation: boolean;
}

/** The input of a linear layer, which a step before may make for it. */
export interface LinearInput {
  /** [..., in]. */
  readonly shape: Shape;
  /** The type activations have. */
  readonly dtype: WideDType;
  readonly requiresGrad: boolean;
  /** The input itself. Called once where it is needed. */
  readonly value: () => Value;
  /** Whether `value` makes a tensor that is this layer's to dispose of. */
  readonly makes: boolean;
  /** Quantizes what `value` would give in a way of its own, in one pass. Default: the quantizer's. */
  readonly quantize?: ((quantizer: Quantizer) => QuantizedTensor) | undefined;
}

/** The gradients of one call; undefined where nobody asked. */
export interface LinearGradients {
  readonly x?: Gradient | undefined;
  readonly weight?: Tensor<WideDType> | undefined;
  readonly bias?: Tensor<WideDType> | undefined;
}

export interface LinearResult {
  readonly out: Value;
  readonly backward: (grad: Gradient, pass: BackwardPass) => LinearGradients;
  /** Quantizes the gradient that the backward pass is given; absent where it does not want that. */
  readonly gradQuantizer?: () => Quantizer;
  /** What was made for the backward pass alone. */
  readonly saved: readonly Value[];
}

/** Which gradients a backward pass will want. */
interface Wanted {
  readonly dgrad: boolean;
  readonly wgrad: boolean;
}

/** The forward products, in high precision outside of autocast. */
export function linearForward(
  parts: LinearParts,
  input: LinearInput,
  call: LinearCall,
  grad: boolean,
): LinearResult {
  const region = currentRegion();
  const wanted = { dgrad: grad && input.requiresGrad, wgrad: grad && parts.weight.requiresGrad };
  requireFeatures(parts, input);
  if (region?.enabled) return quantizedForward(parts, input, { call, region, wanted });
  const given = input.value();
  if (region?.calibrating) calibrate(parts, given, region);
  return plainForward(parts, { ...input, given }, { call, wanted });
}

function requireFeatures({ weight }: LinearParts, { shape }: LinearInput): void {
  const [, features] = asMatrix(shape);
  if (features === weight.shape[1]) return;
  throw new ShapeError(
    `linear: the input is [${shape}] and the weight [${weight.shape}]; the last dimensions must be equal`,
  );
}

function plainForward(
  { weight, bias, fuseWgradAccumulation }: LinearParts,
  { given, dtype, makes }: LinearInput & { readonly given: Value },
  { call, wanted }: { readonly call: LinearCall; readonly wanted: Wanted },
): LinearResult {
  if (call.fp8Output || call.fp8Grad)
    throw new ArgumentError("linear: fp8Output and fp8Grad need autocast, whose recipe says how to quantize");
  if (weight.value instanceof QuantizedTensor && weight.value.dtype !== dtype)
    throw new DTypeError(
      `linear: the input is ${dtype} and the quantized weight stands for ${weight.value.dtype}`,
    );
  const x = given instanceof QuantizedTensor ? dequantize(given, dtype) : wideOf("linear: the input", given);
  const w = weight.value instanceof QuantizedTensor ? dequantize(weight.value, dtype) : weight.tensor;
  for (const [name, parameter] of [
    ["weight", w],
    ["bias", bias?.tensor],
  ] as const) {
    if (parameter && parameter.dtype !== x.dtype)
      throw new DTypeError(
        `linear: the input is ${x.dtype} and the ${name} ${parameter.dtype}; outside of autocast they must be of one type`,
      );
  }
  const datapath = plainDatapath(x.backend, dtype);
  const { out } = gemm({ a: w, b: x, datapath, outDtype: dtype, ...(bias ? { bias: bias.tensor } : {}) });
  const saved = [...(x === given && !makes ? [] : [x]), ...(w === weight.value ? [] : [w])];
  return {
    out,
    saved,
    backward: (grad) => {
      const dy = grad instanceof QuantizedTensor ? dequantize(grad, dtype) : grad;
      const products = { datapath, dtype, weight, fuseWgradAccumulation, ...call };
      return {
        x: wanted.dgrad ? dgradOf(w, dy, products) : undefined,
        weight: wanted.wgrad ? wgradOf(x, dy, products) : undefined,
        bias: bias?.requiresGrad ? columnSum(dy, bias.tensor.dtype) : undefined,
      };
    },
  };
}

interface Quantized {
  readonly call: LinearCall;
  readonly region: Region;
  readonly wanted: Wanted;
}

function quantizedForward(
  parts: LinearParts,
  input: LinearInput,
  { call, region, wanted }: Quantized,
): LinearResult {
  const { weight, bias, quantization } = parts;
  const { recipe, group } = region;
  const { dtype } = input;
  if (parts.saveOriginalInput && recipe.kind === "delayed")
    throw new ArgumentError(
      "linear: saveOriginalInput does not go with DelayedScaling, which would record the input's amax twice; drop one",
    );
  requireAligned("input", input.shape);
  requireAligned("weight", weight.shape);
  requireScalar("linear", "skipFp8WeightUpdate", call.skipFp8WeightUpdate);
  quantization.enter(region, weight.value);
  const given = input.quantize && !parts.saveOriginalInput ? undefined : input.value();
  const keepsOriginal = parts.saveOriginalInput && !(given instanceof QuantizedTensor);
  const source = { given, quantize: input.quantize };
  const inputQuantizer = quantization.quantizer("input");
  const x = quantizedInput(inputQuantizer, source, {
    rowwise: true,
    columnwise: wanted.wgrad && !keepsOriginal,
  });
  const w = quantizedWeight(parts, call, wanted.dgrad || currentPhase()?.pass === "first");
  const added = bias ? { bias: castTo(bias.tensor, dtype === "f32" ? "bf16" : dtype) } : {};
  const out = outputOf(call.fp8Output ? quantization.quantizer("output") : undefined, dtype, (outDtype) =>
    wideOf("linear", gemm({ a: w, b: x, outDtype, ...recipe.fprop, ...added }).out),
  );
  const quantizesGrad = wanted.dgrad || wanted.wgrad;
  const behind = quantizesGrad ? quantization.forBackward() : undefined;
  const gradUsage = { rowwise: wanted.dgrad, columnwise: wanted.wgrad };
  const gradQuantizer = behind && ((): Quantizer => behind.quantizer("gradOutput").setUsage(gradUsage));
  const ownsX = x !== given;
  const ownsW = w !== weight.value;
  if (ownsX && (keepsOriginal || !wanted.wgrad)) x.dispose();
  else if (ownsX) x.updateUsage({ rowwise: false });
  const saved = [
    ...(ownsX && wanted.wgrad && !keepsOriginal ? [x] : []),
    ...(ownsW ? [w] : []),
    ...(given && keepsOriginal && input.makes ? [given] : []),
    ...(behind?.saved ?? []),
  ];
  return {
    out,
    saved,
    ...(gradQuantizer ? { gradQuantizer } : {}),
    backward: (grad, pass) => {
      const { dgrad, wgrad } = recipe;
      const products = {
        ...call,
        dtype,
        weight,
        fuseWgradAccumulation: parts.fuseWgradAccumulation,
        dgrad,
        wgrad,
      };
      const dbias = bias?.requiresGrad ? columnSum(wideGrad(grad, dtype), bias.tensor.dtype) : undefined;
      if (!behind || !gradQuantizer) return { bias: dbias };
      behind.enter(pass, group);
      const dy = quantizedGrad(gradQuantizer(), grad);
      const dx = wanted.dgrad
        ? outputOf(call.fp8Grad ? behind.quantizer("gradInput") : undefined, dtype, (outDtype) =>
            dgradOf(w, dy, { ...products, dtype: outDtype }),
          )
        : undefined;
      const again = keepsOriginal && wanted.wgrad;
      const columns = again
        ? quantizedInput(inputQuantizer, source, { rowwise: false, columnwise: true })
        : x;
      const dw = wanted.wgrad ? wgradOf(columns, dy, products) : undefined;
      if (dy !== grad) dy.dispose();
      if (columns !== x) columns.dispose();
      return { x: dx, weight: dw, bias: dbias };
    },
  };
}

/** TransformerEngine's condition on what low-precision products take. */
function requireAligned(name: string, shape: Shape): void {
  const [rows, columns] = asMatrix(shape);
  if (rows % 8 === 0 && columns % 16 === 0) return;
  throw new ShapeError(
    `linear: the ${name} is [${shape}]; under a recipe the last dimension must be a multiple of 16 and the product of the others of 8; pad it`,
  );
}

function quantizedInput(
  quantizer: Quantizer,
  { given, quantize }: { readonly given: Value | undefined; readonly quantize: LinearInput["quantize"] },
  usage: Usage,
): QuantizedTensor {
  if (given instanceof QuantizedTensor)
    return usage.columnwise ? given.updateUsage({ columnwise: true }) : given;
  quantizer.setUsage(usage);
  if (quantize) return quantize(quantizer);
  return quantizer.quantize(wideOf("linear: the input", given as Tensor));
}

function quantizedWeight(
  { weight, quantization }: LinearParts,
  call: LinearCall,
  columnwise: boolean,
): QuantizedTensor {
  const { value } = weight;
  return value instanceof QuantizedTensor ? value : quantization.weight(value, { ...call, columnwise });
}

function quantizedGrad(quantizer: Quantizer, grad: Gradient): QuantizedTensor {
  if (!(grad instanceof QuantizedTensor)) return quantizer.quantize(grad);
  return quantizer.usage.columnwise ? grad.updateUsage({ columnwise: true }) : grad;
}

/**
 * A product as it is, or quantized: delayed scaling casts the f32 sums, as its GEMM would, any other recipe
 * sees them rounded first (numerics.md §6.3).
 */
function outputOf(
  quantizer: Quantizer | undefined,
  dtype: WideDType,
  product: (dtype: WideDType) => Tensor<WideDType>,
): Tensor<WideDType> | QuantizedTensor {
  if (!quantizer) return product(dtype);
  quantizer.setUsage({ rowwise: true, columnwise: false });
  const wide = product(quantizer.spec.quantizer === "fp8-delayed" ? "f32" : dtype);
  const quantized = quantizer.makeEmpty(wide.backend, wide.shape, dtype);
  quantizer.updateQuantized(wide, quantized);
  wide.dispose();
  return quantized;
}

function wideGrad(grad: Gradient, dtype: WideDType): Tensor<WideDType> {
  return grad instanceof QuantizedTensor ? dequantize(grad, dtype) : grad;
}

/** Records what quantizing would, and computes in high precision. */
function calibrate({ weight, quantization }: LinearParts, x: Value, region: Region): void {
  quantization.enter(region, weight.value);
  for (const [role, value] of [
    ["input", x],
    ["weight", weight.value],
  ] as const) {
    if (value instanceof QuantizedTensor) continue;
    quantization.quantizer(role).setUsage({ rowwise: true, columnwise: false }).quantize(value).dispose();
  }
}
