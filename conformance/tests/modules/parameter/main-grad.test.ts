/** A `mainGrad` accumulates the same values as `grad` would without it, however often a weight is used. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  add,
  autocast,
  clipGradNorm,
  constantInit,
  Float8CurrentScaling,
  functional,
  Linear,
  noGrad,
  normal,
  type OptimizerSlot,
  RandomState,
  recompute,
  Scope,
  SGD,
  type Tensor,
  tensor,
  type Variable,
  type VariableLike,
  zeros,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { WIDE_DTYPES, type WideDType } from "../../../../src/tensor/shape.js";
import { drawnTensor } from "../../harness/drawn-tensor.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();
const SIZE = 32;
const [FIRST, LATER] = [{ isFirstMicrobatch: true }, { isFirstMicrobatch: false }];

const drawInput = (seed: number) => drawnTensor(backend(), seed, [SIZE, SIZE], "f32");

/**
 * The weight's gradient after `body`. A main gradient starts with values that the first microbatch has to overwrite.
 */
function gradientOf(fuseWgradAccumulation: boolean, body: (layer: Linear) => void): Float32Array {
  const random = new RandomState(1n);
  using layer = new Linear(backend(), SIZE, SIZE, { dtype: "f32", random, fuseWgradAccumulation });
  const { weight } = layer;
  if (fuseWgradAccumulation)
    weight.mainGrad = zeros(backend(), "f32", [SIZE, SIZE]).write(drawInput(9).dataSync());
  body(layer);
  return (weight.mainGrad ?? weight.grad)?.dataSync().slice() as Float32Array;
}

const programs: Record<string, (layer: Linear, run: (body: () => Variable) => Variable) => void> = {
  "one layer after itself": (layer, run) =>
    run(() => layer.forward(layer.forward(drawInput(1), FIRST), FIRST)).backward(drawInput(2)),
  "one layer after itself, computed again": (layer, run) =>
    run(() =>
      recompute(
        (x) =>
          layer.forward(
            recompute((hidden) => layer.forward(hidden, FIRST), x),
            FIRST,
          ),
        drawInput(1),
      ),
    ).backward(drawInput(2)),
  "two microbatches with one backward pass": (layer, run) =>
    run(() =>
      functional.add(layer.forward(drawInput(1), FIRST), layer.forward(drawInput(3), LATER)),
    ).backward(drawInput(2)),
  "two microbatches computed again": (layer, run) =>
    run(() => {
      const recomputedPart = (seed: number, call: object) =>
        recompute((x) => layer.forward(x, call), drawInput(seed));
      return functional.add(recomputedPart(1, FIRST), recomputedPart(3, LATER));
    }).backward(drawInput(2)),
  "two losses of a first microbatch, and evaluation in between": (layer, run) => {
    const [firstLoss, secondLoss] = [1, 3].map((seed) => run(() => layer.forward(drawInput(seed), FIRST)));
    firstLoss?.backward(drawInput(2));
    noGrad(() => run(() => recompute((x) => layer.forward(x, FIRST), drawInput(4))));
    secondLoss?.backward(drawInput(5));
  },
};

describe.each(Object.entries(programs))("in a first microbatch, %s", (_, program) => {
  const recipe = new Float8CurrentScaling();
  it.each([
    ["no recipe", (body: () => Variable) => body()],
    ["a recipe", (body: () => Variable) => autocast({ recipe }, body)],
  ])("loses no gradient, under %s", (_, run) => {
    const [fusedResult, plainResult] = [true, false].map((fuse) => {
      using _scope = new Scope();
      return gradientOf(fuse, (layer) => program(layer, run));
    }) as [Float32Array, Float32Array];
    const error = Math.hypot(...fusedResult.map((value, i) => value - (plainResult[i] as number)));
    expect(error).toBeLessThan(1e-5 * Math.hypot(...plainResult));
  });
});

/** A forward pass whose backward pass runs later, a forward pass without gradients, or a pending backward pass. */
type Call =
  | { readonly isFirst: boolean | undefined; readonly recomputes: boolean; readonly evaluates: boolean }
  | { readonly backward: number };

const calls: fc.Arbitrary<readonly Call[]> = fc.array(
  fc.oneof(
    fc.record({
      isFirst: fc.constantFrom(undefined, true, false),
      recomputes: fc.boolean(),
      evaluates: fc.oneof({ weight: 5, arbitrary: fc.constant(false) }, fc.constant(true)),
    }),
    fc.record({ backward: fc.nat(3) }),
  ),
  { maxLength: 10, size: "max" },
);

it("is the sum from the first microbatch on, in whatever order forward and backward passes run", () => {
  fc.assert(
    fc.property(calls, (drawnCalls) => {
      using _scope = new Scope();
      const options = { dtype: "f32", random: new RandomState(1n), initMethod: constantInit(0.5) } as const;
      using layer = new Linear(backend(), SIZE, SIZE, { ...options, fuseWgradAccumulation: true });
      using plainLayer = new Linear(backend(), SIZE, SIZE, options);
      layer.weight.mainGrad = persistent(drawInput(9).clone()) as Tensor<"f32">;
      let expected = drawInput(9) as Tensor<"f32">;
      // a first microbatch overwrites the main gradient of an earlier step
      let isFresh = false;
      const pendingRuns: { readonly out: Variable; readonly seed: number }[] = [];
      for (const [i, call] of [...drawnCalls, ...drawnCalls.map(() => ({ backward: 0 }))].entries()) {
        if ("backward" in call) {
          const [run] = pendingRuns.splice(call.backward % Math.max(1, pendingRuns.length), 1);
          if (!run) continue;
          run.out.backward(drawInput(100 + i));
          plainLayer.forward(drawInput(run.seed)).backward(drawInput(100 + i));
          const grad = plainLayer.weight.grad as Tensor<"f32">;
          expected = (isFresh ? grad.clone() : add(expected, grad)) as Tensor<"f32">;
          plainLayer.weight.zeroGrad();
          isFresh = false;
        } else {
          const { isFirst, recomputes, evaluates } = call;
          const forward = (x: VariableLike): Variable =>
            layer.forward(x, isFirst === undefined ? {} : { isFirstMicrobatch: isFirst });
          const run = (): Variable => (recomputes ? recompute(forward, drawInput(i)) : forward(drawInput(i)));
          if (evaluates) noGrad(run);
          else {
            pendingRuns.push({ out: run(), seed: i });
            isFresh = isFresh || isFirst === true;
          }
        }
        expect(layer.weight.mainGrad?.dataSync()).toEqual(expected.dataSync());
      }
    }),
    { numRuns: draws(30) },
  );
});

describe("a weight that is an embedding's table as well", () => {
  /** The weight after a clipped step, and the norm. */
  function stepOf(fuseWgradAccumulation: boolean) {
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
    const [fusedSteps, plainSteps] = [stepOf(true), stepOf(false)];
    expect(fusedSteps).toEqual(plainSteps);
  });
});

it.each(WIDE_DTYPES)("is added in f32 to a gradient of %s that other uses of the weight have", (dtype) => {
  using _scope = new Scope();
  using layer = new Linear(backend(), SIZE, SIZE, { dtype, bias: false, random: new RandomState(1n) });
  using optimizer = new SGD(layer, { learningRate: 1 });
  const [{ master }] = [...optimizer.slots.values()] as [OptimizerSlot];
  const valuesOf = (x: Tensor<WideDType>) => castTo(x, "f32").dataSync().slice() as Float32Array;
  const random = (seed: bigint) =>
    tensor(backend(), normal({ seed, offset: 0n }, SIZE * SIZE, 1), [SIZE, SIZE]);
  const masterBefore = valuesOf(master as Tensor<"f32">);
  const [main, grad] = [random(2n), castTo(random(3n), dtype)];
  const [mainValues, gradValues] = [valuesOf(main), valuesOf(grad)];
  layer.weight.mainGrad = persistent(main);
  layer.weight.grad = persistent(grad);
  optimizer.step();
  expect(valuesOf(master as Tensor<"f32">)).toEqual(
    masterBefore.map(
      (value, i) => value - Math.fround((mainValues[i] as number) + (gradValues[i] as number)),
    ),
  );
});
