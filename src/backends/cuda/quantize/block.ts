/** Block-scaled FP8 on a GPU: both copies from one pass over the input. */
import { factsOf } from "../../../formats/derive.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/placement.js";
import { addressOf, type LoweringContext, wideOf } from "../lowering.js";

export function quantizeBlock({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, noop } = args;
  const size = asMatrix(x.shape);
  const [rows, columns] = size;
  const own = {
    x: x.address,
    xType: wideOf(x),
    rows,
    columns,
    word: factsOf(spec.format).word,
    square: spec.tile === "128x128",
    inPlace: spec.compact,
    pow2: spec.pow2Scales,
    epsilon: spec.epsilon,
    noop: addressOf(noop),
  };
  addon.quantizeBlock(device, own, ...copiesOf(args, size));
}
