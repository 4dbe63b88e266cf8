/**
 * The fused norm and quantization on a GPU. Quantizers with a given scale use one kernel if a rowwise copy is wanted; a
 * columnwise copy is the transpose of the rowwise one. Quantizers that scale by the amax of the whole tensor use a norm kernel
 * that also computes the amax. In all other cases the norm and the quantization run one after the other.
 */

import { hasGivenScale } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import type { QuantizedCopy } from "../../../tensor/quantized.js";
import { Scope } from "../../../tensor/scope.js";
import { Tensor } from "../../../tensor/tensor.js";
import type { NormQuantizeArgs } from "../../ops.js";
import { runOn } from "../../run.js";
import { runNormSteps } from "../../steps/norm.js";
import { wantsAmax } from "../../steps/quantize.js";
import { addressOf, type Lowering, type LoweringContext, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { normSource } from "../rows/norm.js";
import { DELAYED, NORM_SOURCE } from "../shared-arguments.js";
import { hasFusedFormat } from "./tensor.js";

export const NORM_QUANTIZE_CALLS = {
  normQuantizeTensor: { ...NORM_SOURCE, word: "word", rowwise: "pointer", ...DELAYED },
} as const satisfies Declarations;

export const normQuantize: Lowering<"normQuantize"> = {
  run(context, args) {
    const { spec, rowwise, scale } = args;
    if (hasGivenScale(spec) && hasFusedFormat(spec) && rowwise && scale)
      castNorm(context, args, rowwise, scale);
    else if (wantsAmax(args)) measureNorm(context, args);
    else runNormSteps(args);
  },
};

function castNorm(
  { addon, device }: LoweringContext,
  args: NormQuantizeArgs,
  rowwise: QuantizedCopy,
  scale: Tensor<"f32">,
): void {
  const { x, spec, columnwise, amaxRecord } = args;
  addon.normQuantizeTensor(device, {
    word: factsOf(spec.format).word,
    rowwise: rowwise.data.address,
    rowwiseScaleInv: rowwise.scaleInv.address,
    columnwiseScaleInv: addressOf(columnwise?.scaleInv),
    scale: scale.address,
    amaxRecord: addressOf(amaxRecord),
    ...normSource(args),
  });
  if (columnwise) runOn(x.backend, "transpose", { x: rowwise.data, out: columnwise.data });
}

function measureNorm({ addon, device }: LoweringContext, args: NormQuantizeArgs): void {
  const { gamma, beta, eps, zeroCenteredGamma, mean, rstd, ...quantization } = args;
  const { backend, dtype, shape } = args.x;
  using _scope = new Scope();
  const [out, amax] = [new Tensor(backend, dtype, shape), new Tensor(backend, "f32", [1])];
  addon.norm(device, { out: out.address, outType: wideOf(out), amax: amax.address, ...normSource(args) });
  runOn(backend, "quantize", { ...quantization, x: out, amax });
}
