/**
 * A layer drops its cached weight, or both if each copy has its own quantizer, when its recipe changes and when its state is
 * restored: a call that uses the cached weight is then bitwise equal to a call that caches nothing. The same holds for a call
 * with `isFirstMicrobatch: true`, even if its flag says that the weight is not updated. `dispose` frees the cached weight.
 */
import { beforeEach, expect, it, vi } from "vitest";
import { tensor } from "../../../../src/ops/create.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { download } from "../../../values/plain.js";
import { sampleCases } from "../../harness/draws.js";
import { createInputs, inputsWithGradients, rowsWhere, step } from "../../harness/modules/calls.js";
import type { BuiltModule } from "../../harness/modules/row.js";
import {
  CUSTOM_RECIPE_NAMES,
  recipeByName,
  STANDARD_RECIPE_NAMES,
} from "../../harness/step/library-recipes.js";
import type { RecipeName } from "../../harness/step/options.js";
import { useBackend } from "../../harness/suite.js";
import { fill } from "../attention/drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const SIZES = { rows: 32, from: 32, to: 32, middle: 32 };
const NAMES = [...STANDARD_RECIPE_NAMES, ...CUSTOM_RECIPE_NAMES];

/** The recipe of a layer's state between two calls under the recipe `name`. */
const otherRecipe = (name: RecipeName): RecipeName =>
  NAMES[(NAMES.indexOf(name) + 5) % NAMES.length] as RecipeName;

/** The bits of a step's result and gradients. */
function bitsOf(
  builtModule: BuiltModule,
  recipe: Recipe | undefined,
  seed: number,
  call: object,
): readonly unknown[] {
  using _ = new Scope();
  const inputs = createInputs(backend(), builtModule, { ...SIZES, seed });
  const leaves = [...inputsWithGradients(inputs), ...builtModule.module.parameters()];
  const y = step(builtModule, inputs, recipe, { call, seed: seed + 1 });
  const bits = [y.tensor, ...leaves.map(({ grad }) => grad)].map(
    (tensor) => tensor && String(download(tensor).codes),
  );
  for (const leaf of leaves) leaf.zeroGrad();
  return bits;
}

/**
 * The steps of a module, each after a change that drops its cached weight or renews it. `caches`: whether calls cache the weight.
 */
function stepsOf(
  builtModule: BuiltModule,
  recipe: RecipeName,
  caches: boolean,
): Readonly<Record<string, unknown>> {
  const recipes = new Map<RecipeName, Recipe | undefined>();
  const takeStep = (
    name: RecipeName,
    seed: number,
    isFirstMicrobatch = false,
    call = {},
  ): readonly unknown[] => {
    fill(seed, builtModule.module);
    // custom recipes are equal only to themselves
    const recipe = recipes.get(name) ?? recipeByName(name);
    recipes.set(name, recipe);
    return bitsOf(builtModule, recipe, seed, caches ? { isFirstMicrobatch, ...call } : {});
  };
  using skipFp8WeightUpdate = tensor(backend(), [1]);
  const firstRecipe = takeStep(recipe, 1, true);
  const otherRecipes = takeStep(otherRecipe(recipe), 2);
  const repeatedRecipes = takeStep(recipe, 3);
  for (const [, quantization] of builtModule.module.namedQuantizations())
    quantization.restore(quantization.snapshotSync());
  const restoredStep = takeStep(recipe, 4);
  const renewedStep = takeStep(recipe, 5, true, { skipFp8WeightUpdate });
  return {
    first: firstRecipe,
    "under another recipe": otherRecipes,
    "under the first again": repeatedRecipes,
    restored: restoredStep,
    renewed: renewedStep,
  };
}

const CASES = rowsWhere(
  ({ call, composed }) => call.includes("isFirstMicrobatch") && composed === undefined,
).flatMap(([name, row]) => NAMES.map((recipe) => [name, recipe, row] as const));
/** The cases that each run tests: a Linear under custom quantizers, which may differ between the copies. */
const isTested = ([name, recipe]: (typeof CASES)[number]): boolean =>
  name === "Linear" && CUSTOM_RECIPE_NAMES.includes(recipe);

// a layer warns that its recipe changes
beforeEach(() => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
  return () => warn.mockRestore();
});

it.each([
  ...CASES.filter(isTested),
  ...sampleCases(
    CASES.filter((testCase) => !isTested(testCase)),
    8,
  ),
])("the steps of %s under %s are the same with and without a cache", (_name, recipe, row) => {
  const [cachedSteps, plainSteps] = [true, false].map((caches) => {
    using _ = new Scope();
    using builtModule = row.build(backend(), SIZES, { random: new RandomState(7n) });
    return stepsOf(builtModule, recipe, caches);
  });
  expect(cachedSteps).toEqual(plainSteps);
});
