/** Recomputation and the accumulation of weight gradients change no bit. */
import { describe, expect, it, vi } from "vitest";
import {
  ArgumentError,
  autocast,
  functional,
  gemm,
  type Linear,
  noGrad,
  type Recipe,
  recompute,
  Scope,
  Variable,
  zeros,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { sampleCases } from "../../harness/draws.js";
import {
  createLinear,
  digest,
  drawMatrix,
  FEATURES,
  Learner,
  layerStates,
  RECIPE_NAMES,
  RECIPES,
} from "../../harness/state/training.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend();
const STEPS = 3;

/** A part of a network, which may be recomputed. */
type Part = (body: (x: Variable) => Variable, x: Variable) => Variable;

const plainRun: Part = (body, x) => body(x);
const recomputedRun: Part = (body, x) => recompute(body, x);

/** The losses, states and parameters of a few steps, and the gradients of one more step. */
function trainPart(
  step: (recomputePart: Part, x: Variable, layers: readonly [Linear, Linear]) => Variable,
  part: Part,
) {
  using _scope = new Scope();
  using model = new Learner(backend(), 1);
  const losses = Array.from({ length: STEPS }, () =>
    model.learn(model.loss((x, layers) => step(part, new Variable(x), layers))),
  );
  model.loss((x, layers) => step(part, new Variable(x), layers)).backward();
  return { losses, layers: layerStates(model.layers) };
}

describe.each(RECIPE_NAMES)("recomputed, %s", (name) => {
  const make = RECIPES[name];
  const programs: Record<string, (recipe: Recipe) => Parameters<typeof trainPart>[0]> = {
    "a layer":
      (recipe) =>
      (recomputePart, x, [a, b]) =>
        autocast({ recipe }, () => b.forward(recomputePart((input) => a.forward(input), x))),
    "both layers, of a cached weight":
      (recipe) =>
      (recomputePart, x, [a, b]) =>
        autocast({ recipe }, () =>
          [true, false]
            .map((isFirstMicrobatch) =>
              recomputePart(
                (input) => b.forward(a.forward(input, { isFirstMicrobatch }), { isFirstMicrobatch }),
                x,
              ),
            )
            .reduce((sum, value) => functional.add(sum, value)),
        ),
    "a region in it":
      (recipe) =>
      (recomputePart, x, [a, b]) =>
        b.forward(recomputePart((input) => autocast({ recipe }, () => a.forward(input)), x)),
    "regions in it, in a region":
      (recipe) =>
      (recomputePart, x, [a, b]) =>
        autocast({ recipe: RECIPES.current() }, () =>
          recomputePart((input) => {
            const hidden = autocast({ recipe }, () => a.forward(input));
            return autocast({ enabled: false }, () => b.forward(hidden));
          }, x),
        ),
    "one inside another":
      (recipe) =>
      (recomputePart, x, [a, b]) =>
        autocast({ recipe }, () =>
          recomputePart((input) => b.forward(recomputePart((i) => a.forward(i), input)), x),
        ),
    "what it captures, also used before, after and in another":
      (recipe) =>
      (recomputePart, x, [a, b]) =>
        autocast({ recipe }, () => {
          const hidden = a.forward(x);
          const firstResult = b.forward(hidden);
          const regionResult = recomputePart((input) => functional.add(b.forward(input), hidden), x);
          const otherResult = recomputePart(
            (outer) =>
              recomputePart((i) => functional.add(a.forward(functional.add(i, hidden)), outer), hidden),
            regionResult,
          );
          return [regionResult, otherResult, b.forward(hidden)].reduce(
            (sum, value) => functional.add(sum, value),
            firstResult,
          );
        }),
    "what it captures alone":
      (recipe) =>
      (recomputePart, x, [a, b]) =>
        autocast({ recipe }, () => {
          const hidden = a.forward(x);
          return recomputePart(
            () =>
              recomputePart(
                () =>
                  functional.add(
                    b.forward(hidden),
                    recomputePart(() => hidden, x),
                  ),
                x,
              ),
            x,
          );
        }),
    "a layer that is also used outside":
      (recipe) =>
      (recomputePart, x, [a, b]) =>
        autocast({ recipe }, () =>
          a.forward(b.forward(recomputePart((input) => a.forward(a.forward(input)), a.forward(x)))),
        ),
  };

  it.each(sampleCases(Object.keys(programs), 1, RECIPE_NAMES.indexOf(name)))(
    "%s has the same bits as without recompute",
    (program) => {
      const step = programs[program]?.(make()) ?? ((_, x) => x);
      const expected = trainPart(step, plainRun);
      expect(expected.layers[0]?.gradients[0]).not.toBe(digest(new Uint16Array(FEATURES * FEATURES)));
      expect(trainPart(step, recomputedRun)).toEqual(expected);
    },
  );
});

describe("a recomputed part", () => {
  testInScope("outside of regions is in high precision, even if the backward pass is in a region", () => {
    using layer = createLinear(backend(), 1);
    const gradient = (recomputePart: Part): unknown => {
      const y = recomputePart((x) => layer.forward(x), new Variable(drawMatrix(backend(), 1)));
      autocast({ recipe: RECIPES.delayed() }, () => y.backward(drawMatrix(backend(), 2)));
      const bits = digest(layer.weight.grad?.dataSync());
      layer.weight.zeroGrad();
      return bits;
    };
    expect(gradient(recomputedRun)).toEqual(gradient(plainRun));
    expect(layerStates([layer])[0]?.state).toBe(undefined);
  });

  it.each(
    sampleCases(RECIPE_NAMES.map((name, i) => [name, RECIPE_NAMES[(i + 1) % RECIPE_NAMES.length]] as const)),
  )("calls one layer under two recipes, each time as the first run did: %s, then %s", (...names) => {
    const recipes = names.map((name) => RECIPES[name as (typeof RECIPE_NAMES)[number]]());
    using warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    const gradients = [plainRun, recomputedRun].map((recomputePart) => {
      using _scope = new Scope();
      using layer = createLinear(backend(), 1);
      const body = (x: Variable): Variable =>
        recipes.reduce<Variable>((h, recipe) => autocast({ recipe }, () => layer.forward(h)), x);
      // the second pass begins with the scales of the first
      for (const seed of [3, 4]) {
        const y = recomputePart(body, new Variable(drawMatrix(backend(), seed)));
        y.backward(drawMatrix(backend(), seed + 2));
      }
      return [layer.weight.grad, layer.bias?.grad].map((grad) => grad?.dataSync().slice());
    });
    expect(gradients[1]).toEqual(gradients[0]);
    expect(warn).toHaveBeenCalled();
  });

  testInScope("makes the same calls of the group in the same order", () => {
    const calls = (recomputePart: Part): unknown => {
      using model = new Learner(backend(), 1);
      const rows: number[][][] = [];
      const amaxReductionGroup = {
        size: 2,
        reduceMax: (tensors: readonly { dataSync(): Float32Array }[]) =>
          void rows.push(tensors.map((tensor) => [...tensor.dataSync()])),
      };
      const recipe = RECIPES.delayed();
      model.learn(
        model.loss((x, [a, b]) =>
          autocast({ recipe, amaxReductionGroup }, () =>
            recomputePart((input) => b.forward(a.forward(input)), new Variable(x)),
          ),
        ),
      );
      return rows;
    };
    const expected = calls(plainRun);
    expect(expected).toHaveLength(2);
    expect(calls(recomputedRun)).toEqual(expected);
  });

  it.each([1, 2, 3])("leaks nothing if its body throws in computation number %s", (failingOperation) => {
    using layer = createLinear(backend(), 1);
    const recipe = RECIPES.delayed();
    let times = 0;
    const body = (x: Variable): Variable => {
      const y = layer.forward(x);
      if (++times === failingOperation) throw new Error("the body failed");
      return y;
    };
    expect(() => {
      using _scope = new Scope();
      const x = new Variable(drawMatrix(backend(), 1));
      autocast({ recipe }, () => recompute((input) => recompute(body, input), x)).backward(
        drawMatrix(backend(), 2),
      );
    }).toThrow("the body failed");
  });

  it.each<[string, (layer: Linear, isSecondRun: boolean, x: Variable) => Variable]>([
    [
      "calls a layer more often",
      (layer, isSecondRun, x) => layer.forward(isSecondRun ? layer.forward(x) : x),
    ],
    [
      "calls it under another recipe",
      (layer, isSecondRun, x) =>
        autocast({ recipe: RECIPES[isSecondRun ? "mxfp8" : "current"]() }, () => layer.forward(x)),
    ],
    [
      "caches its weight",
      (layer, isSecondRun, x) => layer.forward(x, isSecondRun ? { isFirstMicrobatch: true } : {}),
    ],
  ])("is refused if its body %s the second time, and no gradient is set", (_, body) => {
    using _scope = new Scope();
    using layer = createLinear(backend(), 1);
    let times = 0;
    const y = autocast({ recipe: RECIPES.delayed() }, () =>
      recompute((x) => body(layer, times++ > 0, x), drawMatrix(backend(), 1)),
    );
    expect(() => y.backward(drawMatrix(backend(), 2))).toThrow(ArgumentError);
    expect(layer.weight.grad).toBe(undefined);
  });

  testInScope("in evaluation saves nothing, and updates no scale", () => {
    using layer = createLinear(backend(), 1);
    const recipe = RECIPES.delayed();
    const x = new Variable(drawMatrix(backend(), 1));
    noGrad(() => recompute((input) => autocast({ recipe }, () => layer.forward(input)), x));
    expect(layerStates([layer])[0]?.state?.forward.scale).toEqual([1, 1, 1]);
  });
});

describe("gradients accumulated in f32", () => {
  const MICROBATCHES = 6;

  /** The main gradients, initially filled with `start`, after each microbatch of two iterations. */
  function accumulateGradients(recipe: Recipe | undefined, start: number) {
    using _scope = new Scope();
    using layer = createLinear(backend(), 1, { fuseWgradAccumulation: true });
    const { weight } = layer;
    weight.mainGrad = mainGrad(start);
    return Array.from({ length: MICROBATCHES }, (_, i) => {
      const body = () => layer.forward(drawMatrix(backend(), i), { isFirstMicrobatch: i % 3 === 0 });
      (recipe ? autocast({ recipe }, body) : body()).backward(drawMatrix(backend(), i + 10));
      expect(weight.grad).toBe(undefined);
      return digest(weight.mainGrad?.dataSync());
    });
  }

  function mainGrad(start: number) {
    const weight = persistent(zeros(backend(), "f32", [FEATURES, FEATURES]));
    return weight.write(new Float32Array(FEATURES * FEATURES).fill(start));
  }

  it.each(sampleCases(["no recipe", ...RECIPE_NAMES] as const))(
    "start again with each first microbatch, under %s",
    (name) => {
      const recipe = () => (name === "no recipe" ? undefined : RECIPES[name]());
      const sums = accumulateGradients(recipe(), 7);
      expect(sums).toEqual(accumulateGradients(recipe(), Number.NaN));
      expect(new Set(sums).size).toBe(MICROBATCHES);
    },
  );

  testInScope("are computed by products that add to the main gradient", () => {
    using layer = createLinear(backend(), 1, { fuseWgradAccumulation: true });
    layer.weight.mainGrad = mainGrad(7);
    const byHand = zeros(backend(), "f32", [FEATURES, FEATURES]);
    for (const accumulate of [false, true, true]) {
      const [x, grad] = [drawMatrix(backend(), 1), drawMatrix(backend(), 2)];
      layer.forward(x, { isFirstMicrobatch: !accumulate }).backward(grad);
      gemm({ a: x, b: grad, layout: "NT", out: byHand, accumulate });
      expect(layer.weight.mainGrad.dataSync()).toEqual(byHand.dataSync());
    }
  });

  testInScope("need a main gradient", () => {
    using layer = createLinear(backend(), 1, { fuseWgradAccumulation: true });
    const y = layer.forward(drawMatrix(backend(), 1));
    expect(() => y.backward(drawMatrix(backend(), 2))).toThrow(ArgumentError);
  });
});
