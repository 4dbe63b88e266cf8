/** Quantization to MXFP8, MXFP6 and MXFP4 on a GPU. One pass over the input writes both copies. */
import { isSquare } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/copies.js";
import { addressOf, type LoweringContext, randomWords, ruleOf, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { COPIES, PART, RANDOM, RULE, SOURCE } from "../shared-arguments.js";

export const MX_CALLS = {
  quantizeMx: {
    ...SOURCE,
    word: "word",
    ...RULE,
    square: "flag",
    stochastic: "flag",
    ...RANDOM,
    ...PART,
    "rowwiseWords?": "pointer",
    "columnwiseWords?": "pointer",
    "noop?": "pointer",
    ...COPIES,
  },
} as const satisfies Declarations;

export function quantizeMx({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, random, part, noop } = args;
  const [rows, columns] = asMatrix(x.shape);
  addon.quantizeMx(device, {
    x: x.address,
    xType: wideOf(x),
    rows,
    columns,
    word: factsOf(spec.format).word,
    ...ruleOf(spec),
    square: isSquare(spec.tile),
    stochastic: spec.stochastic,
    random: randomWords(random),
    part: spec.stochastic ? part : undefined,
    rowwiseWords: addressOf(args.randomBits),
    columnwiseWords: addressOf(args.randomBitsColumnwise),
    noop: addressOf(noop),
    ...copiesOf(args),
  });
}
