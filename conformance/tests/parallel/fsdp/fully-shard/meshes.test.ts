/** Hybrid sharding: parameters that are divided along one axis of a mesh, and copied along the other. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../../src/backends/backend.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import { evenSplits } from "../../../../../src/collectives/plan.js";
import {
  ArgumentError,
  autocast,
  constantInit,
  DataParallel,
  DelayedScaling,
  DistributedError,
  type FullyShardOptions,
  fullyShard,
  functional,
  Linear,
  Module,
  normal,
  type Parameter,
  RandomState,
  Scope,
  type SumOrder,
  type Tensor,
  tensor,
  type WideDType,
} from "../../../../../src/index.js";
import { castTo } from "../../../../../src/ops/cast/cast.js";
import { pairwise, product } from "../../../../arbitraries/covering.js";
import { splitmix32 } from "../../../../arbitraries/random.js";
import { meanOfSums, type Round, rankedSum, ringSum } from "../../../../oracle/collective/collective.js";
import { roundedIn } from "../../../../oracle/core/scale.js";
import { derivedSeed, draws, SEED, sampleCases } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { RECIPE_NAMES } from "../../../harness/training/run.js";
import type { Case, Turn } from "../case.js";
import { cases } from "../case.js";
import { copiedRun, oneProcess, shardedRun } from "../runs.js";

const MOST = 8;
const STEPS = 3;
const backends = useBackends(MOST);
const groupsOf = (ranks: number) => loopbackOver(backends.slice(0, ranks), 20_000);

/** Every pair of these has a case. */
const OPTIONS = {
  mesh: [
    { ranks: 4, replicate: 1 },
    { ranks: 3, replicate: 3 },
    { ranks: 4, replicate: 2 },
    { ranks: 6, replicate: 3 },
    { ranks: 8, replicate: 2 },
  ],
  dtype: ["f32", "bf16"],
  optimizer: ["sgd", "momentum", "adamw"],
  recomputes: [false, true],
  microbatches: [1, 2],
  frozen: [[], [false, true]],
  reduction: ["sum", "mean"],
  rowMultiple: [1, 16, 32],
  orders: [[], [[0], [], [1, 0]]],
  evaluated: [[], [0]],
  synced: [false, true],
  first: [undefined, true],
  end: ["step", "scaled", "clipped"],
  state: ["kept", "saved", "loaded"],
  fuses: [false, true],
  delays: [undefined, "pass", "layers", "step"],
} as const;

const next = splitmix32(SEED);
const PAIRS = pairwise(OPTIONS, (bound) => next() % bound);

/** Every combination of these has a case. */
const LAYERS = product({
  recipe: RECIPE_NAMES,
  layer: ["linear", "normed", "mlp"],
  quantized: [false, true],
} as const).filter(({ recipe, quantized }) => recipe !== "bf16" || !quantized);

const ROWS = Array.from({ length: Math.max(PAIRS.length, LAYERS.length) }, (_, i): Case => {
  const { mesh, dtype, synced, first, end, state, ...options } = PAIRS[i % PAIRS.length] as (typeof PAIRS)[0];
  const { recipe, layer, quantized } = LAYERS[i % LAYERS.length] as (typeof LAYERS)[0];
  const settings = { synced, first, skip: undefined, otherRecipe: false, zeroes: true } as const;
  const steps: readonly Turn[] = [
    { ...settings, end, state: "saved" },
    { ...settings, end: "step", state },
  ];
  return {
    ...{
      ...options,
      ...mesh,
      recipe,
      quantized,
      layers: [layer, "bare"],
      width: 32,
      caches: false,
      settings: steps,
    },
    // the Hadamard transform accepts only bf16
    dtype: recipe === "nvfp4" ? "bf16" : dtype,
  };
});

describe("training over a mesh", () => {
  it.each(sampleCases(ROWS, 3).map((row) => [JSON.stringify(row), row] as const))(
    "has the bits of one process that adds within each copy of the parameters, then across: %s",
    async (_, testCase) => {
      expect(await shardedRun(backends, testCase, STEPS)).toEqual(
        await oneProcess(backends[0] as Backend, testCase, STEPS),
      );
    },
  );

  it("has the bits of fullyShard without a mesh, if there is one copy", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (testCase) => {
        const shardedTexts = await shardedRun(backends, { ...testCase, replicate: 1 }, STEPS);
        expect(shardedTexts).toEqual(await shardedRun(backends, testCase, STEPS));
      }),
      { numRuns: draws(10), seed: derivedSeed(4), endOnFailure: true },
    );
  });

  it("has the bits of DataParallel, if each rank has all rows", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (choices) => {
        // DataParallel throws if a pass does not reach a parameter
        const testCase = { ...choices, orders: [] };
        const shardedTexts = await shardedRun(backends, { ...testCase, replicate: testCase.ranks }, STEPS);
        expect(shardedTexts).toEqual(await copiedRun(backends, testCase, STEPS));
      }),
      { numRuns: draws(10), seed: derivedSeed(5), endOnFailure: true },
    );
  });
});

/** A module of one parameter, whose gradient is the gradient of the result. */
class Leaf extends Module {
  readonly leaf: Parameter;

  constructor(backend: Backend, dtype: WideDType, shape: readonly [number, number]) {
    super(backend, { dtype });
    this.leaf = this.parameter("p", shape, constantInit(0));
  }
}

const PLANS = {
  none: () => undefined,
  ranked: () => ({ algorithm: "ranked" }),
  ring: () => ({ algorithm: "ring" }),
  reversed: (ranks) => ({ algorithm: "ring", order: Array.from({ length: ranks }, (_, i) => ranks - 1 - i) }),
} as const satisfies Record<string, (ranks: number) => SumOrder | undefined>;

const SUMS = pairwise(
  {
    plan: Object.keys(PLANS) as (keyof typeof PLANS)[],
    replicatePlan: Object.keys(PLANS) as (keyof typeof PLANS)[],
    reduction: [undefined, "mean", "sum"],
    dtype: ["f32", "bf16", "f16"],
    mesh: [
      { replicate: 2, shard: 2 },
      { replicate: 2, shard: 4 },
      { replicate: 3, shard: 2 },
      { replicate: 4 },
      { shard: 4 },
    ],
    shape: [
      [7, 5],
      [3, 16],
      [64, 1],
    ],
    rowMultiple: [1, 2],
  } as const,
  (bound) => next() % bound,
);

async function numbersOf(x: Tensor<WideDType>): Promise<readonly number[]> {
  const wide = castTo(x, "f32");
  const values = Array.from(await wide.data());
  if (wide !== x) wide.dispose();
  return values;
}

/** The sum or mean of the inputs of some ranks by a plan, as the specification defines it. */
function reduceOverMesh(
  inputs: readonly (readonly number[])[],
  plan: SumOrder | undefined,
  { splits, isMean, round }: { splits: readonly number[]; isMean: boolean; round: Round },
): number[] {
  const order = plan?.order ?? inputs.map((_, i) => i);
  const sums = plan?.algorithm === "ring" ? ringSum(inputs, order, splits, round) : rankedSum(inputs, round);
  return isMean ? meanOfSums(sums, inputs.length, round) : sums;
}

describe("gradients over a mesh", () => {
  it.each(sampleCases(SUMS, 3).map((row) => [JSON.stringify(row), row] as const))(
    "are added by plan within each copy, then by replicatePlan across: %s",
    async (_, { dtype, shape, reduction, rowMultiple, ...row }) => {
      const { replicate = 1, shard = 1 }: { replicate?: number; shard?: number } = row.mesh;
      const ranks = replicate * shard;
      const [plan, replicatePlan]: (SumOrder | undefined)[] = [
        PLANS[row.plan](shard),
        PLANS[row.replicatePlan](replicate),
      ];
      const options: FullyShardOptions = { mesh: row.mesh, plan, replicatePlan, reduction, rowMultiple };
      const [rows, columns] = shape;
      const modules = groupsOf(ranks).map((group) => {
        const { backend } = group;
        const module = new Leaf(backend, dtype, [rows, columns]);
        const shardedModule = fullyShard(module, group, options);
        using scope = new Scope();
        const values = normal({ seed: 3n, offset: BigInt(1000 * group.rank) }, rows * columns, 1);
        const grad = scope.keep(castTo(tensor(backend, values, [values.length]), dtype));
        functional.reshape(module.leaf, [values.length]).backward(grad);
        return { module, grad, counts: shardedModule.rowsOf(module.leaf) };
      });
      const inputs = await Promise.all(modules.map(({ grad }) => numbersOf(grad)));
      const isMean = reduction !== "sum";
      const round: Round = (x) => roundedIn(x, dtype);
      const sections = Array.from({ length: shard }, (_, shardIndex) => {
        const begin = (modules[0]?.counts ?? []).slice(0, shardIndex).reduce((sum, count) => sum + count, 0);
        const splits = (modules[0]?.counts ?? []).map((count) => count * columns);
        const copies = Array.from({ length: replicate }, (_, copy) => {
          const sums = reduceOverMesh(inputs.slice(copy * shard, (copy + 1) * shard), plan, {
            splits,
            isMean,
            round,
          });
          return sums.slice(begin * columns, begin * columns + (splits[shardIndex] as number));
        });
        const size = splits[shardIndex] as number;
        return reduceOverMesh(copies, replicatePlan, { splits: evenSplits(size, replicate), isMean, round });
      });
      for (const [rank, { module }] of modules.entries()) {
        const grad = module.leaf.grad as Tensor<WideDType>;
        expect(await numbersOf(grad), `rank ${rank}`).toEqual(sections[rank % shard]);
      }
      for (const { module, grad } of modules) {
        grad.dispose();
        module.dispose();
      }
    },
  );
});

describe("delayed scaling over a mesh", () => {
  it("has the scales of DataParallel on all ranks, if the region reduces amaxes over all of them", async () => {
    const recipe = new DelayedScaling({ amaxHistoryLen: 2 });
    const [FROM, TO] = [32, 48];
    const scalesWith = async (
      reduce: (model: Linear, group: ReturnType<typeof groupsOf>[0]) => unknown,
    ): Promise<readonly string[]> => {
      const models = groupsOf(4).map((group) => {
        const { backend } = group;
        const model = new Linear(backend, FROM, TO, { dtype: "f32", random: new RandomState(1n) });
        reduce(model, group);
        for (let pass = 0; pass < 3; pass++) {
          using _ = new Scope();
          const size = 2 ** ((3 * group.rank + pass) % 4);
          const values = normal({ seed: 2n, offset: BigInt(1000 * group.rank) }, 16 * FROM, size);
          const x = tensor(backend, values, [16, FROM]);
          const y = autocast({ recipe, amaxReductionGroup: group }, () => model.forward(x));
          y.backward(tensor(backend, new Float32Array(16 * TO).fill(size), [16, TO]));
        }
        return model;
      });
      const scales = models.map((model) => {
        const [state] = [...model.namedQuantizations().values()];
        const { forward, backward } = state?.snapshotSync() ?? {};
        return [forward, backward].map((pass) => `${pass?.scale}; ${pass?.amaxHistory}`).join("; ");
      });
      for (const model of models) model.dispose();
      return scales;
    };
    const expected = await scalesWith((model, group) => new DataParallel(model, group));
    expect(new Set(expected).size).toBe(1);
    for (const mesh of [{ replicate: 2, shard: 2 }, { replicate: 4 }, { shard: 4 }])
      expect(await scalesWith((model, group) => fullyShard(model, group, { mesh }))).toEqual(expected);
  });
});

describe("a mesh", () => {
  it("is refused unless its sizes are positive and multiply to the number of ranks, and nothing has changed", () => {
    const invalidMeshes: readonly (readonly [mesh: unknown, words: RegExp])[] = [
      [{ replicate: 2 }, /^fullyShard: shard 1 x replicate 2 is 2 ranks; the group has 4$/],
      [{}, /^fullyShard: shard 1 x replicate 1 is 1 ranks; the group has 4$/],
      [{ replicate: 4, shard: 4 }, /^fullyShard: shard 4 x replicate 4 is 16 ranks; the group has 4$/],
      [{ replicate: 0, shard: 4 }, /^fullyShard: mesh\.replicate is 0/],
      [{ replicate: 0.5, shard: 8 }, /^fullyShard: mesh\.replicate is 0\.5/],
      [{ replicates: 2, shard: 2 }, /^fullyShard: .*replicates/],
      [[2, 2], /^fullyShard: mesh is /],
    ];
    const groups = groupsOf(4);
    const models = groups.map(({ backend }) => new Linear(backend, 8, 8));
    for (const [mesh, message] of invalidMeshes) {
      for (const [i, model] of models.entries()) {
        const shard = () => fullyShard(model, groups[i] as (typeof groups)[0], { mesh: mesh as never });
        expect(shard).toThrow(ArgumentError);
        expect(shard).toThrow(message);
      }
    }
    for (const [i, model] of models.entries()) {
      expect(model.weight.shape).toEqual([8, 8]);
      fullyShard(model, groups[i] as (typeof groups)[0], { mesh: { replicate: 2, shard: 2 } });
      expect(model.weight.shape).toEqual([4, 8]);
      model.dispose();
    }
  });

  it("that differs between ranks ends the group with the same error on all of them", async () => {
    const groups = groupsOf(4);
    const models = groups.map(({ backend }) => new Linear(backend, 8, 8));
    const meshes = groups.map((_, i) => (i === 3 ? { replicate: 4 } : { replicate: 2, shard: 2 }));
    const errorOf = async (body: () => unknown): Promise<unknown> => {
      try {
        return await body();
      } catch (error) {
        return error;
      }
    };
    const errors = await Promise.all(
      groups.map((group, i) =>
        errorOf(() => {
          fullyShard(models[i] as Linear, group, { mesh: meshes[i] });
          return group.barrier();
        }),
      ),
    );
    for (const error of errors) {
      expect(error).toBeInstanceOf(DistributedError);
      expect((error as DistributedError).failure).toBe("disagreement");
      expect((error as Error).message).toMatch(/shard 1 x replicate 4/);
    }
    for (const model of models) model.dispose();
  });

  it("has the same groups for all modules that are sharded over it", () => {
    const meshes = [{ replicate: 2, shard: 2 }, { replicate: 2, shard: 2 }, { replicate: 4 }];
    const ranksOf = groupsOf(4).map((group) => {
      const models = meshes.map((mesh) => {
        const model = new Linear(group.backend, 8, 8);
        fullyShard(model, group, { mesh });
        return model;
      });
      const [firstGroup, secondGroup, thirdGroup] = models.map(({ weight }) => weight.sharding?.group);
      expect(secondGroup).toBe(firstGroup);
      for (const model of models) model.dispose();
      return [firstGroup?.ranks, thirdGroup?.ranks];
    });
    expect(ranksOf).toEqual([0, 1, 2, 3].map((rank) => [rank < 2 ? [0, 1] : [2, 3], [rank]]));
  });
});
