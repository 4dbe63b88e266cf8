/** Quantization to 4-bit integers with f32 scales of groups on a GPU: one pass over the input for each copy. */
import { tileSize } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/copies.js";
import type { LoweringContext } from "../lowering.js";
import { bounded, type Declarations, internal } from "../native-arguments.js";
import { quantizedCopy } from "../shared-arguments.js";
import { NOOP, QUANTIZED, quantizedSource, SCALING } from "./source.js";

const COPY = quantizedCopy("u4", "4");

export const GROUP_CALLS = {
  /** The launcher returns cudaErrorInvalidValue for a format, rule, scaling or size that is not described below. */
  quantizeGroup: {
    /** A rule with f32 scales, and sizes that are multiples of 32. */
    ...QUANTIZED,
    /** The format word of int4. */
    word: "word",
    /** The number of elements of a group: 32, 64 or 128. The last group of a line may be shorter. */
    length: bounded({ to: 128, type: "uint32_t" }),
    "rowwise?": COPY,
    "columnwise?": COPY,
    pow2: internal("bool", "Always false: scales of integers are not rounded to powers of two."),
    epsilon: "float",
    ...NOOP,
    ...SCALING,
  },
} as const satisfies Declarations;

export function quantizeGroup({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { spec } = args;
  const [, length] = tileSize(spec.tile);
  addon.quantizeGroup(device, {
    word: factsOf(spec.format).word,
    ...quantizedSource(args),
    length,
    epsilon: spec.amaxEpsilon,
    ...copiesOf(args),
  });
}
