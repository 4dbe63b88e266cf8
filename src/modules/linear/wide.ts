/** The forward and backward pass of a linear layer in high precision. */
import { ArgumentError, DTypeError } from "../../errors.js";
import type { DatapathFamily } from "../../formats/datapath.js";
import { plainDatapath } from "../../functional/datapath.js";
import { castTo } from "../../ops/cast/cast.js";
import { gemm } from "../../ops/gemm/gemm.js";
import type { GemmInput } from "../../ops/gemm/operand.js";
import { dequantize } from "../../ops/quantize/dequantize.js";
import { onSideStream } from "../../ops/side-stream.js";
import { transientValue } from "../../tape/uses.js";
import { type Gradient, type Value, wideOf } from "../../tape/value.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { Parameter } from "../parameter.js";
import { resultSpec, WideRows } from "../tensor-parallel/rows.js";
import type {
  LinearCall,
  LinearGradients,
  LinearInput,
  LinearParts,
  LinearResult,
  RequiredGradients,
} from "./parts.js";
import { biasGradOf, dgradOf, wgradOf, wideGrad } from "./products.js";

type WideTensor = Tensor<WideDType>;

/** A call whose input and weight are f32, bf16 or f16. */
interface WideCall {
  readonly layer: LinearParts;
  readonly required: RequiredGradients;
  readonly dtype: WideDType;
  readonly datapath: DatapathFamily;
  readonly x: WideTensor;
  readonly w: WideTensor;
  /** The number of chunks in which the rows of the input are gathered for the forward product. */
  readonly chunks: number;
}

/**
 * Runs the forward pass of a linear layer whose input, weight and bias have one dtype. `value` is the input. Quantized tensors
 * are dequantized.
 *
 * @throws `ArgumentError` for a call that asks for quantized results, `DTypeError` for tensors of different dtypes.
 */
export function wideForward(
  layer: LinearParts,
  { dtype, createsValue }: LinearInput,
  {
    value,
    call,
    required,
  }: { readonly value: Value; readonly call: LinearCall; readonly required: RequiredGradients },
): LinearResult {
  if (call.fp8Output || call.fp8Grad)
    throw new ArgumentError("linear: fp8Output and fp8Grad need autocast, whose recipe says how to quantize");
  const { weight, parallel } = layer;
  const x = wideInput(value, layer, dtype);
  const w = wideWeight(weight);
  const result = resultSpec(parallel?.fullInputShape(x.shape) ?? x.shape, w.shape[0] as number, dtype);
  const chunks = parallel?.chunksOf("input", x, result) ?? 1;
  const datapath = plainDatapath(x.backend, dtype);
  const preparedCall = { layer, required, dtype, datapath, x, w, chunks };
  const keepsInput = required.wgrad && (x !== value || createsValue);
  const keepsWeight =
    required.dgrad && weight.localValue instanceof QuantizedTensor && weight.sharding === undefined;
  return {
    out: fprop(preparedCall),
    saved: [...(keepsInput ? [x] : []), ...(keepsWeight ? [w] : [])],
    backward: (grad) => backward(preparedCall, grad),
  };
}

/** Returns the input as f32, bf16 or f16. Throws `DTypeError` unless the input and the parameters have one dtype. */
function wideInput(value: Value, { weight, bias }: LinearParts, dtype: WideDType): WideTensor {
  if (weight.localValue instanceof QuantizedTensor && weight.dtype !== dtype)
    throw new DTypeError(
      `linear: the input is ${dtype} and the quantized weight dequantizes to ${weight.dtype}; convert the input`,
    );
  const x = value instanceof QuantizedTensor ? dequantize(value) : wideOf("linear: the input", value);
  for (const [name, parameter] of [
    ["weight", weight],
    ["bias", bias],
  ] as const) {
    if (parameter && parameter.dtype !== x.dtype)
      throw new DTypeError(
        `linear: the input is ${x.dtype} and the ${name} ${parameter.dtype}; outside of autocast they must have one dtype`,
      );
  }
  return x;
}

/** Returns the weight as f32, bf16 or f16. A dequantized weight is freed when the running function returns. */
function wideWeight(weight: Parameter): WideTensor {
  const value = transientValue(weight);
  return value instanceof QuantizedTensor ? dequantize(value) : wideOf("linear: the weight", value);
}

/** Returns the weight in `dtype`. A tensor that is created is freed when the running function returns. */
export function wideWeightIn(weight: Parameter, dtype: WideDType): WideTensor {
  const value = transientValue(weight);
  return value instanceof QuantizedTensor
    ? dequantize(value, dtype)
    : castTo(wideOf("linear: the weight", value), dtype);
}

/** Computes the result of the layer. */
function fprop({ layer: { bias, parallel }, dtype, datapath, x, w, chunks }: WideCall): WideTensor {
  const b = bias && wideOf("linear: the bias", transientValue(bias));
  // a row-parallel layer adds the bias after the sum over ranks
  const fusedBias = b && parallel?.mode !== "row" ? { bias: b } : {};
  const product = (rows: GemmInput, out?: WideTensor): WideTensor => {
    const target = out ? { out } : { outDtype: dtype };
    return wideOf("linear", gemm({ x: rows, w, datapath, ...target, ...fusedBias }).out);
  };
  if (!parallel) return product(x);
  const result = resultSpec(parallel.fullInputShape(x.shape), w.shape[0] as number, dtype);
  const rows = new WideRows(parallel.gathers("input"), x);
  return parallel.output(rows.gatherInChunks(chunks), product, result, b);
}

/** Computes the gradients of a call. */
function backward(call: WideCall, grad: Gradient): LinearGradients {
  const { layer, required, chunks, x, w } = call;
  const { weight, parallel } = layer;
  const input = (): WideTensor => new WideRows(parallel?.gathers("input"), x).allRows();
  // a sharded weight was freed after the forward pass, so it is read again
  const weightForGrad = (): WideTensor => (weight.sharding ? wideWeight(weight) : w);
  // if the forward pass overlapped products and gathers, the rows of the input are gathered while dgrad is computed
  return wideGradients(call, grad, { input, weight: weightForGrad, overlaps: chunks > 1 && required.wgrad });
}

/** Where products in high precision read their operands. */
export interface WideSources {
  /** Returns all rows of the input. */
  readonly input: () => WideTensor;
  readonly weight: () => WideTensor;
  /** Whether the input is read on the side stream while dgrad is computed. */
  readonly overlaps: boolean;
}

/** Computes the gradients of a call by products in high precision. */
export function wideGradients(
  call: Pick<WideCall, "layer" | "required" | "dtype" | "datapath">,
  grad: Gradient,
  { input, weight: weightOf, overlaps }: WideSources,
): LinearGradients {
  const { layer, required, dtype, datapath } = call;
  const { weight, bias, fuseWgradAccumulation, parallel } = layer;
  const dy = wideGrad(grad, dtype);
  const products = { datapath, dtype, weight, fuseWgradAccumulation };
  const gatheredInput = overlaps && required.dgrad ? onSideStream(dy.backend, input) : undefined;
  const gradRows = new WideRows(parallel?.gathers("gradOutput"), dy);
  const dx = required.dgrad
    ? dgrad(call, weightOf(), gradRows, (w, rows, out) => dgradOf(w, rows, products, out))
    : undefined;
  return {
    x: dx,
    weight: required.wgrad ? wgradOf(gatheredInput ?? input(), gradRows.allRows(), products) : undefined,
    bias: biasGradOf({ bias, parallel }, dy),
  };
}

/** Computes the gradient of the input by `product`. */
function dgrad(
  { layer: { parallel }, dtype }: Pick<WideCall, "layer" | "dtype">,
  weight: WideTensor,
  gradRows: WideRows,
  product: (w: WideTensor, rows: Gradient, out?: WideTensor) => WideTensor,
): WideTensor {
  const dy = gradRows.local;
  const multiply = (rows: Gradient, out?: WideTensor): WideTensor => product(weight, rows, out);
  if (!parallel) return multiply(dy);
  const shape = parallel.fullGradOutputShape(dy.shape);
  const result = resultSpec(shape, weight.shape[1] as number, dtype);
  const rows = gradRows.gatherInChunks(parallel.chunksOf("gradOutput", dy, result));
  return parallel.gradInput(rows, multiply, result);
}
