/** Recipes in layers: from options and environment variables, in sequence, and custom ones. */
import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  autocast,
  CustomRecipe,
  DelayedScaling,
  Float8BlockScaling,
  Float8CurrentScaling,
  type Linear,
  MXFP8Quantizer,
  NVFP4BlockScaling,
  type Recipe,
  Scope,
  type StandardRecipe,
  Variable,
} from "../../../src/index.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { quantizerFor } from "../../../src/recipes/quantizer-for.js";
import type { Role } from "../../../src/recipes/table.js";
import { draws } from "../harness/draws.js";
import {
  createLinear,
  currentQuantizer,
  digest,
  drawMatrix,
  Learner,
  layerStates,
  RECIPES,
  scopedRun,
} from "../harness/state/training.js";
import { linearQuantization, toPlainState } from "../harness/state/world.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();
const SIZE = 32;

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

describe("4over6", () => {
  const SCOPES = ["none", "weights", "activations", "all"] as const;
  const isInScope = (scope: (typeof SCOPES)[number], role: string): boolean =>
    scope === "all" ||
    (scope === "weights" ? role === "weight" : scope === "activations" && role !== "weight");

  it.each(SCOPES)(
    "of %s applies to these tensors of the forward pass, with the scale of each tensor",
    (scope) => {
      for (const e4m3Use256 of SCOPES) {
        for (const fourOverSixErrMode of ["mae", "mse"] as const) {
          const recipe = new NVFP4BlockScaling({
            disableRht: true,
            fourOverSix: scope,
            e4m3Use256,
            fourOverSixErrMode,
          });
          for (const role of ["input", "weight", "output", "gradOutput", "gradInput"] as const) {
            const forward = !role.startsWith("grad");
            const chooses = forward && isInScope(scope, role);
            const { fourOverSix, e4m3Max } = recipe.qparams(role);
            expect([fourOverSix, e4m3Max], `${scope} ${e4m3Use256} ${role}`).toEqual([
              chooses ? fourOverSixErrMode : "none",
              chooses && isInScope(e4m3Use256, role) ? 256 : 448,
            ]);
            using _scope = new Scope();
            const { spec } = quantizerFor(recipe, role, { random: new RandomState(0n) });
            expect([spec.fourOverSix, spec.e4m3Max]).toEqual([fourOverSix, e4m3Max]);
            expect(spec.stochastic).toBe(!forward);
          }
        }
      }
    },
  );
});

describe("the environment", () => {
  const switches = [
    ["NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES", () => new Float8CurrentScaling(), "input", "pow2Scales"],
    ["NVTE_FP8_BLOCK_SCALING_FP32_SCALES", () => new Float8BlockScaling(), "input", "pow2Scales"],
    ["NVTE_NVFP4_DISABLE_RHT", () => new NVFP4BlockScaling(), "input", "rht"],
    ["NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING", () => new NVFP4BlockScaling(), "gradOutput", "stochastic"],
    ["NVTE_NVFP4_DISABLE_2D_QUANTIZATION", () => new NVFP4BlockScaling(), "weight", "tile"],
    [
      "NVTE_NVFP4_ROW_SCALED_ACTIVATION",
      () => new NVFP4BlockScaling({ disableRht: true }),
      "input",
      "rowScaled",
    ],
  ] as const satisfies readonly (readonly [string, () => StandardRecipe, string, string])[];

  it.each(switches)(
    "%s=1 changes only the recipes that are created later, and only this option",
    (name, make, role, field) => {
      vi.stubEnv(name, undefined);
      const [qparamsBefore, expectedQparams] = [make(), make().qparams(role)];
      for (const value of ["0", "", "true"]) {
        vi.stubEnv(name, value);
        expect(make().key).toBe(qparamsBefore.key);
      }
      vi.stubEnv(name, "1");
      const switchedOn = make().qparams(role);
      expect(switchedOn[field]).not.toBe(expectedQparams[field]);
      expect({ ...switchedOn, [field]: expectedQparams[field] }).toEqual(expectedQparams);
      expect(qparamsBefore.qparams(role)).toEqual(expectedQparams);
      expect(make().key).not.toBe(qparamsBefore.key);
    },
  );

  it("sets for NVFP4 which tensors use 4over6, by which error and under which largest scale", () => {
    vi.stubEnv("NVTE_NVFP4_DISABLE_RHT", "1");
    vi.stubEnv("NVTE_NVFP4_4OVER6", "activations");
    vi.stubEnv("NVTE_NVFP4_4OVER6_E4M3_USE_256", "weights");
    vi.stubEnv("NVTE_NVFP4_4OVER6_ERR_MODE", "MSE");
    const changes = { fourOverSix: "activations", e4m3Use256: "weights", fourOverSixErrMode: "mse" } as const;
    expect(new NVFP4BlockScaling()).toMatchObject(changes);
    const settings = { fourOverSix: "all", e4m3Use256: "none", fourOverSixErrMode: "mae" } as const;
    expect(new NVFP4BlockScaling(settings)).toMatchObject(settings);
    vi.stubEnv("NVTE_NVFP4_4OVER6", "1");
    expect(() => new NVFP4BlockScaling()).toThrow(/NVTE_NVFP4_4OVER6 "1" is not one of none, weights/);
  });

  it.each([
    ["high_precision", "highPrecision"],
    ["dequantized", "dequantized"],
  ] as const)(
    "NVTE_BACKWARD_OVERRIDE=%s sets the precision of gradients of every recipe",
    (value, expected) => {
      const quantizerFactory = () => new MXFP8Quantizer();
      const make = [...Object.values(RECIPES), () => new CustomRecipe({ quantizerFactory })];
      const recipesBefore = make.map((makeRecipe) => makeRecipe());
      vi.stubEnv("NVTE_BACKWARD_OVERRIDE", value);
      expect(recipesBefore.map(({ backwardOverride }) => backwardOverride)).toEqual(
        recipesBefore.map(() => "none"),
      );
      for (const makeRecipe of make) expect(makeRecipe().backwardOverride).toBe(expected);
      const noOverride = { backwardOverride: "none" } as const;
      expect(new CustomRecipe({ quantizerFactory, ...noOverride }).backwardOverride).toBe("none");
      expect(new DelayedScaling(noOverride).key).not.toBe(new DelayedScaling().key);
      vi.stubEnv("NVTE_BACKWARD_OVERRIDE", "bf16");
      expect(() => new DelayedScaling()).toThrow(
        /DelayedScaling: NVTE_BACKWARD_OVERRIDE "bf16" is not one of high_precision, dequantized/,
      );
    },
  );

  it("is overridden by options", () => {
    for (const [name] of switches) vi.stubEnv(name, "1");
    expect(new Float8CurrentScaling({ pow2Scales: false }).pow2Scales).toBe(false);
    expect(new Float8BlockScaling({ useF32Scales: false }).useF32Scales).toBe(false);
    const noOptions = {
      disableRht: false,
      disableStochasticRounding: false,
      disable2dQuantization: false,
      rowScaledActivation: false,
    };
    expect(new NVFP4BlockScaling(noOptions)).toMatchObject(noOptions);
  });
});

/** The bits of a layer's result for a matrix under a recipe. */
function bitsOf(layer: Linear, recipe: Recipe, number: number, isFirstMicrobatch?: boolean): number[] {
  return scopedRun(() => {
    const x = drawMatrix(backend(), number);
    return [...autocast({ recipe }, () => layer.forward(x, { isFirstMicrobatch })).tensor.dataSync()];
  });
}

function bitsOfNewLayer(recipe: Recipe, number: number): number[] {
  using layer = createLinear(backend(), 1);
  return bitsOf(layer, recipe, number);
}

function stateOf(layer: Linear) {
  return toPlainState(linearQuantization(layer).snapshotSync());
}

describe("another recipe in the next iteration", () => {
  it("may be an instance of the caller's own subclass", () => {
    class Tighter extends Float8CurrentScaling {
      override qparams(role: Role) {
        return { ...super.qparams(role), pow2Scales: true };
      }
    }
    using layer = createLinear(backend(), 1);
    const expectedBits = bitsOf(layer, new Float8CurrentScaling(), 1);
    const tighter = bitsOf(layer, new Tighter(), 1);
    expect(tighter).toEqual(bitsOfNewLayer(new Tighter(), 1));
    expect(tighter).not.toEqual(expectedBits);
    expect(new Tighter().key).toBe(new Tighter().key);
  });

  it("of another class warns, and the cached weight is quantized again", () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    using layer = createLinear(backend(), 1);
    bitsOf(layer, RECIPES.delayed(), 1, true);
    expect(warn).not.toHaveBeenCalled();
    for (const recipe of [RECIPES.current(), RECIPES.mxfp8(), RECIPES.nvfp4(), RECIPES.block()])
      expect(bitsOf(layer, recipe, 2, false)).toEqual(bitsOfNewLayer(recipe, 2));
    expect(warn.mock.calls.map(([text]) => text.includes("scales and histories"))).not.toContain(false);
    expect(warn.mock.calls.map(([text]) => /from (\w+) to (\w+)/.exec(text)?.slice(1))).toEqual([
      ["DelayedScaling", "Float8CurrentScaling"],
      ["Float8CurrentScaling", "MXFP8BlockScaling"],
      ["MXFP8BlockScaling", "NVFP4BlockScaling"],
      ["NVFP4BlockScaling", "Float8BlockScaling"],
    ]);
    expect(stateOf(layer)).toBe(undefined);
  });

  it("warns exactly where its class is not that of the pass before, unless a state was restored since", () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    const commands = fc.array(fc.constantFrom("delayed", "current", "mxfp8", "restore"), { maxLength: 8 });
    fc.assert(
      fc.property(commands, (sequence) => {
        using layer = createLinear(backend(), 1, {}, SIZE);
        let last: string | undefined;
        for (const command of sequence) {
          warn.mockClear();
          if (command === "restore")
            linearQuantization(layer).restore(linearQuantization(layer).snapshotSync());
          else
            scopedRun(() =>
              autocast({ recipe: RECIPES[command]() }, () =>
                layer.forward(new Variable(drawMatrix(backend(), 1, SIZE))),
              ),
            );
          const isOther = command !== "restore" && last !== undefined && last !== command;
          expect(warn).toHaveBeenCalledTimes(isOther ? 1 : 0);
          last = command === "restore" ? undefined : command;
        }
      }),
      { numRuns: draws(200, 40) },
    );
  });

  it("of the same class with other options is used without a warning", () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    using layer = createLinear(backend(), 1);
    const pairs = [
      [new NVFP4BlockScaling(), new NVFP4BlockScaling({ disable2dQuantization: true })],
      [new Float8CurrentScaling(), new Float8CurrentScaling({ pow2Scales: true })],
    ] as const;
    for (const [recipeBefore, recipeAfter] of pairs) {
      bitsOf(layer, recipeBefore, 1, true);
      warn.mockClear();
      expect(bitsOf(layer, recipeAfter, 2, false)).toEqual(bitsOfNewLayer(recipeAfter, 2));
      expect(bitsOfNewLayer(recipeBefore, 2)).not.toEqual(bitsOfNewLayer(recipeAfter, 2));
      expect(warn).not.toHaveBeenCalled();
    }
  });

  it("that differs in a function or a class of the same name only is another recipe", () => {
    const amax = (factor: number) =>
      new DelayedScaling({
        amaxHistoryLen: 1,
        amaxComputeAlgo: function algorithm(history) {
          return factor * (history[0] as number);
        },
      });
    const scale = (factor: number) =>
      new DelayedScaling({
        amaxHistoryLen: 1,
        scalingFactorComputeAlgo: function algorithm() {
          return factor;
        },
      });
    const recipeWith = (factor: number) =>
      new (class Own extends Float8CurrentScaling {
        override qparams(role: Role) {
          return { ...super.qparams(role), amaxEpsilon: factor };
        }
      })();
    for (const make of [amax, scale, recipeWith]) {
      const run = (recipes: readonly Recipe[]): string => {
        using layer = createLinear(backend(), 1);
        // the last pass uses the scale that the previous pass computed
        const bits = recipes.map((recipe) => bitsOf(layer, recipe, 1)).at(-1);
        return JSON.stringify([bits, stateOf(layer)]);
      };
      const [firstRecipe, secondRecipe] = [make(1), make(64)];
      const steadyResults = run([secondRecipe, secondRecipe, secondRecipe]);
      expect(run([firstRecipe, firstRecipe, firstRecipe]) === steadyResults).toBe(false);
      expect(run([firstRecipe, secondRecipe, secondRecipe]) === steadyResults).toBe(true);
    }
  });

  it("that is equal keeps the cached weight, even if it is another object", () => {
    using layer = createLinear(backend(), 1);
    const bitsBefore = bitsOf(layer, new Float8CurrentScaling(), 1, true);
    layer.weight.tensor.write(new Uint8Array(layer.weight.tensor.byteLength));
    expect(bitsOf(layer, new Float8CurrentScaling(), 1, false)).toEqual(bitsBefore);
  });

  it("of delayed scaling keeps scales, and the first rows of the history, or adds empty ones", () => {
    using layer = createLinear(backend(), 1);
    const lengths = [3, 5, 2, 3].map((amaxHistoryLen, i) => {
      // as many passes as the history of the state has rows, each with another amax of the input
      const rowCount = stateOf(layer)?.forward.amaxHistory.length ?? 3 * amaxHistoryLen;
      const earlier = new DelayedScaling({ amaxHistoryLen: rowCount / 3 });
      for (let pass = 0; pass < rowCount / 3; pass++)
        scopedRun(() =>
          autocast({ recipe: earlier }, () =>
            layer.forward(drawMatrix(backend(), 3, undefined, 1 + i + pass / 8)),
          ),
        );
      const stateBefore = stateOf(layer)?.forward;
      // after a change of recipe, the new state exists already in the first forward pass, before its first update
      const recipe = new DelayedScaling({ amaxHistoryLen });
      let stateAfter: typeof stateBefore;
      scopedRun(() =>
        autocast({ recipe }, () => {
          layer.forward(new Variable(drawMatrix(backend(), 3)));
          stateAfter = stateOf(layer)?.forward;
        }),
      );
      const rows = [...(stateBefore?.amaxHistory ?? []), ...new Array<number>(15).fill(0)];
      const ofInput = rows.filter((_, j) => j % 3 === 0).slice(1, rowCount / 3);
      expect(new Set(ofInput).size).toBe(ofInput.length);
      expect(stateAfter?.scale).toEqual(stateBefore?.scale);
      expect(stateAfter?.amaxHistory.slice(3)).toEqual(rows.slice(3, 3 * amaxHistoryLen));
      return stateAfter?.amaxHistory.length;
    });
    expect(lengths).toEqual([9, 15, 6, 9]);
  });
});

describe("the caller's own quantizers", () => {
  it("are created once for each role of each layer", () => {
    const requests: string[] = [];
    const recipe = new CustomRecipe({
      quantizerFactory: (role) => {
        requests.push(role);
        return currentQuantizer(role);
      },
    });
    using model = new Learner(backend(), 1);
    for (let step = 0; step < 3; step++)
      scopedRun(() =>
        model.learn(model.loss((x, [a, b]) => autocast({ recipe }, () => b.forward(a.forward(x))))),
      );
    const roles = ["input", "weight", "output", "gradOutput", "gradInput"];
    expect(requests).toEqual([...roles, ...roles]);
  });

  it("like those of Float8CurrentScaling train to the same bits", () => {
    const [custom, currentQuantizer] = [RECIPES.custom(), RECIPES.current()].map((recipe) => {
      using model = new Learner(backend(), 1);
      const losses = [1, 2, 3].map(() =>
        scopedRun(() =>
          model.learn(model.loss((x, [a, b]) => autocast({ recipe }, () => b.forward(a.forward(x))))),
        ),
      );
      return { losses, layers: layerStates(model.layers) };
    });
    expect(custom).toEqual(currentQuantizer);
  });

  testInScope("whose creation fails leave the layer unchanged", () => {
    using layer = createLinear(backend(), 1);
    const delayedRecipe = RECIPES.delayed();
    bitsOf(layer, delayedRecipe, 1, true);
    const stateBefore = stateOf(layer);
    const broken = new CustomRecipe({
      quantizerFactory: () => {
        throw new RangeError("no quantizer today");
      },
    });
    expect(() => bitsOf(layer, broken, 1)).toThrow("no quantizer today");
    expect(stateOf(layer)).toEqual(stateBefore);
    layer.weight.tensor.write(new Uint8Array(layer.weight.tensor.byteLength));
    expect(bitsOf(layer, delayedRecipe, 1, false).some((code) => code !== 0)).toBe(true);
  });
});

describe("between a forward and a backward pass", () => {
  it.each(["delayed", "current", "mxfp8", "nvfp4"] as const)(
    "another recipe may be used, and %s gives the same bits as without that",
    (name) => {
      vi.spyOn(console, "warn").mockImplementation(() => {});
      const [disturbedResults, calm] = [true, false].map((disturbs) => {
        using _scope = new Scope();
        using layer = createLinear(backend(), 1);
        const x = new Variable(drawMatrix(backend(), 1), true);
        const y = autocast({ recipe: RECIPES[name]() }, () => layer.forward(x, { isFirstMicrobatch: true }));
        if (disturbs)
          for (const recipe of [RECIPES.block(), new DelayedScaling({ amaxHistoryLen: 7 }), RECIPES.block()])
            bitsOf(layer, recipe, 2);
        y.backward(drawMatrix(backend(), 3));
        const digests = [x.grad, layer.weight.grad].map((tensor) => digest(tensor?.dataSync()));
        x.zeroGrad();
        return digests;
      });
      expect(disturbedResults).toEqual(calm);
    },
  );
});
