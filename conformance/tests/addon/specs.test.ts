/**
 * The addon accepts every spec that the CUDA backend does not decline: none of its checks refuses a scale rule, element scaling,
 * format or layout that the backend lowers.
 */
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { openCuda } from "../../../src/backends/cuda/backend.js";
import { UnsupportedError } from "../../../src/errors.js";
import { empty } from "../../../src/ops/create.js";
import type { QuantizeSpec, ScaleLayout, Usage } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { layoutsOf, QUANTIZERS, sourceTypes, specsOf, USAGES } from "../../arbitraries/specs.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

const SHAPE = [32, 128] as const;

interface Quantization {
  readonly dtype: WideDType;
  readonly usage: Usage;
  readonly scaleLayout: ScaleLayout;
}

/** The input type, the copies and the layout of spec `i`. All combinations are distributed over the specs of a quantizer. */
function quantizationOf(spec: QuantizeSpec, i: number): Quantization {
  const cases = sourceTypes(spec).flatMap((dtype) =>
    USAGES.flatMap((usage) => layoutsOf(spec).map((scaleLayout) => ({ dtype, usage, scaleLayout }))),
  );
  return cases[i % cases.length] as Quantization;
}

describeOnStandIn("the addon accepts every spec that the CUDA backend supports", (addon) => {
  let gpu: Backend;
  beforeAll(() => {
    gpu = openCuda(addon);
  });
  afterAll(() => gpu.dispose());

  it.each(QUANTIZERS)("every spec of %s is accepted", (name) => {
    const specs = specsOf(name);
    let declinedCount = 0;
    for (const [i, spec] of specs.entries()) {
      using _scope = new Scope();
      const { dtype, usage, scaleLayout } = quantizationOf(spec, i);
      const x = empty(gpu, dtype, SHAPE);
      const scale = name === "fp8-delayed" ? empty(gpu, "f32", [1]) : undefined;
      const takesAmax = spec.scaleRule.startsWith("twoLevel") && !spec.rowScaled;
      const amax = takesAmax && i % 2 ? empty(gpu, "f32", [1]) : undefined;
      const inputs = { scale, amax, amaxColumnwise: amax, random: { seed: 1n, offset: 0n } };
      try {
        new SpecQuantizer(spec, { ...usage, scaleLayout }, inputs).quantize(x);
      } catch (error) {
        if (!(error instanceof UnsupportedError)) throw new Error(JSON.stringify(spec), { cause: error });
        declinedCount++;
      }
    }
    expect(declinedCount, `of ${specs.length} specs`).toBeLessThan(specs.length / 2);
  });
});
