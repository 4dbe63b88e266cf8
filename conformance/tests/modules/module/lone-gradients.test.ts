/** A gradient that is required on its own has the bits that it has when all gradients are required. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { LayerNorm, RMSNorm } from "../../../../src/modules/norm.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { download } from "../../../values/plain.js";
import { drawnTensor } from "../../harness/drawn-tensor.js";
import { recipeNamed } from "../../harness/step/library-recipes.js";
import { RECIPES, type RecipeName } from "../../harness/step/options.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const SIZE = 32;
const INPUT = "input";

type Layer = Module & { forward(x: Variable): Variable };
const seeded = () => ({ random: new RandomState(7n) });
const PRODUCTS: Readonly<Record<string, () => Layer>> = {
  Linear: () => new Linear(backend(), SIZE, SIZE, seeded()),
  LayerNormLinear: () => new LayerNormLinear(backend(), SIZE, SIZE, seeded()),
  LayerNormMLP: () => new LayerNormMLP(backend(), SIZE, SIZE, seeded()),
  "gated LayerNormMLP": () => new LayerNormMLP(backend(), SIZE, SIZE, { ...seeded(), activation: "swiglu" }),
};
const LAYERS: typeof PRODUCTS = {
  ...PRODUCTS,
  LayerNorm: () => new LayerNorm(backend(), SIZE),
  RMSNorm: () => new RMSNorm(backend(), SIZE),
};

/** The gradients of a new layer's parameters and of its input, by name, of those that `isRequired` names. */
function gradients(
  make: () => Layer,
  recipe: RecipeName,
  isRequired: (name: string) => boolean,
): ReadonlyMap<string, unknown> {
  using _ = new Scope();
  using layer = make();
  const parameters = layer.namedParameters();
  for (const [name, parameter] of parameters) parameter.requiresGrad = isRequired(name);
  const x = new Variable(drawnTensor(backend(), 1, [SIZE, SIZE], "bf16"), isRequired(INPUT));
  const forward = () => layer.forward(x);
  const y = recipe === "none" ? forward() : autocast({ recipe: recipeNamed(recipe) }, forward);
  y.backward(drawnTensor(backend(), 2, [SIZE, SIZE], "bf16"));
  const leaves: readonly (readonly [string, { readonly grad: Tensor | undefined }])[] = [
    ...parameters,
    [INPUT, x],
  ];
  const bits = leaves.flatMap(([name, { grad }]) => (grad ? [[name, download(grad)] as const] : []));
  x.zeroGrad();
  return new Map(bits);
}

describe.each(Object.entries(LAYERS))("%s", (layer, make) => {
  const recipes = (Object.keys(RECIPES) as RecipeName[]).filter(
    (name) => name === "none" || layer in PRODUCTS,
  );
  it.each(recipes)("%s", (recipe) => {
    const all = gradients(make, recipe, () => true);
    for (const [name, grad] of all) {
      const lone = gradients(make, recipe, (each) => each === name);
      expect(lone, name).toEqual(new Map([[name, grad]]));
    }
  });
});
