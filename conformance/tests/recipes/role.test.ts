/** The description of a tensor that the factory of a custom recipe receives. */
import { expect, it } from "vitest";
import {
  autocast,
  CustomRecipe,
  checkRecipeSupport,
  GroupedLinear,
  IdentityQuantizer,
  LayerNormMLP,
  LayerQuantization,
  Linear,
  Module,
  MultiheadAttention,
  MXFP8Quantizer,
  type QuantizerRole,
  Scope,
  Sequential,
  zeros,
} from "../../../src/index.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const SIZE = 64;
const ROLES = ["input", "weight", "output", "gradOutput", "gradInput"];

class Model extends Module {
  readonly layers: Sequential;
  readonly experts: GroupedLinear;
  readonly attention: MultiheadAttention;

  constructor() {
    super(backend());
    this.layers = this.addModule(
      "layers",
      new Sequential(backend(), new Linear(backend(), SIZE, SIZE), new LayerNormMLP(backend(), SIZE, SIZE)),
    );
    this.experts = this.addModule("experts", new GroupedLinear(backend(), 2, SIZE, SIZE));
    this.attention = this.addModule("attention", new MultiheadAttention(backend(), SIZE, 2));
  }
}

it("each factory call names the layer as namedQuantizations does, once for each role", () => {
  using _ = new Scope();
  using model = new Model();
  const roles: QuantizerRole[] = [];
  const recipe = new CustomRecipe({
    quantizerFactory: (role, position) => {
      expect(position.tensorType).toBe(role);
      expect(Object.isFrozen(position)).toBe(true);
      roles.push(position);
      return new MXFP8Quantizer();
    },
  });
  const run = (): void => {
    const hidden = model.layers.forward(zeros(backend(), "bf16", [32, SIZE]));
    model.experts.forward(hidden, [16, 16]);
    model.attention.forward(zeros(backend(), "bf16", [32, 1, SIZE]));
  };
  autocast({ recipe }, run);
  const kindOf = (name: string) => (name.startsWith("experts") ? "groupedLinear" : "linear");
  // attention computes in high precision under a custom recipe
  const names = [...model.namedQuantizations().keys()].filter((name) => !name.endsWith(".attention"));
  const expected = names.flatMap((name) =>
    ROLES.map((tensorType) => `${kindOf(name)} ${name} ${tensorType}`),
  );
  const descriptions = roles.map(({ moduleType, name, tensorType }) => `${moduleType} ${name} ${tensorType}`);
  expect(descriptions.sort()).toEqual(expected.sort());
  expect(descriptions).toContain("linear layers.1.fc2 weight");
  autocast({ recipe }, run);
  expect(roles.length).toBe(expected.length);
});

it("a layer without a model has the name of its product, and one of the caller's own has the name of its option", () => {
  using _ = new Scope();
  const names: string[] = [];
  const recipe = new CustomRecipe({
    quantizerFactory: (_role, { name }) => {
      names.push(name);
      return new MXFP8Quantizer();
    },
  });
  using layer = new Linear(backend(), SIZE, SIZE);
  autocast({ recipe }, () => layer.forward(zeros(backend(), "bf16", [32, SIZE])));
  expect(new Set(names.splice(0))).toEqual(new Set(["linear"]));
  const ownQuantization = new LayerQuantization(layer.weight, { name: "mine" });
  autocast({ recipe }, () => ownQuantization.begin());
  expect(new Set(names.splice(0))).toEqual(new Set(["mine"]));
  ownQuantization.dispose();
  recipe.quantizer("input");
  checkRecipeSupport(recipe, backend());
  expect(new Set(names)).toEqual(new Set([""]));
});

it("null stands for an IdentityQuantizer", () => {
  const recipe = new CustomRecipe({ quantizerFactory: () => null });
  expect(recipe.quantizer("weight")).toBeInstanceOf(IdentityQuantizer);
  expect(checkRecipeSupport(recipe, backend())).toEqual({ ok: true });
});
