/** When parameters are gathered, how many are resident at once, and that changed parameters are gathered again. */
import * as fc from "fast-check";
import { afterAll, describe, expect, it, vi } from "vitest";
import { interceptRun } from "../../../../src/backends/run.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import {
  autocast,
  castMasterWeights,
  DelayedScaling,
  DistributedError,
  fullyShard,
  functional,
  LayerNormLinear,
  LayerNormMLP,
  Linear,
  Module,
  noGrad,
  normal,
  quantizedModelInit,
  RandomState,
  type Recipe,
  recompute,
  Scope,
  SGD,
  scaled,
  type Tensor,
  type TensorData,
  tensor,
  Variable,
} from "../../../../src/index.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { memoryOf } from "../../../../src/tensor/memory.js";
import { elementCount } from "../../../../src/tensor/shape.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { useBackends } from "../../harness/ranks/backends.js";
import { RECIPE_NAMES, RECIPES_UNDER_TEST, type RecipeName } from "../../harness/training/run.js";

/** The maximum number of bytes of a bucket, if a test sets it. */
const bucket = vi.hoisted((): { bytes: number | undefined } => {
  // other test files of this worker have loaded the sources already
  vi.resetModules();
  return { bytes: undefined };
});
afterAll(() => {
  vi.doUnmock("../../../../src/parallel/data/buckets.js");
  vi.resetModules();
});
vi.mock("../../../../src/parallel/data/buckets.js", async (original) => {
  const buckets = await original<typeof import("../../../../src/parallel/data/buckets.js")>();
  return Object.defineProperty({ ...buckets }, "BUCKET_BYTES", {
    get: () => bucket.bytes ?? buckets.BUCKET_BYTES,
    enumerable: true,
  });
});

const WIDTH = 256;
const ROWS = 32;
const LAYERS = 5;
const RANKS = 2;
const backends = useBackends(RANKS, true);

/** Layers in sequence. */
class Stack extends Module {
  readonly layers: readonly (Linear | LayerNormLinear | LayerNormMLP)[];

  constructor({ backend }: ProcessGroup, kind: "linear" | "mixed") {
    super(backend);
    const random = new RandomState(3n);
    const make = (i: number): Linear | LayerNormLinear | LayerNormMLP => {
      if (kind === "linear" || i % 3 === 0) return new Linear(backend, WIDTH, WIDTH, { random });
      if (i % 3 === 1) return new LayerNormLinear(backend, WIDTH, WIDTH, { random });
      return new LayerNormMLP(backend, WIDTH, WIDTH, { random });
    };
    this.layers = Array.from({ length: LAYERS }, (_, i) => this.addModule(`${i}`, make(i)));
  }

  forward(x: Tensor, recomputes = false): Variable {
    return this.layers.reduce<Tensor | Variable>(
      (y, layer) => (recomputes ? recompute((input) => layer.forward(input), y) : layer.forward(y)),
      x,
    ) as Variable;
  }
}

/** The events of a rank: collectives and products. */
type Event = "gather" | "amaxes" | "reduce" | "product";

/** Records the events of a rank, in the order of its calls. */
function eventsOf(group: ProcessGroup): Event[] {
  const events: Event[] = [];
  const { backend } = group;
  const [gather, reduceMax, reduce] = [
    group.allGatherCoalesced.bind(group),
    group.reduceMax.bind(group),
    group.reduceScatter.bind(group),
  ];
  group.allGatherCoalesced = (requests) => {
    events.push("gather");
    return gather(requests);
  };
  group.reduceMax = (tensors) => {
    events.push("amaxes");
    reduceMax(tensors);
  };
  group.reduceScatter = (x, options) => {
    events.push("reduce");
    return reduce(x, options);
  };
  interceptRun(backend, (run) => (op, args) => {
    if (op === "gemm") events.push("product");
    run(op, args);
  });
  return events;
}

function input({ backend, rank }: ProcessGroup): Tensor {
  using scope = new Scope();
  const values = normal({ seed: 4n, offset: BigInt(rank) }, ROWS * WIDTH, 1);
  return scope.keep(castTo(tensor(backend, values, [ROWS, WIDTH]), "bf16"));
}

/** Trains all ranks, one step after the other. `watch` is called before each step. */
async function train(
  kind: "linear" | "mixed",
  recipe: RecipeName,
  { steps, recomputes = false }: { readonly steps: number; readonly recomputes?: boolean },
  watch: (group: ProcessGroup, step: number) => void,
): Promise<void> {
  const groups = loopbackOver(backends, 20_000);
  const make = RECIPES_UNDER_TEST[recipe];
  const models = groups.map((group) => new Stack(group, kind));
  for (const [i, group] of groups.entries()) fullyShard(models[i] as Stack, group);
  const optimizers = models.map((model) => new SGD(model, { learningRate: 0.1 }));
  const recipes = groups.map(() => make?.());
  for (let step = 0; step < steps; step++)
    for (const [i, group] of groups.entries()) {
      using _ = new Scope();
      watch(group, step);
      const recipe = recipes[i];
      const x = input(group);
      const forward = (): Variable => (models[i] as Stack).forward(x, recomputes);
      const loss = autocast(recipe ? { recipe } : { enabled: false }, () => functional.mseLoss(forward(), x));
      loss.backward();
      optimizers[i]?.step();
      optimizers[i]?.zeroGrad();
    }
  for (const model of models) await model.parameters()[0]?.tensor.data();
  for (const disposable of [...optimizers, ...models]) disposable.dispose();
}

const hasTensorAmax = (recipe: RecipeName): boolean => ["delayed", "current", "nvfp4"].includes(recipe);

/** All recipes but one whose amaxes are reduced before weights are quantized. */
const OTHERS = RECIPE_NAMES.filter((name) => name !== "current");

describe("prefetch of parameters", () => {
  const expected = (recipe: RecipeName): Event[] => {
    const gather: Event[] = [...(hasTensorAmax(recipe) ? (["amaxes"] as const) : []), "gather"];
    return Array.from({ length: LAYERS }, (_, i): Event[] => [
      ...(i === 0 ? gather : []),
      // during the last layer the columnwise copy for its backward function is gathered, which needs no amax
      ...(i < LAYERS - 1 ? gather : (["gather"] as const)),
      "product",
    ]).flat();
  };

  it.each(sampleCases(RECIPE_NAMES, 1))(
    "%s: gathers in one exchange, before the products of the running operation, forward and backward",
    async (recipe) => {
      const logs: Event[][] = [];
      await train("linear", recipe, { steps: 3 }, (group, step) => {
        if (step === 2) logs.push(eventsOf(group));
      });
      // the first layer's input needs no gradient, so its weight is not gathered for the backward pass
      const backward = Array.from({ length: LAYERS }, (_, i): Event[] => {
        const gathers: Event[] = i < LAYERS - 2 ? ["gather"] : [];
        const products: Event[] = i < LAYERS - 1 ? ["product", "product"] : ["product"];
        return [...gathers, ...products, "reduce"];
      }).flat();
      // delayed scaling has no group here, so it reduces no amaxes at the end of the region
      for (const log of logs) expect(log).toEqual([...expected(recipe), ...backward]);
      expect(logs).toHaveLength(RANKS);
    },
  );

  it.each(["current", ...sampleCases(OTHERS, 1, 1)] as const)(
    "%s: gathers several parameters of an operation in one exchange",
    async (recipe) => {
      const logs: Event[][] = [];
      await train("mixed", recipe, { steps: 3 }, (group, step) => {
        if (step === 2) logs.push(eventsOf(group));
      });
      for (const log of logs) {
        const count = (event: Event): number => log.filter((logEvent) => logEvent === event).length;
        // The forward pass gathers all layers, the backward pass all but the first, whose input needs no gradient. The last layer
        // has a norm: it quantizes its weight after the norm's parameters are gathered, in one more exchange.
        expect(count("gather")).toBe(2 * LAYERS - 1 + (recipe === "bf16" ? 0 : 1));
        expect(count("reduce")).toBe(LAYERS);
        // one for each layer of the forward pass, also if it has two weights
        expect(count("amaxes")).toBe(hasTensorAmax(recipe) ? LAYERS : 0);
      }
    },
  );
});

describe("parameters in several buckets", () => {
  /** Returns the losses and gradients of an MLP on every rank, with buckets of `bytes` bytes. */
  async function results(bytes: number, width: number, rowMultiple: number) {
    const groups = loopbackOver(backends, 20_000);
    const layers = groups.map(
      ({ backend }) => new LayerNormMLP(backend, WIDTH, width, { random: new RandomState(3n) }),
    );
    for (const [i, group] of groups.entries()) fullyShard(layers[i] as LayerNormMLP, group, { rowMultiple });
    bucket.bytes = bytes;
    const logs = groups.map(eventsOf);
    const losses = groups.flatMap((group, i) => {
      using scope = new Scope();
      const x = input(group);
      // the second run prefetches the parameters that the first run has gathered
      return Array.from({ length: 2 }, () => {
        const loss = functional.mseLoss((layers[i] as LayerNormMLP).forward(x), x);
        loss.backward();
        return scope.keep(loss.tensor.clone());
      });
    });
    bucket.bytes = undefined;
    const lossesOfRanks = [];
    for (const loss of losses) lossesOfRanks.push(String(await loss.data()));
    for (const layer of layers)
      for (const { grad } of layer.parameters()) lossesOfRanks.push(String(await grad?.data()));
    for (const disposable of [...losses, ...layers]) disposable.dispose();
    return {
      seen: lossesOfRanks,
      gathers: logs.map((log) => log.filter((event) => event === "gather").length),
    };
  }

  it("form the same buckets on ranks with different numbers of rows", async () => {
    const choices = fc.record({
      width: fc.constantFrom(16, 48, 80),
      rowMultiple: fc.constantFrom(1, 16, 64),
      bytes: fc.oneof(fc.integer({ min: 1, max: 4096 }), fc.integer({ min: 4096, max: 2 ** 17 })),
    });
    await fc.assert(
      fc.asyncProperty(choices, async ({ width, rowMultiple, bytes }) => {
        const [oneGather, severalGathers] = [
          await results(2 ** 30, width, rowMultiple),
          await results(bytes, width, rowMultiple),
        ];
        expect(severalGathers.seen).toEqual(oneGather.seen);
        expect(new Set(severalGathers.gathers).size).toBe(1);
        expect(severalGathers.gathers[0]).toBeGreaterThanOrEqual(oneGather.gathers[0] as number);
      }),
      { numRuns: draws(20) },
    );
  });
});

describe("a failure of a prefetch", () => {
  it.each([
    [
      "is thrown by the running operation if the group has failed",
      new DistributedError("lost", "allGather", 1, "gone"),
    ],
    ["is ignored otherwise, and the next operation gathers again", new RangeError("no memory")],
  ] as const)("%s", (_what, failure) => {
    const [group] = loopbackOver(backends.slice(0, 1), 20_000) as [ProcessGroup];
    const model = new Stack(group, "linear");
    fullyShard(model, group);
    using _ = new Scope();
    const x = input(group);
    const run = (from: number, to: number): Tensor =>
      noGrad(
        () =>
          (
            model.layers
              .slice(from, to)
              .reduce<Tensor | Variable>((y, layer) => layer.forward(y), x) as Variable
          ).tensor,
      );
    const expected = [run(0, LAYERS), run(0, LAYERS)].map((y) => y.dataSync());
    const gather = group.allGatherCoalesced.bind(group);
    let calls = 0;
    group.allGatherCoalesced = (requests) => {
      // the first call gathers the parameters of the first layer, the second call prefetches the second layer
      if (++calls === 2) throw failure;
      return gather(requests);
    };
    const once = () => run(0, LAYERS).dataSync();
    if (failure instanceof DistributedError) expect(once).toThrow(failure);
    else expect(once()).toEqual(expected[0]);
    expect(calls).toBe(failure instanceof DistributedError ? 2 : LAYERS + 1);
    model.dispose();
  });
});

/** Counts the bytes that are allocated and not freed, currently and at most. */
function countBytes({ backend }: ProcessGroup): { live: number; max: number } {
  const memory = memoryOf(backend);
  const liveBytes = { live: 0, max: 0 };
  const sizes = new Map<number, number>();
  const [allocate, free] = [memory.allocate.bind(memory), memory.free.bind(memory)];
  memory.allocate = (bytes) => {
    const address = allocate(bytes);
    sizes.set(address, bytes);
    liveBytes.live += bytes;
    liveBytes.max = Math.max(liveBytes.max, liveBytes.live);
    return address;
  };
  memory.free = (address) => {
    liveBytes.live -= sizes.get(address) ?? 0;
    sizes.delete(address);
    free(address);
  };
  return liveBytes;
}

describe("memory", () => {
  it.each(sampleCases(RECIPE_NAMES, 1, 2))("%s: has the parameters of at most two operations", (recipe) => {
    // one rank does not wait for others, so memory is freed at once
    const [group] = loopbackOver(backends.slice(0, 1), 20_000) as [ProcessGroup];
    const model = new Stack(group, "linear");
    fullyShard(model, group);
    const make = RECIPES_UNDER_TEST[recipe];
    const region = make ? { recipe: make() } : { enabled: false };
    const x = input(group);
    const run = (): void => {
      using _ = new Scope();
      autocast(region, () => noGrad(() => model.forward(x)));
    };
    run();
    const traffic = countBytes(group);
    run();
    model.dispose();
    x.dispose();
    const bits = { bf16: 16, nvfp4: 4.5, mxfp8: 8.25 }[recipe as string] ?? 8;
    const weightBytes = (WIDTH * WIDTH * bits) / 8;
    // the quantized rows of both weights before the gather; this rank has all rows
    const rowBytes = recipe === "bf16" ? 0 : 2 * weightBytes;
    // `limit` bounds the bytes of biases, inputs, results and the codes of an input
    const limit = (LAYERS + 2) * ROWS * WIDTH * 2;
    expect(traffic.max).toBeLessThanOrEqual(2 * weightBytes + rowBytes + limit);
    expect(traffic.max).toBeGreaterThan(2 * weightBytes + rowBytes);
    expect(traffic.live).toBe(0);
  });

  it.each(["the model", "each layer"])(
    "has only the last layer's parameters between the passes, if %s is sharded",
    (subject) => {
      const [group] = loopbackOver(backends.slice(0, 1), 20_000) as [ProcessGroup];
      const model = new Stack(group, "linear");
      for (const module of subject === "the model" ? [model] : model.layers) fullyShard(module, group);
      const x = input(group);
      const liveCounts: number[] = [];
      for (let step = 0; step < 4; step++) {
        using _ = new Scope();
        const y = model.forward(x);
        liveCounts.push(group.backend.memoryUse().live);
        y.backward(x);
        for (const parameter of model.parameters()) parameter.zeroGrad();
      }
      const weightBytes = WIDTH * WIDTH * 2;
      const [firstCount, ...otherCounts] = liveCounts as [number, ...number[]];
      expect(otherCounts.map((live) => live - firstCount)).toEqual(otherCounts.map(() => weightBytes));
      for (const disposable of [model, x]) disposable.dispose();
    },
  );

  it("frees parameters that were prefetched for an operation that did not run", async () => {
    const groups = loopbackOver(backends, 20_000);
    const models = groups.map((group) => new Stack(group, "linear"));
    for (const [i, group] of groups.entries()) fullyShard(models[i] as Stack, group);
    const xs = groups.map(input);
    const run = (layers: number): void => {
      for (const [i, x] of xs.entries()) {
        using _ = new Scope();
        noGrad(() =>
          (models[i] as Stack).layers
            .slice(0, layers)
            .reduce<Tensor | Variable>((y, layer) => layer.forward(y), x),
        );
      }
    };
    const liveAfterBarrier = async (): Promise<number[]> => {
      for (const model of models) await model.parameters()[0]?.tensor.data();
      await Promise.all(groups.map((group) => group.barrier()));
      return backends.map((backend) => backend.memoryUse().live);
    };
    run(LAYERS);
    const liveBefore = await liveAfterBarrier();
    run(LAYERS);
    run(LAYERS);
    // nothing is prefetched for the next pass
    expect(await liveAfterBarrier()).toEqual(liveBefore);
    run(2); // prefetches the third layer, which does not run
    for (const model of models) for (const parameter of model.parameters()) parameter.zeroGrad();
    expect(await liveAfterBarrier()).toEqual(liveBefore);
    for (const disposable of [...models, ...xs]) disposable.dispose();
  });
});

describe("a parameter that changes", () => {
  it("is gathered again if it changes between two operations of a pass", async () => {
    const groups = loopbackOver(backends, 20_000);
    const models = groups.map((group) => new Stack(group, "linear"));
    for (const [i, group] of groups.entries()) fullyShard(models[i] as Stack, group, { reduction: "sum" });
    const optimizers = models.map((model) => new SGD(model, { learningRate: 1 }));
    const results = groups.map((group, i) => {
      const [model, optimizer] = [models[i] as Stack, optimizers[i] as SGD];
      using scope = new Scope();
      const x = input(group);
      const run = (y: Tensor | Variable, from: number, to: number): Tensor | Variable =>
        model.layers.slice(from, to).reduce<Tensor | Variable>((output, layer) => layer.forward(output), y);
      for (let pass = 0; pass < 2; pass++) functional.mseLoss(run(x, 0, LAYERS) as Variable, x).backward();
      const middle = noGrad(() => (run(x, 0, 2) as Variable).tensor); // prefetches the third layer
      optimizer.step();
      const firstResult = noGrad(() => (run(middle, 2, LAYERS) as Variable).tensor);
      optimizer.zeroGrad();
      const secondResult = noGrad(() => (run(middle, 2, LAYERS) as Variable).tensor);
      return [scope.keep(firstResult.clone()), scope.keep(secondResult.clone())] as const;
    });
    for (const [firstResult, secondResult] of results) {
      expect(await firstResult.data()).toEqual(await secondResult.data());
      for (const tensor of [firstResult, secondResult]) tensor.dispose();
    }
    for (const disposable of [...optimizers, ...models]) disposable.dispose();
  });

  it.each(
    sampleCases(
      RECIPE_NAMES.filter((name) => name !== "bf16"),
      1,
    ),
  )(
    "%s: is gathered again if it is cast from its master between two operations of a region",
    async (name) => {
      const groups = loopbackOver(backends, 20_000);
      const recipes = groups.map(() => RECIPES_UNDER_TEST[name]?.() as Recipe);
      const models = groups.map((group, i) =>
        quantizedModelInit({ recipe: recipes[i] as Recipe }, () => new Stack(group, "linear")),
      );
      for (const [i, group] of groups.entries()) fullyShard(models[i] as Stack, group);
      const results = groups.map((group, i) => {
        const { layers } = models[i] as Stack;
        using scope = new Scope();
        const x = input(group);
        const run = (y: Tensor | Variable, from: number, to: number): Tensor =>
          (layers.slice(from, to).reduce((output, layer) => layer.forward(output), y) as Variable).tensor;
        const weights = layers.map((layer) => (layer as Linear).weight);
        const masters = weights.map(({ shape }, seed) =>
          tensor(group.backend, normal({ seed: BigInt(seed), offset: 0n }, elementCount(shape), 3), shape),
        );
        return autocast({ recipe: recipes[i] as Recipe }, () =>
          noGrad(() => {
            for (let pass = 0; pass < 2; pass++) run(x, 0, LAYERS);
            const middle = run(x, 0, 2); // prefetches the third layer
            // no other weight is passed, whose cast would discard the prefetched one
            castMasterWeights(weights.slice(2, 3), masters.slice(2, 3));
            const firstResult = run(middle, 2, LAYERS);
            for (const weight of weights) weight.zeroGrad();
            return [scope.keep(firstResult), scope.keep(run(middle, 2, LAYERS))] as const;
          }),
        );
      });
      for (const [firstResult, secondResult] of results) {
        expect(await firstResult.data()).toEqual(await secondResult.data());
        for (const tensor of [firstResult, secondResult]) tensor.dispose();
      }
      for (const model of models) model.dispose();
    },
  );

  const quantizingRecipes = RECIPE_NAMES.filter((name) => name !== "bf16");
  const pairs = quantizingRecipes.map(
    (name, i) => [name, quantizingRecipes[(i + 1) % quantizingRecipes.length] as RecipeName] as const,
  );
  it.each(sampleCases(pairs, 1))(
    "%s: is quantized as in the first run of recompute, if the layer ran under %s since",
    (first, between) => {
      const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
      const [group] = loopbackOver(backends.slice(0, 1), 20_000) as [ProcessGroup];
      const run = (shards: boolean): unknown => {
        const model = new Stack(group, "linear");
        if (shards) fullyShard(model, group);
        const [firstRecipe, secondRecipe] = [first, between].map(
          (name) => RECIPES_UNDER_TEST[name]?.() as Recipe,
        );
        using _ = new Scope();
        const x = input(group);
        const forward = () =>
          autocast({ recipe: firstRecipe as Recipe }, () => functional.mseLoss(model.forward(x, true), x));
        for (let pass = 0; pass < 2; pass++) {
          forward().backward();
          for (const parameter of model.parameters()) parameter.zeroGrad();
        }
        const loss = forward();
        autocast({ recipe: secondRecipe as Recipe }, () => noGrad(() => model.forward(x)));
        loss.backward();
        const grads = model.parameters().map(({ grad }) => String(grad?.dataSync()));
        model.dispose();
        return grads;
      };
      expect(run(true)).toEqual(run(false));
      warn.mockRestore();
    },
  );

  it("is quantized by the current scale if a region has ended since it was prefetched", async () => {
    const [group] = loopbackOver(backends.slice(0, 1), 20_000) as [ProcessGroup];
    const run = (shards: boolean): TensorData[] => {
      const model = new Stack(group, "linear");
      if (shards) fullyShard(model, group);
      const optimizer = new SGD(model, { learningRate: 0.1 });
      const recipe = new DelayedScaling({ amaxHistoryLen: 1, amaxComputeAlgo: "mostRecent" });
      using _ = new Scope();
      // x requires a gradient, so that all layers compute dgrad
      const target = input(group);
      const x = new Variable(target, true);
      const pass = (order: readonly number[]): Variable =>
        autocast({ recipe }, () => order.reduce((y, i) => (model.layers[i] as Linear).forward(y), x));
      for (let step = 0; step < 2; step++) {
        functional.mseLoss(pass([0, 1, 2, 3, 4]), target).backward();
        optimizer.step();
        optimizer.zeroGrad();
        x.zeroGrad();
      }
      const { tensor: weight } = (model.layers[2] as Linear).weight;
      scaled(weight, 3, { out: weight });
      // layer 2 is prefetched after layers 0 and 1; this region has used it before, so its end computes a new scale
      const results = [pass([4, 2, 0, 1]), pass([2, 0])];
      const values = results.map(({ tensor: out }) => out.dataSync());
      optimizer.dispose();
      model.dispose();
      return values;
    };
    expect(run(true)).toEqual(run(false));
  });
});
