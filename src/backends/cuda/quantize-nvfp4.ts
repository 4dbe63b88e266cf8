/** NVFP4 on a GPU: one pass over the input for amaxes that are not given, one for both copies. */
import type { Direction, QuantizedCopy } from "../../tensor/quantized.js";
import { asMatrix } from "../../tensor/shape.js";
import type { NativeArgs } from "../addon.js";
import type { QuantizeArgs } from "../ops.js";
import { addressOf, type LoweringContext, randomWords, wideOf } from "./lowering.js";
import { placement } from "./placement.js";

export function quantizeNvfp4({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, random, noop } = args;
  const [rows, columns] = asMatrix(x.shape);
  // without the transform, an amax that is given serves both copies (numerics.md §5.2)
  const amaxColumnwise = args.amaxColumnwise ?? (spec.rht ? undefined : args.amax);
  addon.quantizeNvfp4(device, {
    x: x.address,
    xType: wideOf(x),
    rows,
    columns,
    ...copyArgs(args, "rowwise", args.rowwise, args.amax),
    ...copyArgs(args, "columnwise", args.columnwise, amaxColumnwise),
    square: spec.tile === "16x16",
    transforms: spec.rht,
    signs: spec.rhtSigns,
    stochastic: spec.stochastic,
    ...randomWords(random),
    fourOverSix: spec.fourOverSix !== "none",
    squaredError: spec.fourOverSix === "mse",
    e4m3Max: spec.e4m3Max,
    noop: addressOf(noop),
  });
}

/** The codes, scales and amax of a copy, if it is wanted. */
function copyArgs(
  { x, spec, scaleLayout }: QuantizeArgs,
  direction: Direction,
  copy: QuantizedCopy | undefined,
  given: QuantizeArgs["amax"],
): NativeArgs {
  if (!copy) return {};
  const scales = { spec, size: asMatrix(x.shape), direction, layout: scaleLayout } as const;
  return {
    [direction]: copy.data.address,
    ...placement(direction, scales, copy.scaleInv.address),
    [`${direction}Amax`]: addressOf(copy.amax),
    [`${direction}GivenAmax`]: addressOf(given),
  };
}
