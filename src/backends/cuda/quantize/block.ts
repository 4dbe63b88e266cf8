/** Quantization to block-scaled FP8 on a GPU. One pass over the input writes both copies. */
import { isSquare } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/copies.js";
import type { LoweringContext } from "../lowering.js";
import { type Declarations, internal } from "../native-arguments.js";
import { quantizedCopy } from "../shared-arguments.js";
import { NOOP, QUANTIZED, quantizedSource, SCALING } from "./source.js";

const COPY = quantizedCopy("u8", "4");

/**
 * The launcher returns cudaErrorInvalidValue for a format, rule or scaling that is not described below, and for column sums if x
 * is f32 or the rule is not kF32.
 */
export const BLOCK = {
  /** A rule with f32 scales. */
  ...QUANTIZED,
  /** The format word of a signed format of 8 bits. */
  word: "word",
  /** Whether blocks have 128x128 elements; otherwise 1x128. */
  square: "flag",
  "rowwise?": COPY,
  "columnwise?": COPY,
  /** Whether the columnwise codes are not transposed. */
  inPlace: "flag",
  pow2: "flag",
  epsilon: "float",
  chunkSums: internal(
    "float*",
    "If not null, receives the column sums of each 32 rows (kernels/rows/column-sum.h), [chunks, columns], of a 16-bit source.",
  ),
  ...NOOP,
  ...SCALING,
} as const;

export const BLOCK_CALLS = {
  quantizeBlock: BLOCK,
} as const satisfies Declarations;

export function quantizeBlock({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  addon.quantizeBlock(device, blockSource(args));
}

/** Returns the arguments of the kernel. */
export function blockSource(args: QuantizeArgs) {
  const { spec } = args;
  return {
    word: factsOf(spec.format).word,
    ...quantizedSource(args),
    square: isSquare(spec.tile),
    inPlace: spec.compact,
    pow2: spec.pow2Scales,
    epsilon: spec.amaxEpsilon,
    ...copiesOf(args),
  };
}
