/**
 * The extent of autocast regions: layers quantize inside of a region only, however it ends and whatever runs concurrently.
 */
import { describe, expect, it, vi } from "vitest";
import { currentRegion } from "../../src/autocast.js";
import {
  ArgumentError,
  autocast,
  autocastScope,
  DelayedScaling,
  Float8CurrentScaling,
  MXFP8BlockScaling,
  noGrad,
  type Recipe,
  recompute,
  Scope,
  type Tensor,
  UnsupportedError,
  Variable,
} from "../../src/index.js";
import { RefusingBackend } from "./harness/state/refusing.js";
import {
  createLinear,
  drawMatrix,
  Learner,
  layerStates,
  RECIPE_NAMES,
  RECIPES,
} from "./harness/state/training.js";
import { linearQuantization } from "./harness/state/world.js";
import { testInScope, useBackend } from "./harness/suite.js";

const backend = useBackend();
const [delayedRecipe, currentRecipe] = [
  new DelayedScaling({ amaxHistoryLen: 2 }),
  new Float8CurrentScaling(),
];

function recipeNow(): Recipe | undefined {
  const region = currentRegion();
  return region?.enabled ? region.recipe : undefined;
}

describe("a region", () => {
  it("uses the recipe of the innermost one, which may be enabled or not", () => {
    const recipes: (Recipe | undefined)[] = [recipeNow()];
    autocast({ recipe: delayedRecipe }, () => {
      recipes.push(recipeNow());
      autocast({ recipe: currentRecipe }, () => recipes.push(recipeNow()));
      recipes.push(recipeNow());
      autocast({ enabled: false }, () => {
        recipes.push(recipeNow());
        autocast({ recipe: currentRecipe }, () => recipes.push(recipeNow()));
      });
      recipes.push(recipeNow());
    });
    recipes.push(recipeNow());
    expect(recipes).toEqual([
      undefined,
      delayedRecipe,
      currentRecipe,
      delayedRecipe,
      undefined,
      currentRecipe,
      delayedRecipe,
      undefined,
    ]);
  });

  it("uses DelayedScaling by default", () => {
    expect(autocast({}, recipeNow)).toBeInstanceOf(DelayedScaling);
  });

  it("ends if its body throws", () => {
    autocast({ recipe: delayedRecipe }, () => {
      const throwInside = () =>
        autocast({ recipe: currentRecipe }, () => {
          throw new RangeError("in the body");
        });
      expect(throwInside).toThrow("in the body");
      expect(recipeNow()).toBe(delayedRecipe);
    });
    expect(recipeNow()).toBe(undefined);
  });

  it("lasts while its body awaits, and ends if that promise is rejected", async () => {
    const recipes: (Recipe | undefined)[] = [];
    const body = async () => {
      await null;
      recipes.push(recipeNow());
      await autocast({ recipe: currentRecipe }, async () => {
        await null;
        recipes.push(recipeNow());
      });
      recipes.push(recipeNow());
      throw new RangeError("after a while");
    };
    await expect(autocast({ recipe: delayedRecipe }, body)).rejects.toThrow("after a while");
    expect([...recipes, recipeNow()]).toEqual([delayedRecipe, currentRecipe, delayedRecipe, undefined]);
  });

  it("lasts as long as the block of a scope", () => {
    const recipes: (Recipe | undefined)[] = [];
    {
      using _outer = autocastScope({ recipe: delayedRecipe });
      recipes.push(recipeNow());
      {
        using _inner = autocastScope({ recipe: currentRecipe });
        recipes.push(recipeNow());
      }
      recipes.push(recipeNow());
      const throwInside = () => {
        using _inner = autocastScope({ enabled: false });
        recipes.push(recipeNow());
        throw new RangeError("in the block");
      };
      expect(throwInside).toThrow("in the block");
      recipes.push(recipeNow());
    }
    recipes.push(recipeNow());
    expect(recipes).toEqual([
      delayedRecipe,
      currentRecipe,
      delayedRecipe,
      undefined,
      delayedRecipe,
      undefined,
    ]);
  });

  it("of a scope ends once, whichever regions are active then", () => {
    const firstScope = autocastScope({ recipe: delayedRecipe });
    firstScope[Symbol.dispose]();
    {
      using _second = autocastScope({ recipe: currentRecipe });
      firstScope[Symbol.dispose]();
      expect(recipeNow()).toBe(currentRecipe);
    }
    expect(recipeNow()).toBe(undefined);
  });

  it("of a scope that ends before inner regions leaves these active, and is not active after them", () => {
    const [outer, inner] = [
      autocastScope({ recipe: delayedRecipe }),
      autocastScope({ recipe: currentRecipe }),
    ];
    autocast({ recipe: delayedRecipe }, () => {
      outer[Symbol.dispose]();
      expect(recipeNow()).toBe(delayedRecipe);
    });
    expect(recipeNow()).toBe(currentRecipe);
    inner[Symbol.dispose]();
    expect(recipeNow()).toBe(undefined);
  });

  it("of a scope in an async function has ended for the function's caller", async () => {
    const body = async () => {
      using _region = autocastScope({ recipe: delayedRecipe });
      await null;
      expect(recipeNow()).toBe(delayedRecipe);
    };
    await body();
    expect(recipeNow()).toBe(undefined);
    await autocast({ recipe: currentRecipe }, async () => {
      await body();
      expect(recipeNow()).toBe(currentRecipe);
    });
  });
});

describe("a recipe that the backend does not support", () => {
  it("is refused on entry, and no region is active then", () => {
    const options = { recipe: new MXFP8BlockScaling(), backend: new RefusingBackend(backend(), "gemm") };
    let hasRun = false;
    autocast({ recipe: currentRecipe }, () => {
      const entry = () =>
        autocast(options, () => {
          hasRun = true;
        });
      expect(entry).toThrow(UnsupportedError);
      expect(() => autocastScope(options)).toThrow(UnsupportedError);
      expect(recipeNow()).toBe(currentRecipe);
    });
    expect(hasRun).toBe(false);
    expect(autocast({ ...options, enabled: false }, () => recipeNow())).toBe(undefined);
  });

  testInScope("is refused by the first layer, whose state is unchanged", () => {
    let refuses = false;
    const sometimes = new (class extends RefusingBackend {
      override supports: RefusingBackend["supports"] = (op, args) =>
        op === "gemm" && !refuses ? { ok: true, agrees: "bits" } : super.supports(op, args);
    })(backend(), "gemm");
    using layer = createLinear(sometimes, 1);
    const x = new Variable(drawMatrix(sometimes, 1));
    const forward = (recipe: Recipe) => autocast({ recipe }, () => layer.forward(x));
    forward(delayedRecipe);
    const statesBefore = layerStates([layer]);
    refuses = true;
    expect(() => forward(new MXFP8BlockScaling())).toThrow(UnsupportedError);
    refuses = false;
    expect(layerStates([layer])).toEqual(statesBefore);
    expect(() => forward(delayedRecipe)).not.toThrow();
  });
});

describe("the scales of delayed scaling", () => {
  /** The input's scale after `body` ran with the layer and an input. */
  function scaleAfter(
    body: (forward: () => void, scale: () => number | undefined) => void,
  ): number | undefined {
    using _scope = new Scope();
    using layer = createLinear(backend(), 1);
    const x = drawMatrix(backend(), 1);
    const scale = () => linearQuantization(layer).snapshotSync()?.forward.scale[0];
    body(() => layer.forward(x), scale);
    return scale();
  }

  it("are updated at the end of the outermost enabled region, even if it ends by an exception", () => {
    const expected = scaleAfter((forward) => autocast({ recipe: delayedRecipe }, forward));
    expect(expected).not.toBe(1);
    const nestedRegions = (forward: () => void) =>
      autocast({ recipe: delayedRecipe }, () => autocast({ recipe: delayedRecipe }, forward));
    const inOff = (forward: () => void, scale: () => number | undefined) =>
      autocast({ enabled: false }, () => {
        autocast({ recipe: delayedRecipe }, forward);
        expect(scale()).toBe(expected);
      });
    const throwInside = (forward: () => void) =>
      expect(() =>
        autocast({ recipe: delayedRecipe }, () => {
          forward();
          throw new RangeError("half way");
        }),
      ).toThrow("half way");
    for (const body of [nestedRegions, inOff, throwInside]) expect(scaleAfter(body)).toBe(expected);
  });

  it("are updated at the end of an inner scope if it outlives the outer one", () => {
    const expected = scaleAfter((forward) => autocast({ recipe: delayedRecipe }, forward));
    const scale = scaleAfter((forward, scale) => {
      const [outer, inner] = [
        autocastScope({ recipe: delayedRecipe }),
        autocastScope({ recipe: delayedRecipe }),
      ];
      outer[Symbol.dispose]();
      forward();
      expect(scale()).toBe(1);
      inner[Symbol.dispose]();
    });
    expect(scale).toBe(expected);
  });

  it("are not updated where a recomputed part ends its own region", () => {
    const scale = scaleAfter((forward, scale) => {
      using otherLayer = createLinear(backend(), 2);
      const x = new Variable(drawMatrix(backend(), 2), true);
      const [outer, inner] = [
        autocastScope({ recipe: delayedRecipe }),
        autocastScope({ recipe: delayedRecipe }),
      ];
      const y = recompute((x) => autocast({ recipe: delayedRecipe }, () => otherLayer.forward(x)), x);
      outer[Symbol.dispose]();
      forward();
      y.backward(y.value as Tensor);
      expect(scale()).toBe(1);
      inner[Symbol.dispose]();
      for (const variable of [x, ...otherLayer.parameters()]) variable.zeroGrad();
    });
    expect(scale).not.toBe(1);
  });

  it("do not replace the body's error if the group fails as well", async () => {
    using warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    using _scope = new Scope();
    using layer = createLinear(backend(), 1);
    const x = drawMatrix(backend(), 1);
    const reduceMax = (): void => {
      throw new Error("the group failed");
    };
    const options = { recipe: RECIPES.delayed(), amaxReductionGroup: { size: 2, reduceMax } };
    const body = (): void => {
      layer.forward(x);
      throw new RangeError("the body's own");
    };
    expect(() => autocast(options, body)).toThrow("the body's own");
    await expect(autocast(options, async () => body())).rejects.toThrow("the body's own");
    expect(warn.mock.calls.map(String)).toEqual(
      [1, 2].map(() => expect.stringContaining("the group failed")),
    );
  });

  it.each([
    ["without a size", { reduceMax() {} }, "size undefined"],
    ["of none", { size: 0, reduceMax() {} }, "size 0"],
    ["without reduceMax", { size: 2 }, "no method reduceMax"],
    ["that is null", null, "size undefined"],
  ])("are not reduced over a group %s, which is refused on entry", (_, group, message) => {
    let hasRun = false;
    const options = { recipe: delayedRecipe, amaxReductionGroup: group as never };
    const entry = (): void =>
      autocast(options, () => {
        hasRun = true;
      });
    for (const enter of [entry, () => autocastScope(options)]) {
      expect(enter).toThrow(ArgumentError);
      expect(enter).toThrow(message);
    }
    expect([hasRun, recipeNow()]).toEqual([false, undefined]);
  });

  it.each([
    [1, 0],
    [2, 1],
  ])("are reduced over a group of %i by %i call", (size, calls) => {
    const reduceMax = vi.fn();
    const options = { recipe: delayedRecipe, amaxReductionGroup: { size, reduceMax } };
    const expected = scaleAfter((forward) => autocast({ recipe: delayedRecipe }, forward));
    expect(scaleAfter((forward) => autocast(options, forward))).toBe(expected);
    expect(reduceMax).toHaveBeenCalledTimes(calls);
  });

  it("leave no state if the group fails to reduce their amaxes", () => {
    using layer = createLinear(backend(), 1);
    const amaxReductionGroup = {
      size: 2,
      reduceMax: (): void => {
        throw new Error("the group failed");
      },
    };
    const recipe = RECIPES.delayed();
    using x = drawMatrix(backend(), 1);
    expect(() =>
      autocast({ recipe, amaxReductionGroup }, () => {
        using _scope = new Scope();
        layer.forward(x);
      }),
    ).toThrow("the group failed");
  });

  it("are not updated at the end of an inner region, or while gradients are disabled", () => {
    scaleAfter((forward, scale) =>
      autocast({ recipe: delayedRecipe }, () => {
        autocast({ recipe: delayedRecipe }, forward);
        expect(scale()).toBe(1);
      }),
    );
    expect(scaleAfter((forward) => noGrad(() => autocast({ recipe: delayedRecipe }, forward)))).toBe(1);
    expect(scaleAfter((forward) => autocast({ recipe: delayedRecipe }, () => noGrad(forward)))).not.toBe(1);
  });
});

describe("interleaved training runs", () => {
  const STEPS = 3;

  /** A training run that yields to other runs inside of its regions and between them. */
  async function learned(recipe: Recipe, seed: number, pause: () => Promise<void>) {
    const model = new Learner(backend(), seed);
    const losses: number[] = [];
    for (let step = 0; step < STEPS; step++) {
      const loss = await autocast({ recipe }, async () => {
        await pause();
        const losses = model.loss((x, [firstLayer, secondLayer]) => {
          const hidden = autocast({ enabled: step % 2 === 0, recipe }, () => firstLayer.forward(x));
          return secondLayer.forward(hidden);
        });
        await pause();
        return losses;
      });
      await pause();
      losses.push(model.learn(loss));
    }
    const result = { losses, layers: layerStates(model.layers) };
    model.dispose();
    return result;
  }

  it("give the bits that each gives alone, under their own recipes", async () => {
    using _scope = new Scope();
    const singleResults = [];
    for (const [i, name] of RECIPE_NAMES.entries())
      singleResults.push(await learned(RECIPES[name](), 10 * i, async () => {}));
    let callCount = 0;
    const pause = async () => {
      for (let i = callCount++ % 3; i >= 0; i--) await new Promise(setImmediate);
    };
    const together = await Promise.all(
      RECIPE_NAMES.map((name, i) => learned(RECIPES[name](), 10 * i, pause)),
    );
    expect(together).toEqual(singleResults);
    expect(callCount).toBe(RECIPE_NAMES.length * STEPS * 3);
  });
});
