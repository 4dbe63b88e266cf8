/** A layer whose activations are computed again is the layer that keeps them, bit for bit. */
import { describe, expect, it } from "vitest";
import { autocast } from "../src/autocast/autocast.js";
import { mseLoss } from "../src/functional/loss.js";
import { Linear } from "../src/modules/linear.js";
import { recompute } from "../src/modules/recompute.js";
import { encode } from "../src/ops/cast.js";
import { tensor } from "../src/ops/create.js";
import { RandomState } from "../src/quantizers/quantizer.js";
import { normal } from "../src/random.js";
import { DelayedScaling } from "../src/recipes/per-tensor.js";
import { type Variable, variable } from "../src/tape/variable.js";
import { Scope } from "../src/tensor/scope.js";
import { useBackend } from "./harness/suite.js";

const SIZE = 32;
const STEPS = 4;

describe("recompute under delayed scaling", () => {
  const backend = useBackend();

  /** Scales, amaxes and the weight's gradient after a few steps. */
  function trained(call: (layer: Linear, x: Variable) => Variable) {
    using _ = new Scope();
    const recipe = new DelayedScaling({ amaxHistoryLen: 3 });
    using first = new Linear(backend(), SIZE, SIZE, { random: new RandomState(1n) });
    using second = new Linear(backend(), SIZE, SIZE, { random: new RandomState(2n) });
    for (let step = 0; step < STEPS; step++) {
      const values = normal({ seed: 3n, offset: BigInt(step) }, SIZE * SIZE, 1 + step);
      const x = encode(tensor(backend(), values, [SIZE, SIZE]), { format: "bf16" });
      const out = autocast({ recipe }, () => second.forward(call(first, variable(x))));
      mseLoss(out, x).backward();
    }
    const states = [first, second].map((layer) =>
      [...layer.namedQuantizations().values()].map((each) => each.snapshotSync()),
    );
    return { states, grads: [first, second].map(({ weight }) => weight.grad?.dataSync()) };
  }

  it("gives the scales, amaxes and gradients that keeping activations gives", () => {
    const kept = trained((layer, x) => layer.forward(x));
    expect(kept.states[0]?.[0]?.forward.scale).not.toContain(0);
    expect(trained((layer, x) => recompute((h) => layer.forward(h), x))).toEqual(kept);
  });
});

describe("a gradient that a layer quantized", () => {
  const backend = useBackend();

  it("is taken by the layer before it, whose weight's gradient is near that of a wide one", () => {
    const gradient = (fp8Grad: boolean): Float32Array => {
      using _ = new Scope();
      const random = new RandomState(1n);
      using first = new Linear(backend(), SIZE, SIZE, { random, dtype: "f32" });
      using second = new Linear(backend(), SIZE, SIZE, { random, dtype: "f32" });
      const x = tensor(backend(), normal({ seed: 3n, offset: 0n }, SIZE * SIZE, 1), [SIZE, SIZE]);
      const out = autocast({ recipe: new DelayedScaling() }, () =>
        second.forward(first.forward(x), { fp8Grad }),
      );
      out.backward(x);
      return first.weight.grad?.dataSync() as Float32Array;
    };
    const [wide, quantized] = [gradient(false), gradient(true)];
    const distance = Math.hypot(...wide.map((value, i) => value - (quantized[i] as number)));
    expect(distance).toBeLessThan(0.1 * Math.hypot(...wide));
  });
});
