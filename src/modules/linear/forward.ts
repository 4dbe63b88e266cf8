/** The forward and backward pass of one call of a linear layer, in high precision or under a recipe. */
import type { Region } from "../../autocast.js";
import { ArgumentError, ShapeError } from "../../errors.js";
import { hasGivenScale } from "../../formats/block.js";
import { gradTracked } from "../../tape/grad-mode.js";
import type { Value } from "../../tape/value.js";
import { QuantizedTensor, ROWWISE } from "../../tensor/quantized.js";
import { optional, requireScalar, requireTensor } from "../../tensor/require.js";
import { asMatrix } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { layerRegion } from "../layer-region.js";
import { currentPhase } from "../recompute-phase.js";
import { blockFitCheck, requireFit } from "./fit.js";
import type { LinearCall, LinearInput, LinearParts, LinearResult, RequiredGradients } from "./parts.js";
import { beginMainGrad } from "./products.js";
import { quantizedForward } from "./quantized.js";
import { wideForward } from "./wide.js";

/** Runs the forward pass of a linear layer: quantized in an enabled autocast region, else in high precision. */
export function linearForward(
  layer: LinearParts,
  input: LinearInput,
  call: LinearCall,
  grad: boolean,
): LinearResult {
  const region = layerRegion(layer.quantization);
  const requiredGrads = requiredGradients(layer, input, grad);
  const trackedGrads = requiredGradients(layer, input, gradTracked());
  requireTensors(layer, input);
  const flag = optional(requireScalar)("linear", "skipFp8WeightUpdate", call.skipFp8WeightUpdate);
  if (flag && flag.backend !== layer.weight.backend)
    throw new ArgumentError(
      "linear: skipFp8WeightUpdate lives on another backend than the weight; move it there",
    );
  const result = region?.enabled
    ? quantizedForward(layer, input, { call, region, required: requiredGrads, tracked: trackedGrads })
    : unquantizedForward(layer, input, { call, region, required: requiredGrads });
  // the second run of a recomputed region belongs to the same microbatch, so it does not begin a new one
  if (call.isFirstMicrobatch && trackedGrads.wgrad && currentPhase()?.pass !== "again")
    beginMainGrad(layer.weight);
  return result;
}

function requiredGradients(
  { weight }: LinearParts,
  input: Pick<LinearInput, "requiresGrad">,
  grad: boolean,
): RequiredGradients {
  return { dgrad: grad && input.requiresGrad, wgrad: grad && weight.requiresGrad };
}

/**
 * Checks a layer whose input is yet to be computed by an earlier product: throws what `linearForward` would throw, before
 * anything has changed. It also prepares the layer's quantization state; the later `linearForward` consumes that state, or
 * `quantization.release()` frees it.
 */
export function prepareForward(
  layer: LinearParts,
  input: Pick<LinearInput, "shape" | "dtype" | "backend" | "requiresGrad">,
): void {
  const { weight, quantization } = layer;
  const region = layerRegion(quantization);
  requireTensors(layer, input);
  if (region?.enabled) requireFit(layer, input, region.recipe);
  else if (!region?.calibrating) return;
  const requiredGrads = requiredGradients(layer, input, region.enabled && gradTracked());
  quantization.prepare(region, weight, blockFitCheck(layer, input, requiredGrads));
}

/** Throws unless the tensors of a call have matching shapes and backends and are not disposed. */
function requireTensors(
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
    const { localValue } = parameter;
    if (localValue instanceof Tensor) requireTensor("linear", name, localValue);
    if (localValue.backend !== backend)
      throw new ArgumentError(
        `linear: the input and the ${name} live on different backends; move them to one by data() and tensor()`,
      );
  }
  if (features === weight.shape[1]) return;
  throw new ShapeError(
    `linear: the input is [${shape}] and the weight [${weight.shape}]; the last dimensions must be equal`,
  );
}

/** Runs the forward pass in high precision. A calibrating region records the amaxes that quantization would record. */
function unquantizedForward(
  layer: LinearParts,
  input: LinearInput,
  {
    call,
    region,
    required,
  }: {
    readonly call: LinearCall;
    readonly region: Region | undefined;
    readonly required: RequiredGradients;
  },
): LinearResult {
  const value = input.value();
  if (region?.calibrating) calibrate(layer, input, value, region);
  return wideForward(layer, input, { value, call, required });
}

/** Records the amaxes of the input and the weight. Recipes whose quantizers record no amaxes quantize nothing. */
function calibrate(layer: LinearParts, input: LinearInput, value: Value, region: Region): void {
  const { weight, quantization } = layer;
  const check = blockFitCheck(layer, { ...input, inputValue: value }, { wgrad: false, dgrad: false });
  quantization.beginForward(region, weight, check);
  const { rowwise: inputQuantizer } = quantization.copies("input");
  const { rowwise: weightQuantizer } = quantization.copies("weight");
  if (inputQuantizer && hasGivenScale(inputQuantizer.spec) && !(value instanceof QuantizedTensor))
    inputQuantizer.setUsage(ROWWISE).quantize(value).dispose();
  if (
    !weightQuantizer ||
    !hasGivenScale(weightQuantizer.spec) ||
    weight.localValue instanceof QuantizedTensor
  )
    return;
  const gathersCodes = quantization.quantizesRows(weight);
  quantization.weight(weight, { columnwise: false, gathersCodes }).dispose();
}
