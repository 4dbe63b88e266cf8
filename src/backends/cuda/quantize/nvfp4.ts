/** NVFP4 on a GPU: one pass over the input for amaxes that are not given, one for both copies. */
import { isSquare } from "../../../formats/block.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { QuantizeArgs } from "../../ops.js";
import { copiesOf } from "../layout/placement.js";
import { addressOf, type LoweringContext, randomWords, wideOf } from "../lowering.js";

export function quantizeNvfp4({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, random, rowwise, columnwise, amax, noop } = args;
  const size = asMatrix(x.shape);
  const [rows, columns] = size;
  // without the transform, an amax that is given serves both copies (numerics.md §5.2)
  const amaxColumnwise = args.amaxColumnwise ?? (spec.rht ? undefined : amax);
  const own = {
    x: x.address,
    xType: wideOf(x),
    rows,
    columns,
    rowwiseAmax: addressOf(rowwise?.amax),
    rowwiseGivenAmax: addressOf(amax),
    columnwiseAmax: addressOf(columnwise?.amax),
    columnwiseGivenAmax: addressOf(amaxColumnwise),
    square: isSquare(spec.tile),
    transforms: spec.rht,
    signs: spec.rhtSigns,
    stochastic: spec.stochastic,
    fourOverSix: spec.fourOverSix !== "none",
    squaredError: spec.fourOverSix === "mse",
    e4m3Max: spec.e4m3Max,
    noop: addressOf(noop),
  };
  addon.quantizeNvfp4(device, own, randomWords(random), ...copiesOf(args, size));
}
