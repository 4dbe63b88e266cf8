/** The two products of a linear layer's backward pass: dgrad (dX) and wgrad (dW) (numerics.md §6.1). */
import { ArgumentError } from "../../errors.js";
import type { DatapathFamily } from "../../formats/datapath.js";
import { castTo } from "../../ops/cast/cast.js";
import { requireShape } from "../../ops/execute.js";
import { gemm } from "../../ops/gemm/gemm.js";
import type { GemmInput } from "../../ops/gemm/operand.js";
import { dequantize } from "../../ops/quantize/dequantize.js";
import { columnSum } from "../../ops/rows/norm.js";
import type { MMParams } from "../../recipes/table.js";
import { type Gradient, type Value, wideOf } from "../../tape/value.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { requireF32 } from "../../tensor/require.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { WgradProduct } from "../delayed-gradients.js";
import type { Parameter } from "../parameter.js";
import type { LinearParts } from "./parts.js";

/** How dgrad and wgrad are computed. */
export interface Products {
  readonly weight: Parameter;
  readonly fuseWgradAccumulation: boolean;
  readonly datapath?: DatapathFamily;
  readonly dtype: WideDType;
  readonly dgrad?: MMParams;
  readonly wgrad?: MMParams;
}

/** Weights in the first microbatch of a step. Their next wgrad product overwrites `mainGrad`; later products are added to it. */
const firstMicrobatchWeights = new WeakSet<Parameter>();

/** Begins a first microbatch: the next wgrad product of `weight` overwrites `mainGrad`. */
export function beginMainGrad(weight: Parameter): void {
  firstMicrobatchWeights.add(weight);
}

/** Computes dX = dY·W, into `out` if it is set. */
export function dgradOf(
  w: GemmInput,
  dy: Gradient,
  { datapath, dtype, dgrad }: Products,
  out?: Tensor<WideDType>,
): Tensor<WideDType> {
  const path = datapath ? { datapath } : {};
  const target = out ? { out } : { outDtype: dtype };
  return wideOf("dgrad", gemm({ a: w, b: dy, layout: "NN", ...target, ...path, ...dgrad }).out);
}

/**
 * Computes dW = dYᵀ·X. If the layer fuses accumulation, dW is added to `mainGrad`, or overwrites it in a first microbatch, and
 * the function returns undefined. It also returns undefined if the layer delays the product, which `Module.backwardDw` then
 * computes.
 */
export function wgradOf(x: Value, dy: Gradient, products: Products): Tensor<WideDType> | undefined {
  const { datapath, dtype, wgrad, weight, fuseWgradAccumulation } = products;
  const options = { layout: "NT", ...(datapath ? { datapath } : {}), ...wgrad } as const;
  const gradDtype = weight.localValue instanceof QuantizedTensor ? dtype : weight.dtype;
  if (fuseWgradAccumulation) requireMainGrad(weight);
  const accumulate = !firstMicrobatchWeights.has(weight);
  const product: WgradProduct = (a, b) => {
    if (!fuseWgradAccumulation)
      return castTo(wideOf("wgrad", gemm({ a, b, ...options, outDtype: dtype }).out), gradDtype);
    gemm({ a, b, ...options, out: accumulatorOf(weight, accumulate), accumulate });
    return undefined;
  };
  const dw = weight.delayedGradients ? weight.delayedGradients.put(x, dy, product) : product(x, dy);
  if (fuseWgradAccumulation) firstMicrobatchWeights.delete(weight);
  return dw;
}

/** Returns the tensor to which gradients of a weight are added: its `mainGrad`, or the tensor of all rows if it is sharded. */
function accumulatorOf(weight: Parameter, accumulate: boolean): Tensor<"f32"> {
  const mainGrad = requireMainGrad(weight);
  return weight.sharding?.fullMainGrad(!accumulate) ?? mainGrad;
}

/** Returns the `mainGrad` of a weight. Throws `ArgumentError` if it has none. */
function requireMainGrad({ mainGrad, sharding }: Parameter): Tensor<"f32"> {
  if (mainGrad && sharding) requireShape("linear", "mainGrad", mainGrad, sharding.localValue.shape);
  if (mainGrad) return requireF32("linear", "mainGrad", mainGrad);
  throw new ArgumentError(
    "linear: with fuseWgradAccumulation the weight needs a mainGrad, an f32 tensor of its shape; set it before the backward pass",
  );
}

/** Returns the sums of the columns of dY. If other ranks have rows of dY, the sums are over the rows of all ranks. */
export function biasGradOf(
  { bias, parallel }: Pick<LinearParts, "bias" | "parallel">,
  dy: Tensor<WideDType>,
): Tensor<WideDType> | undefined {
  if (!bias?.requiresGrad) return undefined;
  const { dtype } = bias;
  return parallel
    ? parallel.gradBias(columnSum(dy, parallel.biasSumType(dtype)), dtype)
    : columnSum(dy, dtype);
}

/** Returns a gradient as an unquantized tensor: dequantized to `dtype` if it is quantized, else unchanged. */
export function wideGrad(grad: Gradient, dtype: WideDType): Tensor<WideDType> {
  return grad instanceof QuantizedTensor ? dequantize(grad, dtype) : grad;
}
