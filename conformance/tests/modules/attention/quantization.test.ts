/** The state of FP8 attention: microbatches, recomputation, checkpoints, recipes of layers, inspectors, and refusals. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import { ArgumentError, ShapeError } from "../../../../src/errors.js";
import { InferenceParams } from "../../../../src/modules/attention/inference-params.js";
import { DotProductAttention } from "../../../../src/modules/dot-product-attention.js";
import { Inspector } from "../../../../src/modules/inspection/inspector.js";
import { setLayerRecipes } from "../../../../src/modules/layer-recipes.js";
import { MultiheadAttention } from "../../../../src/modules/multihead-attention.js";
import type { QuantizationState } from "../../../../src/modules/quantization-state.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { captureGraph } from "../../../../src/ops/graph.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import { memoryOf } from "../../../../src/tensor/memory.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { expectSame } from "../../harness/drawn-tensor.js";
import { testInScope, useBackend, useBackendPerTest } from "../../harness/suite.js";
import { waves } from "./drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [HEADS, WIDTH, BATCH, LENGTH] = [2, 32, 2, 32];
const HIDDEN = HEADS * WIDTH;

const makeLayer = (options = {}) =>
  new MultiheadAttention(backend(), HIDDEN, HEADS, {
    ...{ attentionDropout: 0.2, random: new RandomState(3n), fuseQkvParams: true },
    ...options,
  });
const inputOf = (seed: number): Variable =>
  new Variable(waves(backend(), seed, [LENGTH, BATCH, HIDDEN]), true);
const stateOf = (layer: MultiheadAttention): QuantizationState =>
  layer.namedQuantizations().get("coreAttention.attention") as QuantizationState;

/** One training step. Returns the result and the gradients of the input and of the parameters. */
function step(
  layer: MultiheadAttention,
  recipe: Recipe,
  seed: number,
  call: (x: Variable) => Variable = (x) => layer.forward(x),
): readonly Tensor[] {
  const x = inputOf(seed);
  const out = autocast({ recipe }, () => call(x));
  out.backward(waves(backend(), seed + 50, out.shape));
  return [out.tensor, ...gradientsOf(x, layer)];
}

/** Returns copies of the gradients of the input and of the parameters, and frees the gradients. */
function gradientsOf(x: Variable, layer: MultiheadAttention): readonly Tensor[] {
  const leaves = [x, ...layer.parameters()];
  const grads = leaves.map(({ grad }) => (grad as Tensor).clone());
  for (const leaf of leaves) leaf.zeroGrad();
  return grads;
}

function expectAll(actual: readonly Tensor[], expected: readonly Tensor[]): void {
  expect(actual.length).toBe(expected.length);
  for (const [i, tensor] of actual.entries()) expectSame(`tensor ${i}`, tensor, expected[i]);
}

const MAKE: Readonly<Record<string, () => Recipe>> = {
  "delayed, fp8Dpa": () => new DelayedScaling({ fp8Dpa: true, amaxHistoryLen: 2 }),
  "delayed, fp8Mha": () => new DelayedScaling({ fp8Mha: true, amaxHistoryLen: 2 }),
  "current, fp8Mha": () => new Float8CurrentScaling({ fp8Mha: true }),
  "mxfp8, fp8Dpa": () => new MXFP8BlockScaling({ fp8Dpa: true }),
};
const NAMES = Object.keys(MAKE);
const make = (name: string): Recipe => (MAKE[name] as () => Recipe)();

describe("FP8 attention", () => {
  it.each(NAMES)("recomputes the bits of a layer, and records amaxes once: %s", (name) => {
    using _ = new Scope();
    using plainLayer = makeLayer();
    using otherLayer = makeLayer();
    using core = makeLayer();
    const recipe = make(name);
    for (let i = 1; i < 4; i++) {
      const expected = step(plainLayer, recipe, i);
      const nestedRecompute = (x: Variable): Variable =>
        recompute((y) => recompute((input) => otherLayer.forward(input), y), x);
      expectAll(step(otherLayer, recipe, i, nestedRecompute), expected);
      expectAll(
        step(core, recipe, i, (x) => core.forward(x, { checkpointCoreAttention: true })),
        expected,
      );
      const snapshot = stateOf(plainLayer).snapshotSync();
      for (const module of [otherLayer, core]) expect(stateOf(module).snapshotSync()).toEqual(snapshot);
    }
  });

  it.each(NAMES)("continues from a snapshot with the bits of a run that was not interrupted: %s", (name) => {
    using _ = new Scope();
    using wholeLayer = makeLayer({ attentionDropout: 0 });
    using resumedLayer = makeLayer({ attentionDropout: 0 });
    for (const seed of [1, 2]) step(wholeLayer, make(name), seed);
    for (const [key, state] of wholeLayer.namedQuantizations())
      resumedLayer.namedQuantizations().get(key)?.restore(state.snapshotSync());
    expect(stateOf(resumedLayer).snapshotSync()).toEqual(stateOf(wholeLayer).snapshotSync());
    for (const seed of [3, 4])
      expectAll(step(resumedLayer, make(name), seed), step(wholeLayer, make(name), seed));
  });

  testInScope("refuses snapshots of other numbers of tensors, and keeps its state", () => {
    using layer = makeLayer();
    step(layer, make("delayed, fp8Dpa"), 1);
    const state = stateOf(layer);
    const snapshot = state.snapshotSync();
    const linear = layer.namedQuantizations().get("proj.linear")?.snapshotSync();
    expect(() => state.restore(linear)).toThrow(ArgumentError);
    expect(state.snapshotSync()).toEqual(snapshot);
    expect(state.slots).toEqual({ forward: 3, backward: 3 });
  });

  testInScope("takes the largest amax of the calls of a region, over the ranks of its group", () => {
    using core = new DotProductAttention(backend(), 1, WIDTH);
    const reducedAmaxes: number[][] = [];
    const group = {
      size: 2,
      reduceMax: (tensors: readonly Tensor<"f32">[]) => {
        for (const tensor of tensors) reducedAmaxes.push([...tensor.dataSync()]);
        for (const tensor of tensors) tensor.write(tensor.dataSync().map((x) => 2 * x));
      },
    };
    const amaxOf = (scale: number): number => {
      const x = new Variable(waves(backend(), 1, [4, 1, 1, WIDTH], "f32"), true);
      const largeInput = waves(backend(), 1, [4, 1, 1, WIDTH], "f32");
      largeInput.write(largeInput.dataSync().map((value) => value * scale) as Float32Array);
      core.forward(x, x, largeInput);
      return Math.max(...largeInput.dataSync().map(Math.abs));
    };
    const recipe = new DelayedScaling({ fp8Dpa: true });
    const amaxes = autocast({ recipe, amaxReductionGroup: group }, () => [amaxOf(3), amaxOf(2)]);
    expect(reducedAmaxes.length).toBe(1);
    expect(reducedAmaxes[0]?.length).toBe(3);
    expect(reducedAmaxes[0]?.[0]).toBe(amaxes[0]);
    const scale = core.namedQuantizations().get("attention")?.snapshotSync()?.forward.scale[0];
    expect(scale).toBe(Math.fround(448 / (2 * (amaxes[0] as number))));
  });

  testInScope(
    "uses the scales of its forward pass, if the recipe has changed before the backward pass",
    () => {
      const run = (change: (layer: MultiheadAttention) => void): readonly Tensor[] => {
        using layer = makeLayer({ attentionDropout: 0 });
        step(layer, make("delayed, fp8Dpa"), 1);
        const x = inputOf(2);
        const out = autocast({ recipe: make("delayed, fp8Dpa") }, () => layer.forward(x));
        change(layer);
        out.backward(waves(backend(), 52, out.shape));
        return [out.tensor, ...gradientsOf(x, layer)];
      };
      const otherInput = inputOf(7).tensor;
      const expected = run(() => undefined);
      const actual = run((layer) => {
        noGrad(() => autocast({ recipe: make("current, fp8Mha") }, () => layer.forward(otherInput)));
      });
      expectAll(actual, expected);
    },
  );

  it("gives the same results without gradients", () => {
    for (const name of NAMES) {
      using _ = new Scope();
      const results = [true, false].map((tracks) => {
        using layer = makeLayer();
        const x = inputOf(1);
        const run = () => autocast({ recipe: make(name) }, () => layer.forward(x).tensor.clone());
        return tracks ? run() : noGrad(run);
      }) as [Tensor, Tensor];
      expectSame(name, results[0], results[1]);
    }
  });
});

describe("FP8 attention of no rows", () => {
  it.each(NAMES)("returns no rows, and gradients without elements: %s", (name) => {
    using _ = new Scope();
    using core = new DotProductAttention(backend(), 2, WIDTH);
    for (const shape of [
      [0, 1, 2, WIDTH],
      [32, 0, 2, WIDTH],
    ]) {
      const x = new Variable(waves(backend(), 1, shape), true);
      const out = autocast({ recipe: make(name) }, () => core.forward(x, x, x));
      expect(out.shape).toEqual([...shape.slice(0, 2), 2 * WIDTH]);
      out.backward(waves(backend(), 2, out.shape));
      expect(x.grad?.shape).toEqual(shape);
      x.zeroGrad();
    }
  });
});

describe("attention is in high precision", () => {
  const highPrecision = (recipe: Recipe, change: (layer: MultiheadAttention) => void = () => undefined) => {
    using layer = makeLayer();
    change(layer);
    return step(layer, recipe, 1);
  };

  testInScope("where a rule of setLayerRecipes or an Inspector says so, and without fp8Dpa", () => {
    const expected = highPrecision(new DelayedScaling());
    const recipe = make("delayed, fp8Mha");
    const rule = { layers: "coreAttention", recipe: null };
    expectAll(
      highPrecision(recipe, (layer) => setLayerRecipes(layer, [rule])),
      expected,
    );
    expectAll(
      highPrecision(recipe, (layer) => {
        new Inspector(layer, [{ layers: ["coreAttention"], DisableFP8Layer: {} }]);
      }),
      expected,
    );
    const quantizedResults = highPrecision(recipe);
    expect(quantizedResults[0]?.dataSync()).not.toEqual(expected[0]?.dataSync());
  });

  testInScope("and passes no codes to or from projections under other recipes", () => {
    const recipe = make("delayed, fp8Mha");
    const layers = ["qkv", "proj"];
    const results = layers.map((name) =>
      highPrecision(recipe, (layer) =>
        setLayerRecipes(layer, [{ layers: name, recipe: new MXFP8BlockScaling() }]),
      ),
    );
    for (const result of results)
      expect(result.every((x) => x.dataSync().some((value) => value !== 0))).toBe(true);
  });
});

describe("FP8 attention refuses", () => {
  it.each([Float8BlockScaling, NVFP4BlockScaling])("%o", (RecipeClass) => {
    expect(() => new RecipeClass({ fp8Dpa: true })).toThrow(ArgumentError);
    expect(() => new RecipeClass({ fp8Mha: true })).toThrow("setLayerRecipes");
    expect(new RecipeClass({ fp8Dpa: false, fp8Mha: false }).attention).toBeUndefined();
  });

  testInScope("softcap and caches", () => {
    const recipe = new DelayedScaling({ fp8Dpa: true });
    const x = waves(backend(), 1, [4, 1, 2, WIDTH]);
    using core = new DotProductAttention(backend(), 2, WIDTH);
    const state = core.namedQuantizations().get("attention");
    expect(() => autocast({ recipe }, () => core.forward(x, x, x, { softcap: 3 }))).toThrow("softcap");
    using cache = new InferenceParams(backend(), 1, 8, { numHeadsKv: 2, headDimK: WIDTH, headDimV: WIDTH });
    cache.preStep(new Map([["a", 4]]));
    const call = { inferenceParams: cache, attnMaskType: "padding_causal" } as const;
    expect(() => noGrad(() => autocast({ recipe }, () => core.forward(x, x, x, call)))).toThrow(
      "inferenceParams",
    );
    expect(state?.snapshotSync()).toBeUndefined();
  });

  testInScope("rules of an Inspector that match nothing else and change or log products", () => {
    using layer = makeLayer();
    const rule = (layers: readonly string[]) => [{ layers, LogTensorStats: {} }];
    expect(() => new Inspector(layer, rule(["coreAttention"]))).toThrow("matches only attention");
    new Inspector(layer, rule(["*"])).dispose();
  });

  testInScope("numbers of keys that blocks do not divide", () => {
    const recipe = new MXFP8BlockScaling({ fp8Dpa: true });
    const x = waves(backend(), 1, [33, 1, 2, WIDTH]);
    using core = new DotProductAttention(backend(), 2, WIDTH);
    expect(() => autocast({ recipe }, () => core.forward(x, x, x))).toThrow(ShapeError);
  });
});

describe("the memory of FP8 attention", () => {
  testInScope("keeps 3 bytes for each pair in bf16, and nothing if it is checkpointed", () => {
    const heads = 4;
    const recipe = new Float8CurrentScaling({ fp8Dpa: true });
    using core = new DotProductAttention(backend(), heads, 16, { attnMaskType: "no_mask" });
    const keptBytes = (length: number, checkpointCoreAttention: boolean): number => {
      using _ = new Scope();
      const x = new Variable(waves(backend(), 1, [length, 1, heads, 16]), true);
      const { live } = backend().memoryUse();
      autocast({ recipe }, () => core.forward(x, x, x, { checkpointCoreAttention }));
      return backend().memoryUse().live - live;
    };
    // what grows with the square of the length
    const forPair = (measure: (length: number) => number): number =>
      (measure(512) - 2 * measure(256)) / (heads * (512 ** 2 - 2 * 256 ** 2));
    expect(forPair((length) => keptBytes(length, false))).toBeCloseTo(3, 1);
    expect(forPair((length) => keptBytes(length, true))).toBeCloseTo(0, 1);
  });

  it.each(["vanilla", "off-by-one"] as const)(
    "is at most 16 bytes for each pair at any time: %s",
    (softmaxType) => {
      using _ = new Scope();
      const memory = memoryOf(backend());
      const { allocate } = memory;
      const recipe = new Float8CurrentScaling({ fp8Dpa: true });
      const heads = 4;
      using core = new DotProductAttention(backend(), heads, 16, { attentionDropout: 0.1, softmaxType });
      const peak = (length: number): number => {
        using _ = new Scope();
        const x = new Variable(waves(backend(), 1, [length, 1, heads, 16]), true);
        const grad = waves(backend(), 2, [length, 1, heads * 16]);
        let maximum = 0;
        memory.allocate = (bytes) => {
          const address = allocate.call(memory, bytes);
          maximum = Math.max(maximum, backend().memoryUse().live);
          return address;
        };
        const { live } = backend().memoryUse();
        autocast({ recipe }, () => core.forward(x, x, x)).backward(grad);
        x.zeroGrad();
        memory.allocate = allocate;
        return maximum - live;
      };
      const perPair = (peak(512) - 2 * peak(256)) / (heads * (512 ** 2 - 2 * 256 ** 2));
      expect(perPair).toBeGreaterThan(3);
      expect(perPair).toBeLessThan(16);
    },
  );
});

describe("a captured step with FP8 attention", () => {
  let newBackend: Backend;
  useBackendPerTest((openedBackend) => {
    newBackend = openedBackend;
  });

  /** The results of replays, or of calls, after a first step. */
  function steps(recipe: Recipe, replays: boolean): readonly string[] {
    using _ = new Scope();
    using layer = new MultiheadAttention(newBackend, HIDDEN, HEADS, {
      attentionDropout: 0,
      random: new RandomState(3n),
    });
    const x = waves(newBackend, 1, [LENGTH, BATCH, HIDDEN]);
    const body = (): readonly Tensor[] => {
      using scope = new Scope();
      const input = new Variable(x, true);
      const out = autocast({ recipe }, () => layer.forward(input));
      out.backward(x);
      return [out.tensor.clone(), ...gradientsOf(input, layer)].map((tensor) => scope.keep(tensor));
    };
    body();
    const graph = replays ? captureGraph(newBackend, body) : undefined;
    const results = [10, 11, 12].map((seed) => {
      x.write(waves(newBackend, seed, x.shape).dataSync() as Uint16Array);
      graph?.replay();
      return (graph?.result ?? body()).map((tensor) => String(tensor.dataSync())).join();
    });
    graph?.dispose();
    return results;
  }

  it.each(NAMES)("replays the bits of its calls: %s", (name) => {
    expect(steps(make(name), true)).toEqual(steps(make(name), false));
  });
});
