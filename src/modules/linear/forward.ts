/** The forward and backward pass of one call of a linear layer, in high precision or under a recipe. */
import { currentRegion, type Region } from "../../autocast.js";
import { ArgumentError, ShapeError } from "../../errors.js";
import { hasGivenScale } from "../../formats/block.js";
import { gradTracked } from "../../tape/grad-mode.js";
import type { Value } from "../../tape/value.js";
import { QuantizedTensor, ROWWISE } from "../../tensor/quantized.js";
import { optional, requireScalar, requireTensor } from "../../tensor/require.js";
import { asMatrix } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { currentPhase } from "../recompute-phase.js";
import { blocksFit, requireFit } from "./fit.js";
import type { LinearCall, LinearInput, LinearParts, LinearResult, WantedGradients } from "./parts.js";
import { beginMainGrad } from "./products.js";
import { quantizedForward } from "./quantized.js";
import { wideForward } from "./wide.js";

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
  const flag = optional(requireScalar)("linear", "skipFp8WeightUpdate", call.skipFp8WeightUpdate);
  if (flag && flag.backend !== parts.weight.backend)
    throw new ArgumentError(
      "linear: skipFp8WeightUpdate lives on another backend than the weight; move it there",
    );
  const result = region?.enabled
    ? quantizedForward(parts, input, { call, region, wanted, tracked })
    : wideForward(parts, calibrated(parts, input, region), { call, wanted });
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

/**
 * Returns the input of a product in high precision. In a calibrating region, the amaxes that quantization would record are
 * recorded.
 */
function calibrated(
  parts: LinearParts,
  input: LinearInput,
  region: Region | undefined,
): LinearInput & { readonly given: Value } {
  const given = { ...input, given: input.value() };
  if (region?.calibrating) calibrate(parts, given, region);
  return given;
}

/** Records amaxes. Only a quantizer with a given scale does; with any other one nothing is quantized. */
function calibrate(parts: LinearParts, input: LinearInput & { readonly given: Value }, region: Region): void {
  const { weight, quantization } = parts;
  quantization.enter(region, weight, blocksFit(parts, input, { wgrad: false, dgrad: false }));
  const [ofInput, ofWeight] = [quantization.quantizer("input"), quantization.quantizer("weight")];
  if (hasGivenScale(ofInput.spec) && !(input.given instanceof QuantizedTensor))
    ofInput.setUsage(ROWWISE).quantize(input.given).dispose();
  if (!hasGivenScale(ofWeight.spec) || weight.own instanceof QuantizedTensor) return;
  quantization.weight(weight, { columnwise: false, gathers: quantization.quantizesRows(weight) }).dispose();
}
