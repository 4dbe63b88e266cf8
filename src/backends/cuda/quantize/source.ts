/** The arguments that the calls of all quantizers have: a matrix, how its scales and elements are computed, and a flag. */
import { SCALE_RULE } from "../../../formats/contract.gen.js";
import { scalingBits } from "../../../formats/element-scalings.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { QuantizeArgs } from "../../ops.js";
import { reads } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

const X = { x: reads.wide("rows * columns") } as const;

/** The matrix, and the rule by which its scales are computed. */
export const QUANTIZED = { ...X, rule: "scaleRule", ...SIZE } as const;

/** As `QUANTIZED`, with the format word of the elements before the rule. */
export const QUANTIZED_TO = { ...X, ...SIZE, word: "word", rule: "scaleRule" } as const;

/** The sum of the bits of ElementScaling by which elements are scaled. 0 is one multiplication. */
export const SCALING = { scaling: "word" } as const;

export const NOOP = {
  "noop?": reads.f32("1", "If not null and the value is exactly 1, nothing is written."),
} as const;

/** Returns the arguments of `QUANTIZED`, `SCALING` and `NOOP`. */
export function quantizedSource({ x, spec, noop }: QuantizeArgs) {
  const [rows, columns] = asMatrix(x.shape);
  return {
    x,
    rows,
    columns,
    rule: SCALE_RULE[spec.scaleRule],
    scaling: scalingBits(spec.elementScaling),
    noop,
  };
}
