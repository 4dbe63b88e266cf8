/** What a block of zeros becomes by a rule: 0 / 0, where its scale is 0 and elements are divided by it. */

import { hasGivenScale } from "../formats/block.js";
import { factsOf } from "../formats/derive.js";
import { ELEMENT_SCALINGS } from "../formats/element-scalings.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { blockScaleBy } from "./block-scale.js";
import { roundedElement, scaledElement } from "./element.js";
import { Steps } from "./steps.js";
import { tensorScaleOf } from "./tensor-scale.js";
import { codeText, numberText } from "./text.js";

/**
 * Says that a block of zeros is 0 / 0 by the rule of a spec, and which codes it gets, in a sentence. Undefined where they are
 * zeros. For matrices that have other blocks too, and for those of zeros alone. /
 */
export function zeroBlockNote(spec: QuantizeSpec): string | undefined {
  if (hasGivenScale(spec)) return undefined;
  const { scaleRule, elementScaling, format } = spec;
  for (const tensorAmax of [1, 0]) {
    const result = blockScaleBy(spec, {
      steps: new Steps(),
      amax: 0,
      tensorAmax,
      dtype: "f32",
      tensorScale: tensorScaleOf(scaleRule, tensorAmax, "f32")?.value ?? 1,
      lines: [],
    });
    const { value } = scaledElement(0, result, elementScaling, "f32");
    if (!Number.isNaN(value)) continue;
    const { code, result: stored } = roundedElement(value, spec);
    const where = tensorAmax === 0 ? "a matrix of zeros" : "a block of zeros";
    return `${where} is 0 / 0 by ${scaleRule} and ${elementScaling} (${ELEMENT_SCALINGS[elementScaling].formula}): its codes are ${codeText(code, factsOf(format).bits)}, ${numberText(stored)}`;
  }
  return undefined;
}
