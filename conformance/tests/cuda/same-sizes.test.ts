/**
 * Products of the same sizes, one after another in one process, which differ only in layout, types and options. A cached plan of
 * one product must not be used for another.
 */
import * as fc from "fast-check";
import { it } from "vitest";
import { UnsupportedError } from "../../../src/errors.js";
import { Scope } from "../../../src/tensor/scope.js";
import { assertSame } from "../../values/difference.js";
import { download } from "../../values/plain.js";
import { multiply, type Variant, variant } from "../arbitraries/same-sizes.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "../harness/gpu/gpu.js";

const PROCESSES = Math.min(Math.ceil(RUNS / 10), 100);

describeOnGpu("products of one size in one process", () => {
  const { gpu, reference } = useGpu();

  const check = (input: Variant): void => {
    using _scope = new Scope();
    try {
      const { out, plan } = multiply(gpu(), input);
      assertSame("out", download(out), download(multiply(reference(), input, plan).out));
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
    }
  };

  it("do not use each other's plans, in any order", () => {
    fc.assert(
      fc.property(fc.array(variant, { minLength: 12, maxLength: 24 }), (variants) => {
        for (const each of variants) check(each);
      }),
      { numRuns: PROCESSES, seed: SEED },
    );
  });
});
