/** Detects rules under which a block of zeros is 0 / 0, because its scale is 0 and elements are divided by it. */

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
 * A sentence that says which codes a block of zeros gets if the spec's rule makes it 0 / 0; undefined if its codes are zeros. A
 * matrix that has nonzero blocks is tried first, then a matrix of zeros only.
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
    const { code, result: stored } = roundedElement(value, spec);
    // formats of integers store 0 / 0 as 0
    if (stored === 0) continue;
    const where = tensorAmax === 0 ? "a matrix of zeros" : "a block of zeros";
    return `${where} is 0 / 0 by ${scaleRule} and ${elementScaling} (${ELEMENT_SCALINGS[elementScaling].formula}): its codes are ${codeText(code, factsOf(format).bits)}, ${numberText(stored)}`;
  }
  return undefined;
}
