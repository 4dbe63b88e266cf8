/** Rules by name are bitwise equal to separate regions around each layer. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  ArgumentError,
  type AutocastOptions,
  autocast,
  DelayedScaling,
  encode,
  Float8BlockScaling,
  Float8CurrentScaling,
  functional,
  LayerNormLinear,
  LayerNormMLP,
  type LayerRecipe,
  Linear,
  Module,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
  normal,
  type QuantizationState,
  RandomState,
  type Recipe,
  recompute,
  Scope,
  setLayerRecipes,
  type Tensor,
  tensor,
  Variable,
} from "../../../src/index.js";
import { pairwise } from "../../arbitraries/covering.js";
import { sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const SIZE = 128;
const STEPS = 2;
const backend = useBackend({ threads: 1, datapath: "hopper" });

const MAKE = {
  delayed: () => new DelayedScaling(),
  current: () => new Float8CurrentScaling(),
  block: () => new Float8BlockScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
  nvfp4: () => new NVFP4BlockScaling(),
} as const;
type Name = keyof typeof MAKE;

class Model extends Module {
  readonly layers: readonly (readonly [name: string, layer: Linear | LayerNormLinear | LayerNormMLP])[];

  constructor(random: RandomState) {
    super(backend(), { random });
    const options = { random };
    const namedRecipes = [
      new Linear(backend(), SIZE, SIZE, options),
      new LayerNormLinear(backend(), SIZE, SIZE, options),
      new LayerNormMLP(backend(), SIZE, SIZE, options),
    ] as const;
    this.layers = namedRecipes.map((layer, i) => [`layer${i}`, this.addModule(`layer${i}`, layer)] as const);
  }
}

function sample(number: number): Tensor {
  const values = normal({ seed: 3n, offset: BigInt(number) }, 32 * SIZE, 1);
  return encode(tensor(backend(), values, [32, SIZE]), { format: "bf16" });
}

/** Results, gradients and states of a few steps. `run` runs one layer in its region. */
function trainModel(
  region: AutocastOptions,
  prepare: (model: Model) => void,
  run: (name: string, forward: () => Variable) => Variable,
  recomputes: boolean,
): unknown {
  using _ = new Scope();
  using model = new Model(new RandomState(1n));
  prepare(model);
  return Array.from({ length: STEPS }, (_, step) => {
    const x = new Variable(sample(step), true);
    const body = (hidden: Variable): Variable =>
      model.layers.reduce((input, [name, layer]) => run(name, () => layer.forward(input)), hidden);
    const y = autocast(region, () => (recomputes ? recompute(body, x) : body(x)));
    y.backward(sample(step + STEPS));
    const grads = [x, ...model.parameters()].map(({ grad }) => grad?.dataSync());
    x.zeroGrad();
    for (const parameter of model.parameters()) parameter.zeroGrad();
    const states = [...model.namedQuantizations().values()].map((state) => state.snapshotSync());
    return { y: y.tensor.dataSync(), grads, states };
  });
}

const OWN = [undefined, null, ...(Object.keys(MAKE) as Name[])] as const;
const CASES = pairwise(
  {
    region: Object.keys(MAKE) as Name[],
    first: OWN,
    second: OWN,
    third: OWN,
    mode: ["enabled", "calibrating", "off"] as const,
    recomputes: [false, true],
  },
  () => 0,
);

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => undefined);
});
afterEach(() => vi.restoreAllMocks());

describe("setLayerRecipes", () => {
  it.each(sampleCases(CASES))("has the bits of a region around each layer: %o", (settings) => {
    const { first, second, third, mode, recomputes } = settings;
    const ownRecipes = [first, second, third].map((name) => (name ? MAKE[name]() : name));
    const enabled = mode === "enabled";
    const region = { recipe: MAKE[settings.region](), enabled, calibrating: mode === "calibrating" };
    const rules = ownRecipes.flatMap((recipe, i): LayerRecipe[] =>
      recipe === undefined ? [] : [{ layers: `layer${i}`, recipe }],
    );
    const resultsUnderRules = trainModel(
      region,
      (model) => setLayerRecipes(model, rules),
      (_, forward) => forward(),
      recomputes,
    );
    const inRegion = (name: string, forward: () => Variable): Variable => {
      const recipe = ownRecipes[Number(name.slice(-1))];
      if (recipe === undefined) return forward();
      return autocast(recipe ? { ...region, recipe } : { enabled: false }, forward);
    };
    expect(resultsUnderRules).toEqual(trainModel(region, () => {}, inRegion, recomputes));
  });

  it.each(
    sampleCases(
      pairwise(
        { fc1: [null, "delayed", "current", "block", "mxfp8"], fc2: [null, "block", "mxfp8"] },
        () => 0,
      ),
      3,
    ),
  )("gives the two products of a gated MLP recipes of their own: %o", ({ fc1, fc2 }) => {
    using _ = new Scope();
    const [fc1Recipe, fc2Recipe] = [fc1, fc2].map((name) => (name ? MAKE[name as Name]() : null));
    const region = { recipe: MAKE.nvfp4() };
    const optionsOf = (recipe: Recipe | null | undefined) => (recipe ? { recipe } : { enabled: false });
    const random = new RandomState(1n);
    using mlp = new LayerNormMLP(backend(), SIZE, SIZE, { activation: "swiglu", random });
    const randomAgain = new RandomState(1n);
    using upLayer = new LayerNormLinear(backend(), SIZE, 2 * SIZE, { random: randomAgain });
    using downLayer = new Linear(backend(), SIZE, SIZE, { random: randomAgain });
    setLayerRecipes(mlp, [
      { layers: "fc1", recipe: fc1Recipe ?? null },
      { layers: "fc2", recipe: fc2Recipe ?? null },
    ]);
    const gradients = (layers: readonly Module[], forward: (x: Variable) => Variable): unknown => {
      const x = new Variable(sample(0), true);
      const y = autocast(region, () => forward(x));
      y.backward(sample(1));
      const grads = [x, ...layers.flatMap((layer) => layer.parameters())].map(({ grad }) => grad?.dataSync());
      x.zeroGrad();
      for (const layer of layers) for (const parameter of layer.parameters()) parameter.zeroGrad();
      return [y.tensor.dataSync(), ...grads];
    };
    const expected = gradients([upLayer, downLayer], (x) => {
      const hidden = autocast(optionsOf(fc1Recipe), () => upLayer.forward(x));
      return autocast(optionsOf(fc2Recipe), () => downLayer.forward(functional.gated(hidden, "silu")));
    });
    expect(gradients([mlp], (x) => mlp.forward(x))).toEqual(expected);
  });

  it("lets the last of several rules apply, for names of products and of modules, and forgets earlier rules", () => {
    using _ = new Scope();
    const x = sample(0);
    const recipe = MAKE.mxfp8();
    const results = (rules: readonly LayerRecipe[], earlierRules: readonly LayerRecipe[] = []): unknown => {
      using model = new Model(new RandomState(1n));
      setLayerRecipes(model, earlierRules);
      setLayerRecipes(model, rules);
      return autocast({ recipe }, () =>
        model.layers.reduce((input, [, layer]) => layer.forward(input), new Variable(x)),
      ).tensor.dataSync();
    };
    const [wide, block] = [null, MAKE.block()];
    const plainResults = results([]);
    const layerResults = results([{ layers: "layer1.linear", recipe: block }]);
    expect(layerResults).not.toEqual(plainResults);
    expect(results([{ layers: "layer1", recipe: block }])).toEqual(layerResults);
    expect(
      results([
        { layers: "layer1*", recipe: wide },
        { layers: "layer?.linear", recipe },
        { layers: "layer1", recipe: block },
      ]),
    ).toEqual(layerResults);
    expect(results([{ layers: "*", recipe: wide }])).not.toEqual(plainResults);
    expect(results([], [{ layers: "*", recipe: wide }])).toEqual(plainResults);
    expect(results([{ layers: "layer1", recipe: block }], [{ layers: "layer2", recipe: wide }])).toEqual(
      layerResults,
    );
  });

  it("refuses a rule without a layer and one for a state that a module defines, and then changes nothing", () => {
    using _ = new Scope();
    class OwnModule extends Module {
      readonly linear = this.addModule(
        "linear",
        new Linear(backend(), SIZE, SIZE, { random: new RandomState(1n) }),
      );
      protected override quantizations(): ReadonlyMap<string, QuantizationState> {
        return new Map([["own", { snapshotSync: () => undefined, restore() {}, dispose() {} }]]);
      }
    }
    using model = new OwnModule(backend());
    const recipe = MAKE.current();
    const run = () => autocast({ recipe }, () => model.linear.forward(sample(0))).tensor.dataSync();
    const resultBefore = run();
    const rule = { layers: "linear", recipe: null };
    expect(() => setLayerRecipes(model, [rule, { layers: "liner", recipe: null }])).toThrow(
      /^setLayerRecipes: no layer matches "liner"; did you mean linear\?$/,
    );
    expect(() => setLayerRecipes(model, [{ layers: "unlike", recipe: null }])).toThrow(
      /^setLayerRecipes: no layer matches "unlike"; there are own, linear, linear\.linear$/,
    );
    expect(() => setLayerRecipes(model, [rule, { layers: "o*", recipe: null }])).toThrow(ArgumentError);
    expect(run()).toEqual(resultBefore);
    setLayerRecipes(model, [rule]);
    expect(run()).not.toEqual(resultBefore);
  });
});
