/** Products of NVFP4 apply the tensor scale as the operand's scale rule defines it, or refuse the rule. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../../../src/errors.js";
import { BLOCK_FORMATS } from "../../../../src/formats/block.js";
import { tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { dequantize } from "../../../../src/ops/quantize/dequantize.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { draws } from "../../harness/draws.js";
import { gridValues } from "../../harness/gradients.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const DEPTH = 32;

/** The rules with a tensor scale that divides. No product applies it. */
const DIVIDING = ["twoLevelDivisor"];

describe.each(BLOCK_FORMATS.nvfp4.rules)("a product of operands of the rule %s", (scaleRule) => {
  it(
    DIVIDING.includes(scaleRule) ? "is refused" : "is that of their values, but for the rounding of sums",
    () => {
      const factor = fc.constantFrom(2 ** -10, 0.3, 1, 700);
      fc.assert(
        fc.property(fc.nat(), factor, factor, (seed, ofX, ofW) => {
          using _scope = new Scope();
          const [x, w] = [ofX, ofW].map((scale, i) => {
            const values = gridValues(seed + i, 3 * DEPTH, 2).map((value) => (value + 0.25) * scale);
            return new NVFP4Quantizer({ scaleRule }).quantize(tensor(backend(), values, [3, DEPTH]));
          }) as [ReturnType<NVFP4Quantizer["quantize"]>, ReturnType<NVFP4Quantizer["quantize"]>];
          const product = () => gemm({ x, w, outDtype: "f32" }).out.dataSync();
          if (DIVIDING.includes(scaleRule)) {
            expect(product).toThrow(UnsupportedError);
            expect(product).toThrow(/scale of the tensor divides; dequantize/);
            return;
          }
          const [values, weights] = [x, w].map((each) => dequantize(each, "f32").dataSync());
          for (const [i, found] of product().entries()) {
            const [row, column] = [Math.floor(i / 3), i % 3];
            let [sum, size] = [0, 0];
            for (let k = 0; k < DEPTH; k++) {
              const term = Number(values?.[row * DEPTH + k]) * Number(weights?.[column * DEPTH + k]);
              sum += term;
              size += Math.abs(term);
            }
            expect(Math.abs(Number(found) - sum)).toBeLessThanOrEqual(size * 2 ** -18);
          }
        }),
        { numRuns: draws(12) },
      );
    },
  );
});
