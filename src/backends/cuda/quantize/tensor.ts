/** Quantization to per-tensor FP8 on a GPU. The scale is read or computed on the device. */
import { factsOf } from "../../../formats/derive.js";
import type { ScalarFormat } from "../../../formats/scalar.js";
import type { QuantizeSpec } from "../../../tensor/quantized.js";
import type { QuantizeArgs } from "../../ops.js";
import { plainCopiesOf } from "../layout/copies.js";
import { addressOf, type LoweringContext } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { PLAIN_COPIES } from "../shared-arguments.js";
import { QUANTIZED, quantizedSource } from "./source.js";

export const TENSOR = {
  ...QUANTIZED,
  word: "word",
  ...PLAIN_COPIES,
  "scale?": "pointer",
  "amax?": "pointer",
  pow2: "flag",
  epsilon: "float",
  "amaxRecord?": "pointer",
} as const;

/** The element formats that fused kernels write, which the hardware converts to. */
const FUSED_FORMATS: readonly ScalarFormat[] = ["e4m3", "e5m2"];

/** Whether fused kernels write elements of the format of a spec. */
export function hasFusedFormat({ format }: Pick<QuantizeSpec, "format">): boolean {
  return FUSED_FORMATS.includes(format);
}

export const TENSOR_CALLS = {
  quantizeTensor: { ...TENSOR, "workspace?": "pointer" },
} as const satisfies Declarations;

export function quantizeTensor(context: LoweringContext, args: QuantizeArgs): void {
  if (args.scale || args.amax) launch(context, args);
  else context.withTemporary(4, (workspace) => launch(context, args, workspace));
}

function launch({ addon, device }: LoweringContext, args: QuantizeArgs, workspace?: number): void {
  addon.quantizeTensor(device, tensorSource(args, workspace));
}

/**
 * Returns the arguments of the kernel. `workspace` is memory for the amax of x. It is required if neither a scale nor an amax
 * is given.
 */
export function tensorSource<W extends number | undefined>(args: QuantizeArgs, workspace: W) {
  const { spec, scale, amax, amaxRecord } = args;
  return {
    word: factsOf(spec.format).word,
    ...quantizedSource(args),
    ...plainCopiesOf(args),
    scale: addressOf(scale),
    amax: addressOf(amax),
    workspace,
    pow2: spec.pow2Scales,
    epsilon: spec.amaxEpsilon,
    amaxRecord: addressOf(amaxRecord),
  };
}
