/** Quantization to per-tensor FP8 on a GPU. The scale is read or computed on the device. */
import { factsOf } from "../../../formats/derive.js";
import type { ScalarFormat } from "../../../formats/scalar.js";
import type { QuantizeSpec } from "../../../tensor/quantized.js";
import type { QuantizeArgs } from "../../ops.js";
import { plainCopiesOf } from "../layout/copies.js";
import type { LoweringContext } from "../lowering.js";
import { type Declarations, internal, reads, scratch, updates, writes } from "../native-arguments.js";
import { NOOP, QUANTIZED, quantizedSource, SCALING } from "./source.js";

/** The stored scale of each copy: 1 / scale under kF32, or the value that another rule stores. */
export const SCALE_INV = {
  "rowwiseScaleInv?": writes.f32("1"),
  "columnwiseScaleInv?": writes.f32("1"),
} as const;

export const AMAX_OUT = {
  "amaxOut?": updates.f32("1", "If not null, replaced by max |x| if that is larger; NaN is ignored."),
} as const;

const TENSOR_INPUT = {
  /** A rule with f32 scales. A given scale is the multiplier that kF32 would compute, under any rule. */
  ...QUANTIZED,
  /** The format word of a signed format of 8 bits; fused kernels write e4m3 and e5m2. */
  word: "word",
  ...SCALING,
  "rowwise?": writes.u8("rows * columns", "Null if the copy is not wanted."),
  "columnwise?": writes.u8("rows * columns", "[columns, rows]; null if the copy is not wanted."),
  ...SCALE_INV,
  "scale?": reads.f32("1", "Null if it is computed from `amax`."),
  "amax?": reads.f32("1", "If this and the scale are null, it is computed in `workspace` first."),
} as const;

const TENSOR_RULE = {
  pow2: "flag",
  epsilon: "float",
  ...AMAX_OUT,
  chunkSums: internal(
    "float*",
    "If not null, receives the column sums of each 32 rows (kernels/rows/column-sum.h), [chunks, columns], of a 16-bit source.",
  ),
  ...NOOP,
} as const;

/** A quantization without a workspace. */
export const TENSOR = { ...TENSOR_INPUT, ...TENSOR_RULE } as const;

/** The element formats that fused kernels write, which the hardware converts to. */
const FUSED_FORMATS: readonly ScalarFormat[] = ["e4m3", "e5m2"];

/** Whether fused kernels write elements of the format of a spec. */
export function hasFusedFormat({ format }: Pick<QuantizeSpec, "format">): boolean {
  return FUSED_FORMATS.includes(format);
}

export const TENSOR_CALLS = {
  /**
   * The launcher returns cudaErrorInvalidValue for a format, rule or scaling that is not described above; if there is no copy; if
   * scale, amax and workspace are all absent; and for column sums if x is f32 or the rule is not kF32.
   */
  quantizeTensor: { ...TENSOR_INPUT, "workspace?": scratch.f32("1"), ...TENSOR_RULE },
} as const satisfies Declarations;

export function quantizeTensor(context: LoweringContext, args: QuantizeArgs): void {
  if (args.scale || args.amax) launch(context, args);
  else context.withTemporary(4, (workspace) => launch(context, args, workspace));
}

function launch({ addon, device }: LoweringContext, args: QuantizeArgs, workspace?: number): void {
  addon.quantizeTensor(device, { workspace, ...tensorSource(args) });
}

/**
 * Returns the arguments of the kernel, except the workspace for the amax of x, which it needs if neither a scale nor an amax is
 * given.
 */
export function tensorSource(args: QuantizeArgs) {
  const { spec, scale, amax, amaxRecord } = args;
  return {
    word: factsOf(spec.format).word,
    ...quantizedSource(args),
    ...plainCopiesOf(args),
    scale,
    amax,
    pow2: spec.pow2Scales,
    epsilon: spec.amaxEpsilon,
    amaxOut: amaxRecord,
  };
}
