/**
 * The fused norm and quantization on a GPU. Quantizers with a given scale use one kernel if a rowwise copy is wanted; a
 * columnwise copy is the transpose of the rowwise one. Quantizers that scale by the amax of the whole tensor use a norm kernel
 * that also computes the amax. In all other cases the norm and the quantization run one after the other.
 */

import { hasGivenScale } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import type { QuantizedCopy } from "../../../tensor/quantized.js";
import { Scope } from "../../../tensor/scope.js";
import { asMatrix } from "../../../tensor/shape.js";
import { Tensor } from "../../../tensor/tensor.js";
import type { NormQuantizeArgs } from "../../ops.js";
import { runOn } from "../../run.js";
import { runNormSteps } from "../../steps/norm.js";
import { wantsAmax } from "../../steps/quantize.js";
import { type Lowering, type LoweringContext, wideOf } from "../lowering.js";
import { type Declarations, group, reads, writes } from "../native-arguments.js";
import { launchNorm, NORM_SOURCE } from "../rows/norm.js";
import { AMAX_OUT, hasFusedFormat, SCALE_INV } from "./tensor.js";

export const NORM_QUANTIZE_CALLS = {
  /** The launcher returns cudaErrorInvalidValue for formats other than e4m3 and e5m2. */
  normQuantizeTensor: {
    source: group("NormParams", NORM_SOURCE),
    target: group("QuantizeTensorParams", {
      word: "word",
      rowwise: writes.u8("source.rows * source.columns"),
      ...SCALE_INV,
      scale: reads.f32("1"),
      ...AMAX_OUT,
    }),
  },
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
  const { x, gamma, beta, mean, rstd, eps, zeroCenteredGamma, spec, columnwise, amaxRecord } = args;
  const [rows, columns] = asMatrix(x.shape);
  addon.normQuantizeTensor(device, {
    source: {
      x,
      gamma,
      beta,
      parameterType: wideOf(gamma),
      mean,
      rstd,
      rows,
      columns,
      epsilon: eps,
      zeroCentered: zeroCenteredGamma,
    },
    target: {
      word: factsOf(spec.format).word,
      rowwise: rowwise.data,
      rowwiseScaleInv: rowwise.scaleInv,
      columnwiseScaleInv: columnwise?.scaleInv,
      scale,
      amaxOut: amaxRecord,
    },
  });
  if (columnwise) runOn(x.backend, "transpose", { x: rowwise.data, out: columnwise.data });
}

function measureNorm(context: LoweringContext, args: NormQuantizeArgs): void {
  const { gamma, beta, eps, zeroCenteredGamma, mean, rstd, ...quantization } = args;
  const { x } = args;
  const { backend, dtype, shape } = x;
  using _scope = new Scope();
  const [out, amax] = [new Tensor(backend, dtype, shape), new Tensor(backend, "f32", [1])];
  launchNorm(context, { x, gamma, beta, eps, zeroCenteredGamma, mean, rstd, out }, amax);
  runOn(backend, "quantize", { ...quantization, x: out, amax });
}
