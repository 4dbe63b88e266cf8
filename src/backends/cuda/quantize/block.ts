/** Quantization to block-scaled FP8 on a GPU. One pass over the input writes both copies. */
import { isSquare } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/copies.js";
import { addressOf, type LoweringContext, ruleOf, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { COPIES, RULE, SOURCE } from "../shared-arguments.js";

export const BLOCK = {
  ...SOURCE,
  word: "word",
  ...RULE,
  square: "flag",
  inPlace: "flag",
  pow2: "flag",
  epsilon: "float",
  "noop?": "pointer",
  ...COPIES,
} as const;

export const BLOCK_CALLS = {
  quantizeBlock: BLOCK,
} as const satisfies Declarations;

export function quantizeBlock({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  addon.quantizeBlock(device, blockSource(args));
}

/** Returns the arguments of the kernel. */
export function blockSource(args: QuantizeArgs) {
  const { x, spec, noop } = args;
  const [rows, columns] = asMatrix(x.shape);
  return {
    x: x.address,
    xType: wideOf(x),
    rows,
    columns,
    word: factsOf(spec.format).word,
    ...ruleOf(spec),
    square: isSquare(spec.tile),
    inPlace: spec.compact,
    pow2: spec.pow2Scales,
    epsilon: spec.amaxEpsilon,
    noop: addressOf(noop),
    ...copiesOf(args),
  };
}
