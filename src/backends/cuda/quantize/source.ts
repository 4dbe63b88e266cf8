/** The arguments that the calls of all quantizers have: a matrix, how its scales and elements are computed, and a flag. */
import { SCALE_RULE } from "../../../formats/contract.gen.js";
import { scalingBits } from "../../../formats/element-scalings.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { QuantizeArgs } from "../../ops.js";
import { addressOf, wideOf } from "../lowering.js";
import { SOURCE } from "../shared-arguments.js";

export const QUANTIZED = { ...SOURCE, rule: "scaleRule", scaling: "word", "noop?": "pointer" } as const;

/** Returns the arguments that `QUANTIZED` declares. */
export function quantizedSource({ x, spec, noop }: QuantizeArgs) {
  const [rows, columns] = asMatrix(x.shape);
  return {
    x: x.address,
    xType: wideOf(x),
    rows,
    columns,
    rule: SCALE_RULE[spec.scaleRule],
    scaling: scalingBits(spec.elementScaling),
    noop: addressOf(noop),
  };
}
