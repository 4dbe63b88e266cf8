/** An inspector changes no bit of the tensors that it observes, and computes the selected products in high precision. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  ArgumentError,
  autocast,
  type Backend,
  CustomRecipe,
  DelayedScaling,
  DisposedError,
  dequantize,
  encode,
  FakeQuantizer,
  Float8CurrentScaling,
  GroupedLinear,
  type InspectionRule,
  Inspector,
  LayerNormLinear,
  LayerNormMLP,
  Linear,
  MXFP8BlockScaling,
  MXFP8Quantizer,
  normal,
  type QuantizedTensor,
  RandomState,
  type Recipe,
  recompute,
  Scope,
  setLayerRecipes,
  type Tensor,
  tensor,
  Variable,
  type WideDType,
} from "../../../../src/index.js";
import { quantizerFor } from "../../../../src/recipes/quantizer-for.js";
import { PRODUCTS, type Product, type Role } from "../../../../src/recipes/table.js";
import { COLUMNWISE, ROWWISE } from "../../../../src/tensor/quantized.js";
import { pairwise } from "../../../arbitraries/covering.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { DETERMINISTIC_RECIPES } from "../../harness/recipes.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const SIZE = 128;
const RECIPES = Object.keys(DETERMINISTIC_RECIPES).filter((name) => name !== "bf16");
const recipeOf = (name: string): Recipe => DETERMINISTIC_RECIPES[name]?.() as Recipe;

const LAYERS = {
  Linear: (backend: Backend, random: RandomState) => new Linear(backend, SIZE, SIZE, { random }),
  LayerNormLinear: (backend: Backend, random: RandomState) =>
    new LayerNormLinear(backend, SIZE, SIZE, { random }),
  LayerNormMLP: (backend: Backend, random: RandomState) => new LayerNormMLP(backend, SIZE, SIZE, { random }),
  GroupedLinear: (backend: Backend, random: RandomState) =>
    new GroupedLinear(backend, 2, SIZE, SIZE, { random }),
} as const;
type LayerName = keyof typeof LAYERS;

type Layer = ReturnType<(typeof LAYERS)[LayerName]>;

const layerOf = (name: LayerName): Layer => LAYERS[name](backend(), new RandomState(1n));
const linear = (): Linear => LAYERS.Linear(backend(), new RandomState(1n));

function sample(offset: number): Tensor<"bf16"> {
  const values = normal({ seed: 3n, offset: BigInt(offset) }, 32 * SIZE, 1);
  return encode(tensor(backend(), values, [32, SIZE]), { format: "bf16" }) as Tensor<"bf16">;
}

/** Results, gradients and states of a module over steps. `afterStep` runs after each. */
function trainModule(
  module: Layer,
  {
    recipe,
    steps = 2,
    recomputes = false,
  }: { recipe: Recipe | undefined; steps?: number; recomputes?: boolean },
  afterStep: () => void = () => undefined,
): unknown {
  using _ = new Scope();
  const splits = module instanceof GroupedLinear ? [20, 12] : [];
  const forward = (hidden: Variable): Variable =>
    module instanceof GroupedLinear ? module.forward(hidden, splits) : module.forward(hidden);
  return Array.from({ length: steps }, (_, step) => {
    const x = new Variable(sample(step), true);
    const body = (): Variable => (recomputes ? recompute(forward, x) : forward(x));
    const y = recipe ? autocast({ recipe }, body) : body();
    y.backward(sample(step + steps));
    const grads = [x, ...module.parameters()].map(({ grad }) => grad?.dataSync());
    x.zeroGrad();
    for (const parameter of module.parameters()) parameter.zeroGrad();
    const states = [...module.namedQuantizations().values()].map((state) => state.snapshotSync());
    afterStep();
    return { y: y.tensor.dataSync(), grads, states };
  });
}

const CASES = pairwise(
  { layer: Object.keys(LAYERS) as LayerName[], recipe: RECIPES, recomputes: [false, true] },
  () => 0,
);

describe("LogTensorStats", () => {
  it.each(sampleCases(CASES))("changes no bit of %o", ({ layer, recipe: name, recomputes }) => {
    using plainLayer = layerOf(layer);
    using module = layerOf(layer);
    const expected = trainModule(plainLayer, { recipe: recipeOf(name), recomputes });
    using inspector = new Inspector(module, [{ layers: ["*"], LogTensorStats: {} }]);
    const counts: number[] = [];
    const actual = trainModule(module, { recipe: recipeOf(name), recomputes }, () => {
      counts.push(inspector.endStep().length);
    });
    expect(actual).toEqual(expected);
    const products = module.namedQuantizations().size;
    expect(counts).toEqual([6 * products, 6 * products]);
  });

  it("logs every copy once, with the elements of all calls", () => {
    using module = layerOf("Linear");
    using inspector = new Inspector(module, [{ layers: ["linear"], LogTensorStats: { stats: ["amax"] } }], {
      step: 5,
    });
    const recipe = new MXFP8BlockScaling();
    trainModule(module, { recipe, steps: 2 });
    const elements = { input: 2 * 32 * SIZE, weight: SIZE * SIZE, gradOutput: 2 * 32 * SIZE };
    const records = inspector.endStep();
    expect(records.map(({ tensor: name, copy }) => `${name} ${copy}`).sort()).toEqual(
      Object.keys(elements)
        .flatMap((name) => [`${name} columnwise`, `${name} rowwise`])
        .sort(),
    );
    for (const record of records) {
      expect(record).toMatchObject({ step: 5, layer: "linear", quantizer: "mxfp8", format: "e4m3" });
      expect(record.elements).toBe(elements[record.tensor]);
      expect(Object.keys(record.stats)).toEqual(["amax"]);
    }
    expect(inspector.step).toBe(6);
    expect(inspector.endStep()).toEqual([]);
  });

  it("logs the values of a fused norm and activation", () => {
    using module = layerOf("LayerNormMLP");
    using inspector = new Inspector(module, [
      { layers: ["*"], LogTensorStats: { tensors: ["input"], stats: ["amax", "mse", "sqnr"] } },
    ]);
    trainModule(module, { recipe: new Float8CurrentScaling(), steps: 1 });
    for (const { stats } of inspector.endStep()) {
      expect(stats.amax).toBeGreaterThan(0.1);
      expect(stats.sqnr).toBeGreaterThan(25);
      expect(stats.mse).toBeGreaterThan(0);
    }
  });

  it("logs every freq-th step from startStep on, the last one before endStep", () => {
    const number = fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined });
    const cases = fc.tuple(number, number, number, fc.nat(3));
    const recipe = new MXFP8BlockScaling();
    using module = linear();
    const property = fc.property(cases, ([startStep, length, freq, begin]) => {
      const end = begin + 6;
      const startStepOrZero = startStep ?? 0;
      const endStep = length && startStepOrZero + length;
      const LogTensorStats = { tensors: ["weight"], stats: ["amax"], startStep, endStep, freq } as const;
      using _ = new Scope();
      using inspector = new Inspector(module, [{ layers: ["*"], LogTensorStats }], { step: begin });
      const loggedSteps: number[] = [];
      while (inspector.step < end) {
        autocast({ recipe }, () => module.forward(sample(0)));
        loggedSteps.push(...new Set(inspector.endStep().map(({ step }) => step)));
      }
      const expected: number[] = [];
      for (let step = startStepOrZero; step < Math.min(endStep ?? end, end); step += freq ?? 1)
        if (step >= begin) expected.push(step);
      expect(loggedSteps).toEqual(expected);
    });
    fc.assert(property, { numRuns: draws(60, 3), examples: [[[1, undefined, 2, 0]]] });
  });

  it("the last rule that names a tensor applies, and a rule that is not enabled does not", () => {
    using module = layerOf("Linear");
    using inspector = new Inspector(module, [
      { layers: ["*"], LogTensorStats: { stats: ["amax"] } },
      { layers: ["linear"], LogTensorStats: { tensors: ["weight"], stats: ["mean"] } },
      { layers: ["*"], enabled: false, LogTensorStats: { stats: ["max"] } },
    ]);
    trainModule(module, { recipe: new MXFP8BlockScaling(), steps: 1 });
    for (const { tensor: name, stats } of inspector.endStep())
      expect(Object.keys(stats)).toEqual([name === "weight" ? "mean" : "amax"]);
  });
});

describe("DisableFP8Layer and DisableFP8GEMM", () => {
  const ALL: readonly InspectionRule[] = [
    { layers: ["*"], DisableFP8Layer: {} },
    { layers: ["*"], DisableFP8GEMM: { gemms: PRODUCTS } },
  ];

  it.each(sampleCases(CASES))(
    "a disabled layer has the bits of high precision: %o",
    ({ layer, recipe: name, recomputes }) => {
      using plainLayer = layerOf(layer);
      const yAndGrads = (results: unknown) =>
        (results as { y: unknown; grads: unknown }[]).map(({ y, grads }) => ({ y, grads }));
      const expected = yAndGrads(trainModule(plainLayer, { recipe: undefined, recomputes }));
      for (const rule of ALL) {
        using module = layerOf(layer);
        using _ = new Inspector(module, [rule]);
        expect(yAndGrads(trainModule(module, { recipe: recipeOf(name), recomputes }))).toEqual(expected);
      }
    },
  );

  const SUBSETS = [["fprop"], ["dgrad"], ["wgrad"], ["fprop", "wgrad"], ["dgrad", "wgrad"]] as const;
  const PAIRS = SUBSETS.flatMap((gemms) =>
    RECIPES.flatMap((name) => [false, true].map((isRepeated) => [gemms, name, isRepeated] as const)),
  );

  it.each(sampleCases(PAIRS))(
    "each product is computed as the rule says: %o %s recompute=%s",
    (gemms, name, recomputes) => {
      type Step = { y: unknown; grads: readonly unknown[] };
      const run = (rules: readonly InspectionRule[], recipe: Recipe | undefined): readonly Step[] => {
        using module = layerOf("Linear");
        using _ = new Inspector(module, rules);
        return trainModule(module, { recipe, steps: 1, recomputes }) as readonly Step[];
      };
      const results = { wide: run([], undefined), quantized: run([], recipeOf(name)) };
      const gemmOf = (product: Product) =>
        (gemms as readonly Product[]).includes(product) ? results.wide : results.quantized;
      const [step] = run([{ layers: ["*"], DisableFP8GEMM: { gemms } }], recipeOf(name)) as [Step];
      expect(step.y).toEqual(gemmOf("fprop")[0]?.y);
      expect(step.grads[0]).toEqual(gemmOf("dgrad")[0]?.grads[0]);
      expect(step.grads[1]).toEqual(gemmOf("wgrad")[0]?.grads[1]);
      expect(results.wide).not.toEqual(results.quantized);
    },
  );
});

/** The values of one copy of a tensor as the recipe quantizes it in the first step. */
function fake(recipe: Recipe, role: Role, x: Tensor, usage: typeof ROWWISE): Tensor<WideDType> {
  const state = { random: new RandomState(0n), scale: tensor(backend(), [1]) };
  const quantizedTensor: QuantizedTensor = quantizerFor(recipe, role, state).setUsage(usage).quantize(x);
  return dequantize(quantizedTensor, "bf16");
}

/** The result and gradients of a layer in high precision whose weight has these values. */
function wideStep(weight: Tensor, x: Tensor, dy: Tensor): { y: unknown; dx: unknown; dw: unknown } {
  const values = Float32Array.from(encodedValues(weight));
  using module = new Linear(backend(), SIZE, SIZE, { initMethod: () => values });
  const input = new Variable(x, true);
  const y = module.forward(input);
  y.backward(dy);
  const result = { y: y.tensor.dataSync(), dx: input.grad?.dataSync(), dw: module.weight.grad?.dataSync() };
  input.zeroGrad();
  return result;
}

function encodedValues(x: Tensor): Float32Array {
  const bits = (x as Tensor<"bf16">).dataSync();
  return new Float32Array(Uint32Array.from(bits, (code) => code << 16).buffer);
}

describe("FakeQuant", () => {
  it.each(RECIPES)("multiplies the dequantized values of the quantized operands: %s", (name) => {
    using _ = new Scope();
    const recipe = recipeOf(name);
    using module = linear();
    using inspector = new Inspector(module, [{ layers: ["linear"], FakeQuant: {} }]);
    const { weight } = module;
    const w = encode(tensor(backend(), encodedValues(weight.value as Tensor), [SIZE, SIZE]), {
      format: "bf16",
    });
    const [x, dy] = [sample(0), sample(1)];
    const [result] = trainModule(module, { recipe, steps: 1 }) as [{ y: unknown; grads: readonly unknown[] }];
    const fakeOf = (role: Role, value: Tensor, usage: typeof ROWWISE) => fake(recipe, role, value, usage);
    const grad = {
      rowwise: fakeOf("gradOutput", dy, ROWWISE),
      columnwise: fakeOf("gradOutput", dy, COLUMNWISE),
    };
    const { y } = wideStep(fakeOf("weight", w, ROWWISE), fakeOf("input", x, ROWWISE), dy);
    const { dx } = wideStep(fakeOf("weight", w, COLUMNWISE), x, grad.rowwise);
    const { dw } = wideStep(w, fakeOf("input", x, COLUMNWISE), grad.columnwise);
    expect(result.y).toEqual(y);
    expect(result.grads[0]).toEqual(dx);
    expect(result.grads[1]).toEqual(dw);
    expect(inspector.endStep()).toEqual([]);
  });

  it("of one operand leaves the other in high precision", () => {
    using _ = new Scope();
    const recipe = new MXFP8BlockScaling();
    using module = linear();
    using inspector = new Inspector(module, [
      {
        layers: ["*"],
        FakeQuant: { gemms: ["fprop"], tensors: ["input"] },
        LogTensorStats: { stats: ["amax"] },
      },
    ]);
    const [x, dy] = [sample(0), sample(1)];
    const { weight } = module;
    const w = encode(tensor(backend(), encodedValues(weight.value as Tensor), [SIZE, SIZE]), {
      format: "bf16",
    });
    const [result] = trainModule(module, { recipe, steps: 1 }) as [{ y: unknown; grads: readonly unknown[] }];
    expect(result.y).toEqual(wideStep(w, fake(recipe, "input", x, ROWWISE), dy).y);
    using plainLayer = layerOf("Linear");
    const [quantizedStep] = trainModule(plainLayer, { recipe, steps: 1 }) as [{ grads: readonly unknown[] }];
    expect(result.grads).toEqual(quantizedStep.grads);
    const copies = inspector.endStep().map(({ tensor: operand, copy }) => `${operand} ${copy}`);
    expect(copies.sort()).toEqual([
      "gradOutput columnwise",
      "gradOutput rowwise",
      "input columnwise",
      "input rowwise",
      "weight columnwise",
    ]);
  });

  it("equals a CustomRecipe with fake quantizers", () => {
    const recipe = new CustomRecipe({ quantizerFactory: () => new FakeQuantizer(new MXFP8Quantizer()) });
    using custom = layerOf("LayerNormMLP");
    const expected = trainModule(custom, { recipe });
    using module = layerOf("LayerNormMLP");
    using _ = new Inspector(module, [{ layers: ["*"], FakeQuant: {} }]);
    expect(trainModule(module, { recipe: new MXFP8BlockScaling() })).toEqual(expected);
  });
});

describe("PerTensorScaling", () => {
  it("of all products has the results of current scaling", () => {
    type Step = { y: unknown; grads: unknown };
    const results = (recipe: Recipe, rules: readonly InspectionRule[]): readonly Step[] => {
      using module = layerOf("Linear");
      using _ = new Inspector(module, rules);
      return (trainModule(module, { recipe }) as readonly Step[]).map(({ y, grads }) => ({ y, grads }));
    };
    const scaledResults = results(new DelayedScaling(), [{ layers: ["*"], PerTensorScaling: {} }]);
    expect(scaledResults).toEqual(results(new Float8CurrentScaling(), []));
    expect(scaledResults).not.toEqual(results(new DelayedScaling(), []));
  });

  it("is refused under another recipe before anything has changed", () => {
    using module = layerOf("Linear");
    using _ = new Inspector(module, [{ layers: ["*"], PerTensorScaling: { gemms: ["dgrad"] } }]);
    const step = () => trainModule(module, { recipe: new MXFP8BlockScaling(), steps: 1 });
    expect(step).toThrow(ArgumentError);
    expect(step).toThrow(
      "Inspector: PerTensorScaling of linear replaces the scales of delayed scaling, and the recipe quantizes by mxfp8",
    );
  });
});

describe("the inspector", () => {
  it("ends with dispose, also between the passes of a step", () => {
    using _ = new Scope();
    using plainLayer = linear();
    using module = linear();
    const recipe = new MXFP8BlockScaling();
    const expected = trainModule(plainLayer, { recipe, steps: 1 });
    const inspector = new Inspector(module, [{ layers: ["*"], DisableFP8GEMM: { gemms: ["dgrad"] } }]);
    const x = new Variable(sample(0), true);
    const y = autocast({ recipe }, () => module.forward(x));
    inspector.dispose();
    inspector.dispose();
    y.backward(sample(1));
    x.zeroGrad();
    for (const parameter of module.parameters()) parameter.zeroGrad();
    expect(() => inspector.endStep()).toThrow(DisposedError);
    expect(trainModule(module, { recipe, steps: 1 })).toEqual(expected);
  });

  it("begins between the passes of a step", () => {
    using _ = new Scope();
    using module = linear();
    const x = new Variable(sample(0), true);
    const y = autocast({ recipe: new MXFP8BlockScaling() }, () => module.forward(x));
    using inspector = new Inspector(module, [
      { layers: ["*"], DisableFP8GEMM: { gemms: ["dgrad", "wgrad"] }, LogTensorStats: {} },
    ]);
    y.backward(sample(1));
    x.zeroGrad();
    expect(inspector.endStep()).toEqual([]);
  });

  it("leaves the recipes of setLayerRecipes", () => {
    using plainLayer = linear();
    using module = linear();
    const rules = [{ layers: "linear", recipe: new Float8CurrentScaling() }];
    for (const layer of [plainLayer, module]) setLayerRecipes(layer, rules);
    const expected = trainModule(plainLayer, { recipe: new MXFP8BlockScaling() });
    new Inspector(module, [{ layers: ["*"], DisableFP8Layer: {} }]).dispose();
    expect(trainModule(module, { recipe: new MXFP8BlockScaling() })).toEqual(expected);
  });

  it("is the only one of a layer", () => {
    using module = layerOf("LayerNormMLP");
    using _ = new Inspector(module, [{ layers: ["fc1"], DisableFP8Layer: {} }]);
    new Inspector(module, [{ layers: ["fc2"], DisableFP8Layer: {} }]).dispose();
    expect(() => new Inspector(module, [{ layers: ["*"], DisableFP8Layer: {} }])).toThrow(
      "Inspector: fc1 has an inspector; dispose of it before another one begins",
    );
  });
});
