/** Block-scaled FP8 on a GPU: both copies from one pass over the input. */
import { factsOf } from "../../formats/derive.js";
import type { Direction, QuantizedCopy } from "../../tensor/quantized.js";
import { asMatrix } from "../../tensor/shape.js";
import type { NativeArgs } from "../addon.js";
import type { QuantizeArgs } from "../ops.js";
import { addressOf, type LoweringContext, wideOf } from "./lowering.js";
import { placement } from "./placement.js";

export function quantizeBlock({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, rowwise, columnwise, noop } = args;
  const [rows, columns] = asMatrix(x.shape);
  addon.quantizeBlock(device, {
    x: x.address,
    xType: wideOf(x),
    rows,
    columns,
    word: factsOf(spec.format).word,
    square: spec.tile === "128x128",
    ...copyArgs(args, "rowwise", rowwise),
    ...copyArgs(args, "columnwise", columnwise),
    inPlace: spec.compact,
    pow2: spec.pow2Scales,
    epsilon: spec.epsilon,
    noop: addressOf(noop),
  });
}

/** The codes and scales of a copy, if it is wanted. */
function copyArgs(
  { x, spec, scaleLayout }: QuantizeArgs,
  direction: Direction,
  copy: QuantizedCopy | undefined,
): NativeArgs {
  if (!copy) return {};
  const scales = { spec, size: asMatrix(x.shape), direction, layout: scaleLayout } as const;
  return { [direction]: copy.data.address, ...placement(direction, scales, copy.scaleInv.address) };
}
