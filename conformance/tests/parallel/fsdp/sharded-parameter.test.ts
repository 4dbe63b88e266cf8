/** Gradient norms of sharded parameters, and casts of their master weights. */
import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { gatherQuantized } from "../../../../src/collectives/quantized.js";
import {
  AdamW,
  ArgumentError,
  CustomRecipe,
  castMasterWeights,
  clipGradNorm,
  Embedding,
  Float8BlockScaling,
  fullyShard,
  functional,
  LayerNorm,
  Linear,
  Module,
  MXFP8BlockScaling,
  MXFP8Quantizer,
  NVFP4BlockScaling,
  NVFP4Quantizer,
  normal,
  Parameter,
  QuantizedTensor,
  quantizedModelInit,
  RandomState,
  type Recipe,
  Scope,
  Sequential,
  SGD,
  ShapeError,
  type Tensor,
  tensor,
  type WideDType,
  zeros,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { gradNorm } from "../../../../src/ops/update/grad-norm.js";
import { elementCount, type Shape } from "../../../../src/tensor/shape.js";
import { draws } from "../../harness/draws.js";
import { useBackends } from "../../harness/ranks/backends.js";
import { RECIPE_NAMES, RECIPES_UNDER_TEST } from "../../harness/training/run.js";

const MOST = 5;
const WIDTH = 96;
const HIDDEN = 208;
const ROWS = 32;
const backends = useBackends(MOST);

/** Two weights of several pieces of 4096 elements, and parameters of less than one. */
const model = (
  backend: Backend,
  dtype: "f32" | "bf16" = "f32",
  [inward, outward]: readonly [number, number] = [WIDTH, HIDDEN],
): Sequential => {
  const options = { dtype, random: new RandomState(5n) } as const;
  return new Sequential(
    backend,
    new Linear(backend, inward, outward, { ...options, bias: false }),
    new Linear(backend, outward, inward, options),
    new LayerNorm(backend, inward, options),
  );
};

function backwardOf(module: Sequential, seed: number): void {
  using _ = new Scope();
  const drawTensor = (width: number): Tensor<"f32"> =>
    tensor(module.backend, normal({ seed: BigInt(seed), offset: 0n }, ROWS * width, 4), [ROWS, width]);
  functional.mseLoss(module.forward(drawTensor(WIDTH)), drawTensor(WIDTH)).backward();
}

describe("clipGradNorm of sharded gradients", () => {
  it("equals the norm of one process with the full gradients to the bit, on every rank", async () => {
    const choices = fc.record({
      ranks: fc.integer({ min: 1, max: MOST }),
      seed: fc.nat(1000),
      // with 4 ranks and the second sizes, a rank's rows end at the end of a piece or in the middle of one
      sizes: fc.constantFrom<readonly [number, number]>([WIDTH, HIDDEN], [128, 64]),
      rowMultiple: fc.constantFrom(1, 16, 128),
      // the dtypes of the gradients, used alternately
      dtypes: fc.array(fc.constantFrom("f32", "bf16"), { minLength: 1, maxLength: 3 }),
      maxNorm: fc.constantFrom(0, 0.01, 1, 1e6),
      apart: fc.boolean(),
      // a value that makes the norm infinite or NaN
      planted: fc.constantFrom(undefined, undefined, 2 ** 70, Number.NaN, Number.NEGATIVE_INFINITY),
    } as const);
    await fc.assert(
      fc.asyncProperty(
        choices,
        async ({
          ranks,
          seed,
          sizes,
          rowMultiple,
          dtypes,
          maxNorm,
          apart: areSeparate,
          planted: plantedValue,
        }) => {
          const groups = loopbackOver(backends.slice(0, ranks), 20_000);
          const models = groups.map(({ backend }) => model(backend, "f32", sizes));
          const tables = groups.map(({ backend }) => new Embedding(backend, 3, 4, { dtype: "f32" }));
          const drawnOf = (backend: Backend, shape: Shape, i: number): Tensor<WideDType> => {
            const values = normal({ seed: BigInt(seed), offset: BigInt(100 * i) }, elementCount(shape), 4);
            if (plantedValue !== undefined && i === 1) values[seed % values.length] = plantedValue;
            return castTo(tensor(backend, values, shape), dtypes[i % dtypes.length] as WideDType);
          };
          const fullGrads = (
            backend: Backend,
            model: Sequential,
            shapes: readonly Shape[],
          ): Tensor<WideDType>[] => model.parameters().map((_, i) => drawnOf(backend, shapes[i] as Shape, i));
          const results = groups.map((group, i) => {
            const [model, table] = [models[i] as Sequential, tables[i] as Embedding];
            using _ = new Scope();
            const shapes = model.parameters().map(({ shape }) => shape);
            const shardedModel = fullyShard(model, group, { rowMultiple });
            const tensors = fullGrads(group.backend, model, shapes);
            for (const [j, parameter] of model.parameters().entries()) {
              const [rows = 1, ...rest] = shapes[j] as Shape;
              const earlierRows = shardedModel.rowsOf(parameter).slice(0, group.rank);
              const begin = earlierRows.reduce((total, count) => total + count, 0) * elementCount(rest);
              expect(rows).toBeGreaterThan(1);
              parameter.grad = persistent((tensors[j] as Tensor<WideDType>).slice(begin, parameter.shape));
            }
            const optimized = new Map([...model.namedParameters()]);
            // a parameter that is not sharded
            if (areSeparate) {
              table.weight.grad = persistent(tensor(group.backend, new Float32Array(12).fill(seed), [3, 4]));
              optimized.set("table", table.weight);
            }
            const { norm, factor } = clipGradNorm(optimized, maxNorm);
            return [persistent(norm), persistent(factor)] as const;
          });
          const sums = [];
          for (const [norm, factor] of results) sums.push([...(await norm.data()), ...(await factor.data())]);
          const shapes = models.map((model) =>
            model.parameters().map(({ sharding }) => sharding?.fullShape ?? []),
          );
          for (const disposable of [...results.flat(), ...models, ...tables]) disposable.dispose();

          using _ = new Scope();
          const backend = backends[0] as Backend;
          const gradients = (shapes[0] ?? []).map((shape, i) => drawnOf(backend, shape, i));
          if (areSeparate) gradients.push(tensor(backend, new Float32Array(12).fill(seed), [3, 4]));
          const { norm, factor } = gradNorm(gradients, { maxNorm });
          const expected = [...norm.dataSync(), ...factor.dataSync()];
          expect(sums).toEqual(groups.map(() => expected));
        },
      ),
      {
        numRuns: draws(40),
        seed: 4,
        examples: [
          [
            {
              ranks: 4,
              seed: 1,
              sizes: [128, 64],
              rowMultiple: 1,
              dtypes: ["f32"],
              maxNorm: 1,
              apart: false,
              planted: undefined,
            },
          ],
        ],
      },
    );
  });

  it("refuses gradients that noSync has left unreduced", () => {
    const groups = loopbackOver(backends.slice(0, 2), 20_000);
    const models = groups.map(({ backend }) => model(backend));
    for (const [i, model] of models.entries()) {
      const shardedModel = fullyShard(model, groups[i] as ProcessGroup);
      shardedModel.noSync(() => backwardOf(model, 1));
      expect(() => clipGradNorm(model, 1)).toThrow(/^clipGradNorm: .*outside of noSync/);
      using optimizer = new SGD(model, { learningRate: 0.1 });
      expect(() => optimizer.step()).toThrow(/^step: .*outside of noSync/);
    }
    for (const model of models) model.dispose();
  });
});

/** The actions of a program between two optimizer steps. */
type Command = "pass" | "pass in noSync" | "zeroGrad";

/** Runs the commands on two ranks, then `zeroGrad` and a synchronized pass. Returns the SHA-256 of each rank's gradients. */
async function gradientsAfter(commands: readonly Command[]): Promise<readonly string[]> {
  const groups = loopbackOver(backends.slice(0, 2), 20_000);
  const models = groups.map(({ backend }) => model(backend));
  for (const [i, model] of models.entries()) {
    const shardedModel = fullyShard(model, groups[i] as ProcessGroup);
    const zeroGrad = (): void => {
      for (const parameter of model.parameters()) parameter.zeroGrad();
    };
    for (const [j, command] of commands.entries()) {
      if (command === "zeroGrad") zeroGrad();
      else if (command === "pass") backwardOf(model, 2 + j);
      else shardedModel.noSync(() => backwardOf(model, 2 + j));
    }
    zeroGrad();
    backwardOf(model, 1);
  }
  const hashes = [];
  for (const model of models) {
    const hash = createHash("sha256");
    for (const { grad } of model.parameters()) if (grad) hash.update(await grad.data());
    hashes.push(hash.digest("hex"));
    model.dispose();
  }
  return hashes;
}

describe("gradients after zeroGrad", () => {
  it("do not depend on earlier passes, synchronized or not", async () => {
    const expected = await gradientsAfter([]);
    const command = fc.constantFrom<Command>("pass", "pass in noSync", "zeroGrad");
    await fc.assert(
      fc.asyncProperty(fc.array(command, { maxLength: 5 }), async (commands) => {
        expect(await gradientsAfter(commands)).toEqual(expected);
      }),
      { numRuns: draws(24), endOnFailure: true, examples: [[["pass", "pass in noSync"]]] },
    );
  });
});

const names = RECIPE_NAMES.filter((name) => name !== "bf16");

describe("castMasterWeights of sharded parameters", () => {
  it.each(names)(
    "%s: are cast to the codes and scales of the whole's, rounded once or twice",
    async (name) => {
      const recipe = RECIPES_UNDER_TEST[name]?.();
      const makeLayer = (backend: Backend): Linear =>
        quantizedModelInit(
          recipe ? { recipe } : {},
          () => new Linear(backend, 128, 256, { random: new RandomState(1n) }),
        );
      const values = normal({ seed: 9n, offset: 0n }, 256 * 128, 1);
      // only one rank has the largest value, which is rounded to another amax
      values[200 * 128] = 1e4 + 0.3;
      const usage = { rowwise: true, columnwise: true };
      for (const throughModelDtype of [true, false]) {
        const groups = loopbackOver(backends.slice(0, 3), 20_000);
        const layers = groups.map(({ backend }) => makeLayer(backend));
        const wholes = groups.map((group, i) => {
          const { weight } = layers[i] as Linear;
          const rows = fullyShard(layers[i] as Linear, group).rowsOf(weight);
          using scope = new Scope();
          const begin = rows.slice(0, group.rank).reduce((total, count) => total + count, 0);
          const master = tensor(group.backend, values, [256, 128]).slice(
            begin * 128,
            weight.shape,
          ) as Tensor<"f32">;
          castMasterWeights([weight], [master], { throughModelDtype });
          const quantizedWeight = weight.value as QuantizedTensor;
          return scope.keep(gatherQuantized(group, quantizedWeight, usage, quantizedWeight.quantizer, rows));
        });
        const backend = backends[4] as Backend;
        using _ = new Scope();
        const wholeLayer = makeLayer(backend);
        const master = tensor(backend, values, [256, 128]);
        const { value } = wholeLayer.weight;
        if (value instanceof QuantizedTensor)
          value.quantize_(throughModelDtype ? castTo(master, "bf16") : master);
        const expected = (value as QuantizedTensor).members.map((member) => String(member.dataSync()));
        for (const tensor of wholes) {
          const results = [];
          for (const member of tensor.members) results.push(String(await member.data()));
          expect(results).toEqual(expected);
          tensor.dispose();
        }
        for (const layer of [...layers, wholeLayer]) layer.dispose();
      }
    },
  );
});

describe("an optimizer of sharded parameters", () => {
  it.each(names)("%s: has the rows of preserved values as masters, on every rank", async (name) => {
    const recipe = RECIPES_UNDER_TEST[name]?.();
    const choices = fc.record({
      ranks: fc.integer({ min: 1, max: MOST }),
      rows: fc.constantFrom(64, 96, 160),
      rowMultiple: fc.constantFrom(1, 16, 128),
    });
    await fc.assert(
      fc.asyncProperty(choices, async ({ ranks, rows, rowMultiple }) => {
        const init = { ...(recipe ? { recipe } : {}), preserveHighPrecisionInitVal: true };
        const groups = loopbackOver(backends.slice(0, ranks), 20_000);
        const shards = groups.map((group) => {
          const layer = quantizedModelInit(
            init,
            () => new Linear(group.backend, 32, rows, { random: new RandomState(1n), bias: false }),
          );
          const { weight } = layer;
          const values = weight.highPrecisionInitVal;
          const shardedLayer = fullyShard(layer, group, { rowMultiple });
          const optimizer = new AdamW(layer, { learningRate: 0.1 });
          const master = optimizer.slots.get("weight")?.master as Tensor<"f32">;
          return {
            layer,
            optimizer,
            values,
            own: weight.highPrecisionInitVal,
            all: shardedLayer.gather(weight, master),
          };
        });
        const ownedValues = shards.flatMap(({ own: ownValues }) => [...(ownValues as Float32Array)]);
        for (const { layer, optimizer, values, all: fullTensor } of shards) {
          expect(await fullTensor.data()).toEqual(values);
          expect(Float32Array.from(ownedValues)).toEqual(values);
          for (const disposable of [fullTensor, optimizer, layer]) disposable.dispose();
        }
      }),
      { numRuns: draws(5) },
    );
  });
});

describe("the rows of a rank", () => {
  /** Recipes of weights, and the number of rows of a block of either copy. A rank has whole blocks. */
  const BLOCKS = {
    "high precision": [undefined, 1],
    mxfp8: [() => new MXFP8BlockScaling(), 32],
    nvfp4: [() => new NVFP4BlockScaling(), 16],
    "nvfp4, 1x16": [() => new NVFP4BlockScaling({ disable2dQuantization: true }), 16],
    "block, 128x128": [() => new Float8BlockScaling(), 128],
    "block, 1x128": [() => new Float8BlockScaling({ wBlockScalingDim: 1 }), 128],
  } as const satisfies Record<string, readonly [(() => Recipe) | undefined, number]>;

  const WIDE = 128;
  const NAMES = Object.keys(BLOCKS) as (keyof typeof BLOCKS)[];

  it("are the smallest sufficient multiple of rowMultiple and of blocks; the last ranks have fewer or none", () => {
    const choices = fc.record({
      recipe: fc.constantFrom(...NAMES),
      ranks: fc.integer({ min: 1, max: 4 }),
      rows: fc.constantFrom(32, 96, 160, 192),
      rowMultiple: fc.constantFrom(1, 3, 16, 24, 48),
    });
    const uneven = { recipe: "mxfp8", ranks: 2, rows: 160, rowMultiple: 48 } as const;
    const halves = NAMES.map((recipe) => ({ recipe, ranks: 2, rows: 192, rowMultiple: 1 }));
    fc.assert(
      fc.property(choices, ({ recipe: name, ranks, rows, rowMultiple }) => {
        const [make, blockRows] = BLOCKS[name];
        const quantizedInit = make ? { recipe: make() } : { enabled: false };
        let unit = 1;
        while (unit % rowMultiple !== 0 || unit % blockRows !== 0) unit++;
        let perRank = unit;
        while (perRank * ranks < rows) perRank += unit;
        for (const group of loopbackOver(backends.slice(0, ranks), 5000)) {
          const layer = quantizedModelInit(quantizedInit, () => new Linear(group.backend, WIDE, rows));
          const { weight } = layer;
          const rowRanges = fullyShard(layer, group, { rowMultiple }).rowsOf(weight);
          const begin = Math.min(rows, group.rank * perRank);
          const end = Math.min(rows, begin + perRank);
          expect(rowRanges[group.rank]).toBe(end - begin);
          expect(weight.shape).toEqual([end - begin, WIDE]);
          const ranges = [begin < end ? [[begin, end]] : [], [[0, WIDE]]];
          expect(weight.part).toEqual({ shape: [rows, WIDE], ranges });
          layer.dispose();
        }
      }),
      { numRuns: draws(60, 20), examples: [uneven, ...halves].map((example) => [example]) },
    );
  });
});

describe("fullyShard refuses", () => {
  it("anything but a module and a group of its backend, invalid options, and sharded modules", () => {
    const groups = loopbackOver(backends.slice(0, 2), 5000);
    const [zero, secondGroup] = groups as [ProcessGroup, ProcessGroup];
    const module = new Linear(zero.backend, WIDTH, WIDTH);
    const invalidArguments: readonly unknown[][] = [
      [undefined, zero],
      [module, undefined],
      [module, secondGroup],
      [module, zero, { rowMultiple: 0 }],
      [module, zero, { reduction: "max" }],
      [module, zero, { plan: { algorithm: "tree" } }],
      [module, zero, { buckets: 1 }],
    ];
    for (const args of invalidArguments)
      expect(() => fullyShard(...(args as [never, never]))).toThrow(ArgumentError);
    const rowScaled = quantizedModelInit(
      { recipe: new CustomRecipe({ quantizerFactory: () => new NVFP4Quantizer({ rowScaled: true }) }) },
      () => new Linear(zero.backend, 64, 64),
    );
    expect(() => fullyShard(rowScaled, zero)).toThrow(/an amax for each row/);
    rowScaled.dispose();
    const shardedModule = fullyShard(module, zero);
    expect(() => fullyShard(module, zero)).toThrow(/weight is sharded already/);
    const otherLayer = new Linear(zero.backend, WIDTH, WIDTH);
    expect(() => shardedModule.rowsOf(otherLayer.weight)).toThrow(/does not belong to the sharded module/);
    expect(() => shardedModule.gather(otherLayer.weight, otherLayer.weight.tensor)).toThrow(ArgumentError);
    const foreignTensor = tensor(
      secondGroup.backend,
      new Float32Array(module.weight.tensor.size),
      module.weight.shape,
    );
    expect(() => shardedModule.gather(module.weight, foreignTensor)).toThrow(
      /gather: localRows is on another backend/,
    );
    foreignTensor.dispose();
    const short = tensor(zero.backend, new Float32Array(WIDTH), [1, WIDTH]);
    expect(() => shardedModule.gather(module.weight, short)).toThrow(ShapeError);
    expect(() => shardedModule.gather(module.weight, short)).toThrow(/^gather: localRows/);
    expect(() => shardedModule.rowsOf(module as never)).toThrow(/^rowsOf: parameter is /);
    short.dispose();
    expect(() => shardedModule.noSync(async () => {})).toThrow(ArgumentError);
    otherLayer.weight.grad = otherLayer.weight.tensor.clone();
    expect(() => fullyShard(otherLayer, zero)).toThrow(/has a gradient/);
    for (const layer of [module, otherLayer]) layer.dispose();
  });

  it("a weight whose quantizer is unknown, and one whose gradient of all rows backwardDw has to compute", () => {
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    const { backend } = group;
    class Stored extends Module {
      constructor() {
        super(backend);
        using scope = new Scope();
        const wide = tensor(backend, new Float32Array(32 * 32), [32, 32]);
        const quantizedWeight = scope.keep(new MXFP8Quantizer({ columnwise: true }).quantize(wide));
        this.addParameter("weight", new Parameter(quantizedWeight));
      }
    }
    const delayedLayer = new Linear(backend, 32, 32, { dtype: "f32", bias: false, delayWgradCompute: true });
    {
      using _ = new Scope();
      const x = tensor(backend, new Float32Array(32), [1, 32]);
      delayedLayer.forward(x).backward(x);
    }
    const refusals: readonly (readonly [Module, RegExp])[] = [
      [new Stored(), /weight was quantized outside of quantizedModelInit/],
      [delayedLayer, /weight has a gradient of all rows/],
      [
        new Linear(backend, 32, 32, { parametersSplit: ["first", "second"] }),
        /first.* is a part of a weight or a bias/,
      ],
    ];
    for (const [module, reason] of refusals) {
      expect(() => fullyShard(module, group)).toThrow(ArgumentError);
      expect(() => fullyShard(module, group)).toThrow(reason);
      module.dispose();
    }
  });

  it("a module with a mainGrad, before anything has changed", () => {
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    using module = new Linear(group.backend, WIDTH, WIDTH, { fuseWgradAccumulation: true });
    module.weight.mainGrad = persistent(zeros(group.backend, "f32", [WIDTH, WIDTH]));
    expect(() => fullyShard(module, group)).toThrow(
      /^fullyShard: weight has a gradient of all rows; .* set mainGrad afterwards/,
    );
    expect(module.weight.sharding).toBeUndefined();
  });
});

describe("a sharded parameter outside of layers", () => {
  it("is readable in the backward pass through a handle that an operation has kept", async () => {
    const groups = loopbackOver(backends.slice(0, 3), 5000);
    const layers = groups.map(({ backend }) => new LayerNorm(backend, 48, { dtype: "f32" }));
    const grads = groups.map((group, i) => {
      const layer = layers[i] as LayerNorm;
      fullyShard(layer, group, { reduction: "sum" });
      using _ = new Scope();
      const { bias } = layer;
      // the backward function of an activation keeps the handle of the tensor that its forward function read
      functional.activation(bias as Parameter, "gelu").backward(
        tensor(
          group.backend,
          Float32Array.from({ length: 48 }, (_, j) => j),
          [48],
        ),
      );
      return (bias as Parameter).grad as Tensor;
    });
    // gelu'(0) = 1/2, summed over three ranks
    for (const [rank, grad] of grads.entries())
      expect([...((await grad.data()) as Float32Array)]).toEqual(
        Array.from({ length: 16 }, (_, j) => 1.5 * (16 * rank + j)),
      );
    for (const layer of layers) layer.dispose();
  });
});
