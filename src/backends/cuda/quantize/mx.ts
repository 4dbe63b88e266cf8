/** Quantization to MXFP8, MXFP6 and MXFP4 on a GPU. One pass over the input writes both copies. */
import { isSquare } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/copies.js";
import { type LoweringContext, randomWords } from "../lowering.js";
import { type Declarations, reads } from "../native-arguments.js";
import { PART, quantizedCopy, RANDOM } from "../shared-arguments.js";
import { NOOP, QUANTIZED_TO, quantizedSource, SCALING } from "./source.js";

const COPY = quantizedCopy("storage", "1");

export const MX_CALLS = {
  /** The launcher returns cudaErrorInvalidValue if sizes, format, rule or placements are not as described below. */
  quantizeMx: {
    /** Sizes that are multiples of 32, a signed format of at most 8 bits, and a rule with e8m0 scales. */
    ...QUANTIZED_TO,
    /** Whether blocks have 32x32 elements; otherwise 1x32. The scale of a 32x32 block is stored for each of its 32 lines. */
    square: "flag",
    /** Whether elements are rounded stochastically; otherwise to nearest even. */
    stochastic: "flag",
    ...RANDOM,
    /** With stochastic rounding: the larger matrix that this one is a part of. Its elements select the random bits. */
    ...PART,
    "rowwiseWords?": reads.u32(
      "rows * columns",
      "If not null, each element of the copy is rounded by a word of its own, in the order of the codes.",
    ),
    "columnwiseWords?": reads.u32("rows * columns"),
    /** All bits except kDivides. */
    ...SCALING,
    "rowwise?": COPY,
    /** The codes are transposed if they have 4 bits. */
    "columnwise?": COPY,
    ...NOOP,
  },
} as const satisfies Declarations;

export function quantizeMx({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { spec, random, part } = args;
  addon.quantizeMx(device, {
    word: factsOf(spec.format).word,
    ...quantizedSource(args),
    square: isSquare(spec.tile),
    stochastic: spec.stochastic,
    random: randomWords(random),
    part: spec.stochastic ? part : undefined,
    rowwiseWords: args.randomBits,
    columnwiseWords: args.randomBitsColumnwise,
    ...copiesOf(args),
  });
}
