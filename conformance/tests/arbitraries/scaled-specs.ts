/** The specs of a block format with each of its scale rules, element formats and scalings. */
import { BLOCK_FORMATS, type BlockFormatName } from "../../../src/formats/block.js";
import { scalingsOf } from "../../../src/formats/scale-rules.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { makeSpec } from "../../../src/tensor/spec.js";

/** Returns one spec of each, with the defaults of the format otherwise. */
export function scaledSpecs(name: BlockFormatName): readonly QuantizeSpec[] {
  const { rules, elements } = BLOCK_FORMATS[name];
  return rules.flatMap((scaleRule) =>
    elements.flatMap((format) =>
      scalingsOf(scaleRule, format).map((elementScaling) =>
        makeSpec(name, { scaleRule, elementScaling, format }),
      ),
    ),
  );
}
