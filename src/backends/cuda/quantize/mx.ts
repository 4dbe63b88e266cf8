/** Quantization to MXFP8, MXFP6 and MXFP4 on a GPU. One pass over the input writes both copies. */
import { isSquare } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/copies.js";
import { addressOf, type LoweringContext, randomWords } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { COPIES, PART, RANDOM } from "../shared-arguments.js";
import { QUANTIZED, quantizedSource } from "./source.js";

export const MX_CALLS = {
  quantizeMx: {
    ...QUANTIZED,
    word: "word",
    square: "flag",
    stochastic: "flag",
    ...RANDOM,
    ...PART,
    "rowwiseWords?": "pointer",
    "columnwiseWords?": "pointer",
    ...COPIES,
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
    rowwiseWords: addressOf(args.randomBits),
    columnwiseWords: addressOf(args.randomBitsColumnwise),
    ...copiesOf(args),
  });
}
