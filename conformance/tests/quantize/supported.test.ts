/** What a GPU says of every spec, before it runs: it has some scale rules and one way to scale elements. */
import { describe, expect, it } from "vitest";
import { supportsQuantization } from "../../../src/backends/cuda/lowering.js";
import { quantizersWith } from "../../../src/formats/block.js";
import { makeSpec } from "../../../src/quantizers/quantizer.js";
import { QUANTIZERS, specsOf } from "../../arbitraries/specs.js";

const KERNEL_RULES = ["f32", "e8m0Up", "e8m0UpQuotient", "e8m0Floor", "e8m0Ceil", "e8m0Even", "twoLevel"];

describe.each(QUANTIZERS)("a quantization by %s on a GPU", (name) => {
  it("is supported if kernels have its rule and elements are multiplied, else refused by that name", () => {
    for (const spec of specsOf(name)) {
      const { scaleRule, elementScaling } = spec;
      const support = supportsQuantization({ spec });
      const hasRule = KERNEL_RULES.includes(scaleRule);
      expect(support.ok).toBe(hasRule && elementScaling === "multiply");
      if (!support.ok) expect(support.reason).toContain(hasRule ? elementScaling : scaleRule);
    }
    expect(supportsQuantization({ spec: makeSpec(name, {}) }).ok).toBe(true);
  });
});

it("is refused for some specs of every quantizer with a choice of rules", () => {
  for (const name of quantizersWith("scaleRule"))
    expect(specsOf(name).some((spec) => !supportsQuantization({ spec }).ok)).toBe(true);
});
