/** Quantization to block-scaled FP8 on a GPU. One pass over the input writes both copies. */
import { isSquare } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/copies.js";
import type { LoweringContext } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { COPIES } from "../shared-arguments.js";
import { QUANTIZED, quantizedSource } from "./source.js";

export const BLOCK = {
  ...QUANTIZED,
  word: "word",
  square: "flag",
  inPlace: "flag",
  pow2: "flag",
  epsilon: "float",
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
