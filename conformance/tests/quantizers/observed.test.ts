/** ObservedQuantizer reports each quantization, with the values that were quantized. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import { ObservedQuantizer } from "../../../src/quantizers/observed.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import { normal } from "../../../src/random.js";
import type { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const SHAPE = [32, 64] as const;
const backend = useBackend();

const MAKE = {
  current: () => new Float8CurrentScalingQuantizer(),
  mxfp8: () => new MXFP8Quantizer({ columnwise: true }),
  nvfp4: () => new NVFP4Quantizer(),
} as const satisfies Record<string, () => Quantizer>;

const NAMES = Object.keys(MAKE) as (keyof typeof MAKE)[];

function source(seed: number): Tensor<WideDType> {
  const values = normal({ seed: BigInt(seed), offset: 0n }, SHAPE[0] * SHAPE[1], 1);
  return castTo(tensor(backend(), values, SHAPE), "bf16");
}

const bits = (quantizedTensor: QuantizedTensor): unknown =>
  quantizedTensor.members.map((member) => [...member.dataSync()]);

/** A call: into a new tensor, or into the previous one with the flag `noop` absent, 0 or 1. */
const call = fc.record({
  into: fc.constantFrom("new", "previous"),
  noop: fc.constantFrom(undefined, 0, 1),
  isActive: fc.boolean(),
});

it("reports every quantization while the observer is active: codes of the source, and none under noop 1", () => {
  const calls = fc.array(call, { minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(fc.constantFrom(...NAMES), calls, (name, sequence) => {
      using _ = new Scope();
      const make = MAKE[name];
      let isActive = true;
      const reports: (readonly [codes: unknown, source: readonly number[]])[] = [];
      const quantizer = new ObservedQuantizer(make(), {
        isActive: () => isActive,
        record: (quantizedTensor, x) => reports.push([bits(quantizedTensor), [...x.dataSync()]]),
      });
      const expected: typeof reports = [];
      let target = quantizer.quantize(source(0));
      reports.length = 0;
      for (const [i, { into, noop, isActive: active }] of sequence.entries()) {
        isActive = active;
        const x = source(i + 1);
        if (into === "new") target = quantizer.quantize(x);
        else if (noop === undefined) quantizer.updateQuantized(x, target);
        else quantizer.updateQuantized(x, target, { noop: tensor(backend(), [noop]) });
        const isMade = into === "new" || noop !== 1;
        if (active && isMade) expected.push([bits(make().quantize(x)), [...x.dataSync()]]);
      }
      expect(reports).toEqual(expected);
    }),
    {
      numRuns: draws(60, 4),
      examples: [["mxfp8", [{ into: "previous", noop: 1, isActive: true }]]],
    },
  );
});
