/** Quantization to 4-bit integers with f32 scales of groups on a GPU: one pass over the input for each copy. */
import { tileSize } from "../../../formats/block.js";
import { factsOf } from "../../../formats/derive.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/copies.js";
import type { LoweringContext } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { COPIES } from "../shared-arguments.js";
import { QUANTIZED, quantizedSource } from "./source.js";

export const GROUP_CALLS = {
  quantizeGroup: {
    ...QUANTIZED,
    word: "word",
    length: "count",
    epsilon: "float",
    ...COPIES,
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
