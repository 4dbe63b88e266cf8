/** MXFP8, MXFP6 and MXFP4 on a GPU: both copies from one pass over the input. */
import { BLOCK_FORMATS } from "../../formats/block.js";
import { SCALE_RULE } from "../../formats/contract.gen.js";
import { factsOf } from "../../formats/derive.js";
import type { Direction, QuantizedCopy } from "../../tensor/quantized.js";
import { asMatrix } from "../../tensor/shape.js";
import type { NativeArgs } from "../addon.js";
import type { QuantizeArgs } from "../ops.js";
import { addressOf, type LoweringContext, randomWords, wideOf } from "./lowering.js";
import { placement } from "./placement.js";

export function quantizeMx({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, random, rowwise, columnwise, noop } = args;
  const [rows, columns] = asMatrix(x.shape);
  addon.quantizeMx(device, {
    x: x.address,
    xType: wideOf(x),
    rows,
    columns,
    word: factsOf(spec.format).word,
    rule: SCALE_RULE[BLOCK_FORMATS[spec.quantizer].rule],
    square: spec.tile === "32x32",
    stochastic: spec.stochastic,
    ...randomWords(random),
    ...copyArgs(args, "rowwise", rowwise),
    ...copyArgs(args, "columnwise", columnwise),
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
