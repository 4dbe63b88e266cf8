/** The forward and backward pass of a linear layer in high precision. */
import { ArgumentError, DTypeError } from "../../errors.js";
import { plainDatapath } from "../../functional/datapath.js";
import { gemm } from "../../ops/gemm/gemm.js";
import type { GemmInput } from "../../ops/gemm/operand.js";
import { dequantize } from "../../ops/quantize/dequantize.js";
import { onSideStream } from "../../ops/side-stream.js";
import { borrowed } from "../../tape/uses.js";
import { type Gradient, type Value, wideOf } from "../../tape/value.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { Parameter } from "../parameter.js";
import { madeOf, WideRows } from "../tensor-parallel/rows.js";
import type { LinearCall, LinearInput, LinearParts, LinearResult, WantedGradients } from "./parts.js";
import { biasGradOf, dgradOf, wgradOf, wideGrad } from "./products.js";

/**
 * Runs the forward pass of a linear layer whose input, weight and bias are of one dtype. What is quantized is dequantized.
 *
 * @throws `ArgumentError` for a call that asks for quantized results, `DTypeError` for tensors of different dtypes.
 */
export function wideForward(
  { weight, bias, fuseWgradAccumulation, parallel }: LinearParts,
  { given, dtype, makes }: LinearInput & { readonly given: Value },
  { call, wanted }: { readonly call: LinearCall; readonly wanted: WantedGradients },
): LinearResult {
  if (call.fp8Output || call.fp8Grad)
    throw new ArgumentError("linear: fp8Output and fp8Grad need autocast, whose recipe says how to quantize");
  if (weight.own instanceof QuantizedTensor && weight.dtype !== dtype)
    throw new DTypeError(`linear: the input is ${dtype} and the quantized weight stands for ${weight.dtype}`);
  const x = given instanceof QuantizedTensor ? dequantize(given) : wideOf("linear: the input", given);
  for (const [name, parameter] of [
    ["weight", weight],
    ["bias", bias],
  ] as const) {
    if (parameter && parameter.dtype !== x.dtype)
      throw new DTypeError(
        `linear: the input is ${x.dtype} and the ${name} ${parameter.dtype}; outside of autocast they must be of one type`,
      );
  }
  const w = wideWeight(weight);
  const b = bias && wideOf("linear: the bias", borrowed(bias));
  const datapath = plainDatapath(x.backend, dtype);
  const rows = new WideRows(parallel?.gathers("input"), x);
  const fusedBias = b && parallel?.mode !== "row" ? { bias: b } : {};
  const product = (of: GemmInput, into?: Tensor<WideDType>): Tensor<WideDType> => {
    const target = into ? { out: into } : { outDtype: dtype };
    return wideOf("linear", gemm({ x: of, w, datapath, ...target, ...fusedBias }).out);
  };
  const made = madeOf(parallel?.wholeInput(x.shape) ?? x.shape, w.shape[0] as number, dtype);
  const chunks = parallel?.chunksOf("input", x, made) ?? 1;
  const out = parallel?.output(rows.arrivals(chunks), product, made, b) ?? product(x);
  const saved = [
    ...(wanted.wgrad && (x !== given || makes) ? [x] : []),
    ...(wanted.dgrad && weight.own instanceof QuantizedTensor && !weight.sharding ? [w] : []),
  ];
  return {
    out,
    saved,
    backward: (grad) => {
      const dy = wideGrad(grad, dtype);
      const products = { datapath, dtype, weight, fuseWgradAccumulation };
      const columns = (): Tensor<WideDType> => new WideRows(parallel?.gathers("input"), x).whole();
      const isAhead = chunks > 1 && wanted.wgrad && wanted.dgrad;
      // the rows of the input are gathered beside dgrad
      const gathered = isAhead ? onSideStream(x.backend, columns) : undefined;
      const grads = new WideRows(parallel?.gathers("gradOutput"), dy);
      let dx: Tensor<WideDType> | undefined;
      if (wanted.dgrad) {
        const of = weight.sharding ? wideWeight(weight) : w;
        const shape = parallel?.wholeGradOutput(dy.shape) ?? dy.shape;
        const result = madeOf(shape, of.shape[1] as number, dtype);
        const arriving = grads.arrivals(parallel?.chunksOf("gradOutput", dy, result) ?? 1);
        const dgrad = (each: Gradient, into?: Tensor<WideDType>) => dgradOf(of, each, products, into);
        dx = parallel?.gradInput(arriving, dgrad, result) ?? dgrad(dy);
      }
      return {
        x: dx,
        weight: wanted.wgrad ? wgradOf(gathered ?? columns(), grads.whole(), products) : undefined,
        bias: biasGradOf({ bias, parallel }, dy),
      };
    },
  };
}

/** Returns the weight as f32, bf16 or f16. A dequantized weight is freed when the running function returns. */
function wideWeight(weight: Parameter): Tensor<WideDType> {
  const value = borrowed(weight);
  return value instanceof QuantizedTensor ? dequantize(value) : wideOf("linear: the weight", value);
}
