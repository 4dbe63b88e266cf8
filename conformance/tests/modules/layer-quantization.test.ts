/** A linear layer that uses only exports of the package has the bits and the state of `Linear`. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  ArgumentError,
  autocast,
  type Backend,
  type BackwardPass,
  dequantize,
  differentiable,
  encode,
  Float8CurrentScaling,
  type GemmOptions,
  gemm,
  getFp8Group,
  getFp8Recipe,
  isFirstFp8Module,
  isFp8Calibration,
  isFp8Enabled,
  type LayerCall,
  LayerQuantization,
  type LayerWeightRequest,
  Linear,
  Module,
  MXFP8BlockScaling,
  noGrad,
  normal,
  type Parameter,
  type QuantizationState,
  QuantizedTensor,
  quantizedModelInit,
  RandomState,
  recompute,
  Scope,
  setLayerRecipes,
  type Tensor,
  tensor,
  Variable,
  type WideDType,
  withFp8Parameters,
} from "../../../src/index.js";
import { pairwise } from "../../arbitraries/covering.js";
import { sampleCases } from "../harness/draws.js";
import { recipeByName, STANDARD_RECIPE_NAMES } from "../harness/step/library-recipes.js";
import { useBackend } from "../harness/suite.js";

const SIZE = 128;
const STEPS = 3;
const backend = useBackend({ threads: 1, datapath: "hopper" });

class OutsideLinear extends Module {
  readonly quantization: LayerQuantization;

  constructor(
    layerBackend: Backend,
    readonly weight: Parameter,
    random: RandomState,
  ) {
    super(layerBackend, { random });
    this.addParameter("weight", weight);
    this.quantization = new LayerQuantization(weight, { random });
  }

  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map([["linear", this.quantization]]);
  }

  forward(x: Variable, use: LayerWeightRequest = {}): Variable {
    const { quantization, weight } = this;
    quantization.calibrate(x.tensor);
    const [out] = differentiable([x, weight], (grad) => {
      const call = quantization.begin();
      const needs = { x: grad && x.requiresGrad, weight: grad && weight.requiresGrad };
      if (!call) return wideProduct(x.tensor, weight.tensor, needs);
      return quantizedProduct(call, { values: x.tensor, parameter: weight }, use, needs);
    });
    return out;
  }
}

interface Needs {
  readonly x: boolean;
  readonly weight: boolean;
}

/** The forward product with quantized operands, the tensors that it saves, and its backward function. */
function quantizedProduct(
  call: LayerCall,
  { values, parameter }: { readonly values: Tensor; readonly parameter: Variable },
  use: LayerWeightRequest,
  needs: Needs,
) {
  const { recipe, backward, quantizer, weight } = call;
  if (recipe.backwardOverride !== "none")
    return productWithWideGradients(call, { values, parameter }, use, needs);
  const x = quantizer("input").setUsage({ rowwise: true, columnwise: needs.weight }).quantize(values);
  const w = weight({ ...use, columnwise: needs.x });
  return {
    results: [product({ x, w, ...recipe.fprop })],
    saved: [x, w, ...backward.saved],
    backward: ([grad]: readonly unknown[], pass: BackwardPass) => {
      backward.begin(pass);
      const usage = { rowwise: needs.x, columnwise: needs.weight };
      const dy = backward
        .quantizer("gradOutput")
        .setUsage(usage)
        .quantize(grad as Tensor);
      return [
        needs.x ? product({ a: w, b: dy, layout: "NN", ...recipe.dgrad }) : undefined,
        needs.weight ? product({ a: x, b: dy, layout: "NT", ...recipe.wgrad }) : undefined,
      ];
    },
  } as const;
}

/** As `quantizedProduct`, for a recipe whose `backwardOverride` computes gradients in bf16. */
function productWithWideGradients(
  { recipe, quantizer, weight }: LayerCall,
  { values, parameter }: { readonly values: Tensor; readonly parameter: Variable },
  use: LayerWeightRequest,
  needs: Needs,
) {
  const x = quantizer("input").setUsage({ rowwise: true, columnwise: false }).quantize(values);
  const w = weight(use);
  const dequantizes = recipe.backwardOverride === "dequantized";
  return {
    results: [product({ x, w, ...recipe.fprop })],
    saved: dequantizes ? [x, w] : [values],
    backward: ([grad]: readonly unknown[]) =>
      wideGradients(
        dequantizes ? dequantize(x, "bf16") : values,
        dequantizes ? dequantize(w, "bf16") : wideValue(parameter),
        grad as Tensor,
        needs,
      ),
  } as const;
}

function wideProduct(x: Tensor, w: Tensor, needs: Needs) {
  return {
    results: [product({ x, w })],
    backward: ([grad]: readonly unknown[]) => wideGradients(x, w, grad as Tensor, needs),
  } as const;
}

function wideValue({ value }: Variable): Tensor {
  return value instanceof QuantizedTensor ? dequantize(value, "bf16") : value;
}

function wideGradients(x: Tensor, w: Tensor, grad: Tensor, needs: Needs) {
  return [
    needs.x ? product({ a: w, b: grad, layout: "NN" }) : undefined,
    needs.weight ? product({ a: x, b: grad, layout: "NT" }) : undefined,
  ] as const;
}

function product(options: GemmOptions): Tensor<WideDType> {
  return gemm({ ...options, outDtype: "bf16" }).out as Tensor<WideDType>;
}

interface Layer extends Module {
  readonly weight: Parameter;
  forward(x: Variable, use?: { readonly isFirstMicrobatch?: boolean }): Variable;
}

interface Case {
  readonly recipe: (typeof STANDARD_RECIPE_NAMES)[number];
  readonly cached: boolean;
  readonly inputGradient: boolean;
  readonly weightGradient: boolean;
  readonly quantizedWeight: boolean;
  readonly recomputes: boolean;
  readonly calibrates: boolean;
  /** Whether the state is saved and restored after the first step. */
  readonly restores: boolean;
  /** Whether the layer runs under another recipe between the forward and the backward pass. */
  readonly changes: boolean;
}

const BOTH = [false, true];
/** A cached weight that the first run of `recompute` quantizes and the backward pass reads. */
const CACHED_AND_RECOMPUTED: readonly Case[] = BOTH.map((weightGradient) => ({
  ...{ recipe: "nvfp4", cached: true, inputGradient: true, weightGradient, recomputes: true },
  ...{ quantizedWeight: false, calibrates: false, restores: false, changes: false },
}));
const PAIRS: readonly Case[] = pairwise(
  {
    recipe: STANDARD_RECIPE_NAMES,
    cached: BOTH,
    inputGradient: BOTH,
    weightGradient: BOTH,
    quantizedWeight: BOTH,
    recomputes: BOTH,
    calibrates: BOTH,
    restores: BOTH,
    changes: BOTH,
  },
  () => 0,
);

function sample(number: number): Tensor {
  const values = normal({ seed: 3n, offset: BigInt(number) }, SIZE * SIZE, 1 + number);
  return encode(tensor(backend(), values, [SIZE, SIZE]), { format: "bf16" });
}

/** Every result, gradient and state of a few steps. */
function trainedState(make: (random: RandomState) => Layer, settings: Case): readonly unknown[] {
  using _ = new Scope();
  const recipe = recipeByName(settings.recipe);
  const random = new RandomState(1n);
  const create = () => make(random);
  using layer = settings.quantizedWeight ? quantizedModelInit({ recipe }, create) : create();
  layer.weight.requiresGrad = settings.weightGradient;
  const states = () => [...layer.namedQuantizations().values()];
  if (settings.calibrates)
    autocast({ recipe, enabled: false, calibrating: true }, () =>
      noGrad(() => (settings.quantizedWeight ? undefined : layer.forward(new Variable(sample(8))))),
    );
  return Array.from({ length: STEPS }, (_, step) => {
    const x = new Variable(sample(step), settings.inputGradient);
    const use = settings.cached ? { isFirstMicrobatch: step !== 1 } : {};
    const body = (hidden: Variable): Variable => layer.forward(hidden, use);
    const y = autocast({ recipe }, () => (settings.recomputes ? recompute(body, x) : body(x)));
    if (settings.changes && !settings.quantizedWeight && !settings.cached)
      noGrad(() => autocast({ recipe: new Float8CurrentScaling() }, () => layer.forward(x)));
    if (y.requiresGrad) y.backward(sample(step + STEPS));
    const observedData = [y.tensor, x.grad, layer.weight.grad].map((tensor) => tensor?.dataSync());
    x.zeroGrad();
    layer.weight.zeroGrad();
    const snapshots = states().map((state) => state.snapshotSync());
    if (settings.restores && step === 0)
      for (const [i, state] of states().entries()) state.restore(snapshots[i]);
    return { seen: observedData, snapshots, offset: random.offset };
  });
}

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => undefined);
});
afterEach(() => vi.restoreAllMocks());

describe("LayerQuantization", () => {
  it.each([...CACHED_AND_RECOMPUTED, ...sampleCases(PAIRS)])(
    "gives a layer the bits and the state of Linear: %o",
    (settings) => {
      const options = (random: RandomState) => ({ bias: false, random });
      const expected = trainedState((random) => new Linear(backend(), SIZE, SIZE, options(random)), settings);
      const outsideLinear = (random: RandomState): Layer => {
        const { weight } = new Linear(backend(), SIZE, SIZE, options(random));
        return new OutsideLinear(backend(), weight, random);
      };
      expect(trainedState(outsideLinear, settings)).toEqual(expected);
    },
  );

  it.each(BOTH.flatMap((enabled) => BOTH.map((isCalibrating) => [enabled, isCalibrating] as const)))(
    "records amaxes by calibrate in a calibrating region that is not enabled: enabled %s, calibrating %s",
    (enabled, isCalibrating) => {
      using _ = new Scope();
      const { weight } = new Linear(backend(), SIZE, SIZE, { bias: false, random: new RandomState(1n) });
      using layer = new OutsideLinear(backend(), weight, new RandomState(1n));
      const recipe = recipeByName("delayed");
      autocast({ recipe, enabled, calibrating: isCalibrating }, () =>
        layer.quantization.calibrate(sample(1)),
      );
      const amaxes = layer.quantization.snapshotSync()?.forward.amaxHistory ?? [];
      expect(amaxes.some((amax) => amax > 0)).toBe(!enabled && isCalibrating);
    },
  );

  it("resets to the state of a new layer", () => {
    using _ = new Scope();
    const run = (layer: Layer): unknown =>
      autocast({ recipe }, () => layer.forward(new Variable(sample(1)))).tensor.dataSync();
    const recipe = recipeByName("delayed");
    const { weight } = new Linear(backend(), SIZE, SIZE, { bias: false, random: new RandomState(1n) });
    using layer = new OutsideLinear(backend(), weight, new RandomState(1n));
    const [firstResult, secondResult] = [run(layer), run(layer)];
    layer.quantization.reset();
    expect(layer.quantization.snapshotSync()).toBeUndefined();
    expect(run(layer)).toEqual(firstResult);
    expect(secondResult).not.toEqual(firstResult);
  });

  it("takes the recipe that a rule gives the layer", () => {
    using _ = new Scope();
    const { weight } = new Linear(backend(), SIZE, SIZE, { bias: false });
    using layer = new OutsideLinear(backend(), weight, new RandomState(1n));
    const ownRecipe = new Float8CurrentScaling();
    const beginCall = () =>
      autocast({ recipe: new MXFP8BlockScaling() }, () => layer.quantization.begin()?.recipe.kind);
    setLayerRecipes(layer, [{ layers: "linear", recipe: ownRecipe }]);
    expect(beginCall()).toBe("current");
    setLayerRecipes(layer, [{ layers: "linear", recipe: null }]);
    expect(beginCall()).toBeUndefined();
    setLayerRecipes(layer, []);
    expect(beginCall()).toBe("mxfp8");
  });

  it("refuses tensors for a call after the next one has begun", () => {
    using _ = new Scope();
    const { weight } = new Linear(backend(), SIZE, SIZE, { bias: false });
    using layer = new OutsideLinear(backend(), weight, new RandomState(1n));
    autocast({ recipe: new MXFP8BlockScaling() }, () => {
      const firstPass = layer.quantization.begin();
      const secondPass = layer.quantization.begin();
      expect(() => firstPass?.quantizer("input")).toThrow(ArgumentError);
      expect(() => firstPass?.weight()).toThrow(ArgumentError);
      expect(secondPass?.quantizer("input").spec.quantizer).toBe("mxfp8");
    });
  });
});

describe("the state of autocast that a layer reads", () => {
  const state = () => [isFp8Enabled(), isFp8Calibration(), getFp8Recipe(), getFp8Group(), isFirstFp8Module()];

  it("is the state of the innermost region, and the default outside of regions", () => {
    const recipe = new MXFP8BlockScaling();
    const group = { size: 2, reduceMax: () => {} };
    const noState = [false, false, undefined, undefined, false];
    expect(state()).toEqual(noState);
    autocast({ recipe, amaxReductionGroup: group }, () => {
      expect(state()).toEqual([true, false, recipe, group, true]);
      autocast({ recipe, enabled: false, calibrating: true }, () => {
        expect(state()).toEqual([false, true, recipe, undefined, false]);
      });
      expect(state()).toEqual([true, false, recipe, group, true]);
    });
    expect(state()).toEqual(noState);
  });

  it("marks the first layer of an outermost region", () => {
    using _ = new Scope();
    using layer = new Linear(backend(), SIZE, SIZE);
    const otherLinear = new OutsideLinear(backend(), layer.weight, new RandomState(1n));
    const recipe = new MXFP8BlockScaling();
    const isFirst = (): boolean | undefined => otherLinear.quantization.begin()?.isFirstModule;
    for (let region = 0; region < 2; region++)
      autocast({ recipe }, () => {
        autocast({ recipe, enabled: false }, () => layer.forward(sample(0)));
        expect(isFirstFp8Module()).toBe(true);
        autocast({ recipe }, () => expect(isFirst()).toBe(true));
        expect([isFirstFp8Module(), isFirst()]).toEqual([false, false]);
      });
    autocast({ recipe }, () => {
      layer.forward(sample(0));
      expect(isFirst()).toBe(false);
    });
  });

  it("says whether weights become quantized", () => {
    const insideLayers = quantizedModelInit({}, () => [
      withFp8Parameters(),
      quantizedModelInit({ enabled: false }, withFp8Parameters),
    ]);
    expect([withFp8Parameters(), ...insideLayers]).toEqual([false, true, false]);
  });
});
