/** A gradient is bitwise the same whether it is the only required one or all gradients are required. */
import { expect, it } from "vitest";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { download } from "../../../values/plain.js";
import {
  createInputs,
  inputsWithGradients,
  rowsWhere,
  step,
  testedCases,
} from "../../harness/modules/calls.js";
import type { ModuleRow } from "../../harness/modules/row.js";
import { recipeByName } from "../../harness/step/library-recipes.js";
import { RECIPES, type RecipeName } from "../../harness/step/options.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const SIZES = { rows: 32, from: 32, to: 32, middle: 32 };

/** The gradients of a new module's parameters and inputs, by name, for the names for which `isRequired` returns true. */
function gradients(
  row: ModuleRow,
  recipe: RecipeName,
  isRequired: (name: string) => boolean,
): ReadonlyMap<string, unknown> {
  using _ = new Scope();
  using builtModule = row.build(backend(), SIZES, { random: new RandomState(7n) });
  const inputs = inputsWithGradients(createInputs(backend(), builtModule, SIZES)).map(
    (x, i) => [`input ${i}`, x] as const,
  );
  const leaves: readonly (readonly [string, Variable])[] = [
    ...builtModule.module.namedParameters(),
    ...inputs,
  ];
  for (const [name, leaf] of leaves) leaf.requiresGrad = isRequired(name);
  const variables =
    inputs.length > 0 ? inputs.map(([, x]) => x) : createInputs(backend(), builtModule, SIZES);
  step(builtModule, variables, recipe === "none" ? undefined : recipeByName(recipe));
  const bits = leaves.flatMap(([name, { grad }]) => (grad ? [[name, download(grad)] as const] : []));
  for (const [, x] of inputs) x.zeroGrad();
  return new Map(bits);
}

/** Whether results depend on the order in which products draw random bits. */
const isStochastic = (name: RecipeName): boolean => {
  const recipe = RECIPES[name];
  return recipe?.kind === "nvfp4" && recipe.stochastic;
};

const CASES = rowsWhere().flatMap(([name, row]) =>
  (Object.keys(RECIPES) as RecipeName[])
    .filter((recipe) => recipe === "none" || (row.quantizes && !(row.branches && isStochastic(recipe))))
    .map((recipe) => [name, recipe, row] as const),
);

it.each(testedCases(CASES, ([, , row]) => row))(
  "each gradient of %s under %s has the same bits if it is the only one",
  (_, recipe, row) => {
    const allGradients = gradients(row, recipe, () => true);
    for (const [name, grad] of allGradients) {
      const loneGradients = gradients(row, recipe, (otherName) => otherName === name);
      expect(loneGradients, name).toEqual(new Map([[name, grad]]));
    }
  },
);
