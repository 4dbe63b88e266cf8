/** The forward and backward pass of one call of a linear layer, in high precision or under a recipe. */
import { currentRegion, type Region } from "../autocast/autocast.js";
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { hasGivenScale } from "../formats/block.js";
import { plainDatapath } from "../functional/datapath.js";
import { gemm } from "../ops/gemm/gemm.js";
import type { GemmInput } from "../ops/gemm/operand.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { onSideStream } from "../ops/side-stream.js";
import { gradTracked } from "../tape/grad-mode.js";
import { borrowed } from "../tape/uses.js";
import { type Gradient, type Value, wideOf } from "../tape/value.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { requireScalar, requireTensor } from "../tensor/require.js";
import { asMatrix, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import type { LinearCall, LinearInput, LinearParts, LinearResult, WantedGradients } from "./linear-parts.js";
import { beginMainGrad, biasGradOf, dgradOf, wgradOf, wideGrad } from "./linear-products.js";
import { blocksFit, quantizedForward, requireFit } from "./linear-quantized.js";
import { madeOf, WideRows } from "./parallel/rows.js";
import type { Parameter } from "./parameter.js";
import { currentPhase } from "./recompute-phase.js";

/** Runs the forward pass of a linear layer: quantized in an enabled autocast region, else in high precision. */
export function linearForward(
  parts: LinearParts,
  input: LinearInput,
  call: LinearCall,
  grad: boolean,
): LinearResult {
  const region = currentRegion();
  const wanted = wantedOf(parts, input, grad);
  const tracked = wantedOf(parts, input, gradTracked());
  requireParts(parts, input);
  if (parts.parallel && (call.fp8Output || call.fp8Grad))
    throw new ArgumentError(
      "linear: fp8Output and fp8Grad are for layers of one rank; a layer with a group gives wide tensors, so leave them out",
    );
  const flag = requireScalar("linear", "skipFp8WeightUpdate", call.skipFp8WeightUpdate);
  if (flag && flag.backend !== parts.weight.backend)
    throw new ArgumentError(
      "linear: skipFp8WeightUpdate lives on another backend than the weight; move it there",
    );
  const result = region?.enabled
    ? quantizedForward(parts, input, { call, region, wanted, tracked })
    : wideForward(parts, input, { call, region, wanted });
  // the second run of a recomputed region belongs to the same microbatch, so it does not begin a new one
  if (call.isFirstMicrobatch && tracked.wgrad && currentPhase()?.pass !== "again")
    beginMainGrad(parts.weight);
  return result;
}

function wantedOf(
  { weight }: LinearParts,
  input: Pick<LinearInput, "requiresGrad">,
  grad: boolean,
): WantedGradients {
  return { dgrad: grad && input.requiresGrad, wgrad: grad && weight.requiresGrad };
}

function wideForward(
  parts: LinearParts,
  input: LinearInput,
  {
    region,
    ...how
  }: { readonly call: LinearCall; readonly region: Region | undefined; readonly wanted: WantedGradients },
): LinearResult {
  const given = input.value();
  if (region?.calibrating) calibrate(parts, { ...input, given }, region);
  return plainForward(parts, { ...input, given }, how);
}

/**
 * Checks a layer whose input is yet to be computed by an earlier product: throws what `linearForward` would throw, before
 * anything has changed. It also prepares the layer's quantization state; the later `linearForward` consumes that state, or
 * `quantization.release()` frees it.
 */
export function prepareForward(
  parts: LinearParts,
  input: Pick<LinearInput, "shape" | "dtype" | "backend">,
): void {
  const region = currentRegion();
  const { weight, quantization } = parts;
  requireParts(parts, input);
  if (region?.enabled) requireFit(parts, input, region.recipe);
  else if (!region?.calibrating) return;
  const wgrad = region.enabled && gradTracked() && weight.requiresGrad;
  quantization.prepare(region, weight, blocksFit(parts, input, { wgrad, dgrad: false }));
}

/** Throws unless the tensors of a call have matching shapes and backends and are not disposed. */
function requireParts(
  { weight, bias, parallel }: LinearParts,
  { shape, backend }: Pick<LinearInput, "shape" | "backend">,
): void {
  const [, features] = asMatrix(shape);
  parallel?.requireRows("linear", shape);
  for (const [name, parameter] of [
    ["weight", weight],
    ["bias", bias],
  ] as const) {
    if (!parameter) continue;
    const { own } = parameter;
    if (own instanceof Tensor) requireTensor("linear", name, own);
    if (own.backend !== backend)
      throw new ArgumentError(
        `linear: its tensors live on different backends, the input and the ${name}; move them to one by data() and tensor()`,
      );
  }
  if (features === weight.shape[1]) return;
  throw new ShapeError(
    `linear: the input is [${shape}] and the weight [${weight.shape}]; the last dimensions must be equal`,
  );
}

function plainForward(
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

/**
 * Records the amaxes that quantization would record. The product itself is computed in high precision. Only a quantizer with a
 * given scale records amaxes; with any other one nothing is quantized.
 */
function calibrate(parts: LinearParts, input: LinearInput & { readonly given: Value }, region: Region): void {
  const { weight, quantization } = parts;
  quantization.enter(region, weight, blocksFit(parts, input, { wgrad: false, dgrad: false }));
  const [ofInput, ofWeight] = [quantization.quantizer("input"), quantization.quantizer("weight")];
  if (hasGivenScale(ofInput.spec) && !(input.given instanceof QuantizedTensor))
    ofInput.setUsage({ rowwise: true, columnwise: false }).quantize(input.given).dispose();
  if (!hasGivenScale(ofWeight.spec) || weight.own instanceof QuantizedTensor) return;
  quantization.weight(weight, { columnwise: false, gathers: quantization.quantizesRows(weight) }).dispose();
}
