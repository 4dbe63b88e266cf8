/** A `mainGrad` accumulates the same values as `grad` would without it, however often a weight is used. */
import { describe, expect, it } from "vitest";
import {
  autocast,
  clipGradNorm,
  Float8CurrentScaling,
  functional,
  Linear,
  noGrad,
  RandomState,
  recompute,
  Scope,
  SGD,
  tensor,
  type Variable,
  zeros,
} from "../../../src/index.js";
import { drawnTensor } from "../harness/drawn-tensor.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const SIZE = 32;
const [FIRST, LATER] = [{ isFirstMicrobatch: true }, { isFirstMicrobatch: false }];

const drawn = (seed: number) => drawnTensor(backend(), seed, [SIZE, SIZE], "f32");

/**
 * The weight's gradient after `body`. A main gradient starts with values that the first microbatch has to overwrite.
 */
function gradientOf(fuseWgradAccumulation: boolean, body: (layer: Linear) => void): Float32Array {
  const random = new RandomState(1n);
  using layer = new Linear(backend(), SIZE, SIZE, { dtype: "f32", random, fuseWgradAccumulation });
  const { weight } = layer;
  if (fuseWgradAccumulation)
    weight.mainGrad = zeros(backend(), "f32", [SIZE, SIZE]).write(drawn(9).dataSync());
  body(layer);
  return (weight.mainGrad ?? weight.grad)?.dataSync().slice() as Float32Array;
}

const programs: Record<string, (layer: Linear, run: (f: () => Variable) => Variable) => void> = {
  "one layer after itself": (layer, run) =>
    run(() => layer.forward(layer.forward(drawn(1), FIRST), FIRST)).backward(drawn(2)),
  "one layer after itself, computed again": (layer, run) =>
    run(() =>
      recompute(
        (x) =>
          layer.forward(
            recompute((h) => layer.forward(h, FIRST), x),
            FIRST,
          ),
        drawn(1),
      ),
    ).backward(drawn(2)),
  "two microbatches that are gone back through at once": (layer, run) =>
    run(() => functional.add(layer.forward(drawn(1), FIRST), layer.forward(drawn(3), LATER))).backward(
      drawn(2),
    ),
  "two microbatches computed again": (layer, run) =>
    run(() => {
      const part = (seed: number, call: object) => recompute((x) => layer.forward(x, call), drawn(seed));
      return functional.add(part(1, FIRST), part(3, LATER));
    }).backward(drawn(2)),
  "two losses of a first microbatch, and evaluation in between": (layer, run) => {
    const [first, second] = [1, 3].map((seed) => run(() => layer.forward(drawn(seed), FIRST)));
    first?.backward(drawn(2));
    noGrad(() => run(() => recompute((x) => layer.forward(x, FIRST), drawn(4))));
    second?.backward(drawn(5));
  },
};

describe.each(Object.entries(programs))("in a first microbatch, %s", (_, program) => {
  const recipe = new Float8CurrentScaling();
  it.each([
    ["no recipe", (f: () => Variable) => f()],
    ["a recipe", (f: () => Variable) => autocast({ recipe }, f)],
  ])("loses nothing, under %s", (_, run) => {
    const [fused, plain] = [true, false].map((fuse) => {
      using _scope = new Scope();
      return gradientOf(fuse, (layer) => program(layer, run));
    }) as [Float32Array, Float32Array];
    const error = Math.hypot(...fused.map((value, i) => value - (plain[i] as number)));
    expect(error).toBeLessThan(1e-5 * Math.hypot(...plain));
  });
});

describe("a weight that is an embedding's table as well", () => {
  /** The weight after a clipped step, and the norm. */
  function stepped(fuseWgradAccumulation: boolean) {
    using _scope = new Scope();
    const random = new RandomState(1n);
    const options = { dtype: "f32", bias: false, random, fuseWgradAccumulation } as const;
    using layer = new Linear(backend(), SIZE, SIZE, options);
    const { weight } = layer;
    if (fuseWgradAccumulation) weight.mainGrad = zeros(backend(), "f32", [SIZE, SIZE]);
    const ids = tensor(backend(), Int32Array.of(3, 0, 3), [3], "i32");
    layer.forward(functional.embedding(weight, ids)).backward(drawnTensor(backend(), 2, [3, SIZE], "f32"));
    using optimizer = new SGD(layer, { learningRate: 1 });
    const { norm, factor } = clipGradNorm(optimizer, 1);
    optimizer.step({ gradScale: factor });
    return { norm: norm.dataSync().slice(), weight: weight.tensor.dataSync().slice() };
  }

  it("is updated by both gradients, and gradient clipping counts both", () => {
    const [fused, plain] = [stepped(true), stepped(false)];
    expect(fused).toEqual(plain);
  });
});
