/** Gradient norms, and casts of master weights, of sharded parameters. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/distributed/group.js";
import { loopbackOver } from "../../../../src/distributed/loopback/loopback.js";
import { gatherQuantized } from "../../../../src/distributed/quantized.js";
import {
  ArgumentError,
  castMasterWeights,
  clipGradNorm,
  Embedding,
  fullyShard,
  functional,
  LayerNorm,
  Linear,
  normal,
  type Parameter,
  QuantizedTensor,
  quantizedModelInit,
  RandomState,
  Scope,
  Sequential,
  type Tensor,
  tensor,
  type WideDType,
} from "../../../../src/index.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { normOf, squareSums } from "../../../../src/ops/update/grad-norm.js";
import { rowsOfRanks } from "../../../../src/parallel/sharded-parameter.js";
import { RECIPE_NAMES, RECIPES_UNDER_TEST } from "../../harness/training/run.js";
import { useBackends } from "../ranks/backends.js";

const MOST = 5;
const WIDTH = 32;
const ROWS = 32;
const backends = useBackends(MOST);

const model = (backend: Backend): Sequential => {
  const of = { dtype: "f32", random: new RandomState(5n) } as const;
  return new Sequential(backend, new Linear(backend, WIDTH, 48, of), new LayerNorm(backend, 48, of));
};

function backwardOf(module: Sequential, seed: number): void {
  using _ = new Scope();
  const drawn = (width: number): Tensor<"f32"> =>
    tensor(module.backend, normal({ seed: BigInt(seed), offset: 0n }, ROWS * width, 4), [ROWS, width]);
  functional.mseLoss(module.forward(drawn(WIDTH)), drawn(48)).backward();
}

describe("the norm of gradients of which ranks have rows", () => {
  it("adds each rank's squares in the order of the ranks, and then those of the parameters, on every rank", async () => {
    const drawn = fc.record({
      ranks: fc.integer({ min: 1, max: MOST }),
      seed: fc.nat(1000),
      maxNorm: fc.constantFrom(0, 0.01, 1, 1e6),
      apart: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(drawn, async ({ ranks, seed, maxNorm, apart }) => {
        const groups = loopbackOver(backends.slice(0, ranks), 20_000);
        const models = groups.map(({ backend }) => model(backend));
        const tables = groups.map(({ backend }) => new Embedding(backend, 3, 4, { dtype: "f32" }));
        const results = groups.map((group, i) => {
          const [own, table] = [models[i] as Sequential, tables[i] as Embedding];
          fullyShard(own, group, { reduction: "sum" });
          backwardOf(own, seed);
          const optimized = new Map([...own.namedParameters()]);
          // a parameter that is not sharded
          if (apart) {
            table.weight.grad = tensor(group.backend, new Float32Array(12).fill(seed), [3, 4]);
            optimized.set("table", table.weight);
          }
          return clipGradNorm(optimized, maxNorm);
        });
        const seen = [];
        for (const { norm, factor } of results) seen.push([...(await norm.data()), ...(await factor.data())]);
        for (const { norm, factor } of results) for (const each of [norm, factor]) each.dispose();
        for (const each of [...models, ...tables]) each.dispose();

        using _ = new Scope();
        const backend = backends[0] as Backend;
        const whole = model(backend);
        for (let rank = 0; rank < ranks; rank++) backwardOf(whole, seed);
        const sums = whole.parameters().map(({ grad }) => {
          const all = grad as Tensor<WideDType>;
          const [rows = 1, ...rest] = all.shape;
          const unit = rest.reduce((product, size) => product * size, 1);
          let first = 0;
          let total = 0;
          for (const [rank, count] of rowsOfRanks(rows, ranks, 1).entries()) {
            const [square] = squareSums([all.slice(first * unit, [count, ...rest])]).dataSync();
            total = rank === 0 ? (square as number) : Math.fround(total + (square as number));
            first += count;
          }
          return total;
        });
        if (apart) sums.push(...squareSums([tensor(backend, new Float32Array(12).fill(seed))]).dataSync());
        const { norm, factor } = normOf(tensor(backend, sums), { maxNorm });
        const expected = [...norm.dataSync(), ...factor.dataSync()];
        whole.dispose();
        expect(seen).toEqual(groups.map(() => expected));
      }),
      { numRuns: 12, seed: 4 },
    );
  });
});

const names = RECIPE_NAMES.filter((name) => name !== "bf16");

describe("master weights of which ranks have rows", () => {
  it.each(names)(
    "%s: are cast to the codes and scales of the whole's, rounded once or twice",
    async (name) => {
      const recipe = RECIPES_UNDER_TEST[name]?.();
      const made = (backend: Backend): Linear =>
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
        const layers = groups.map(({ backend }) => made(backend));
        const wholes = groups.map((group, i) => {
          const { weight } = layers[i] as Linear;
          const rows = fullyShard(layers[i] as Linear, group).rowsOf(weight);
          using scope = new Scope();
          const first = rows.slice(0, group.rank).reduce((total, count) => total + count, 0);
          const master = tensor(group.backend, values, [256, 128]).slice(
            first * 128,
            weight.shape,
          ) as Tensor<"f32">;
          castMasterWeights([weight], [master], { throughModelDtype });
          const own = weight.value as QuantizedTensor;
          return scope.keep(gatherQuantized(group, own, usage, own.quantizer, rows));
        });
        const backend = backends[4] as Backend;
        using _ = new Scope();
        const whole = made(backend);
        const master = tensor(backend, values, [256, 128]);
        const { value } = whole.weight;
        if (value instanceof QuantizedTensor)
          value.quantize_(throughModelDtype ? castTo(master, "bf16") : master);
        const expected = (value as QuantizedTensor).members.map((each) => String(each.dataSync()));
        for (const each of wholes) {
          const seen = [];
          for (const member of each.members) seen.push(String(await member.data()));
          expect(seen).toEqual(expected);
          each.dispose();
        }
        for (const layer of [...layers, whole]) layer.dispose();
      }
    },
  );
});

describe("fullyShard refuses", () => {
  it("what is no module, no group, of another backend, outside its options, or sharded already", () => {
    const groups = loopbackOver(backends.slice(0, 2), 5000);
    const [zero, one] = groups as [ProcessGroup, ProcessGroup];
    const module = new Linear(zero.backend, WIDTH, WIDTH);
    const wrong: readonly unknown[][] = [
      [undefined, zero],
      [module, undefined],
      [module, one],
      [module, zero, { rowMultiple: 0 }],
      [module, zero, { reduction: "max" }],
      [module, zero, { plan: { algorithm: "tree" } }],
      [module, zero, { buckets: 1 }],
    ];
    for (const given of wrong) expect(() => fullyShard(...(given as [never, never]))).toThrow(ArgumentError);
    const sharded = fullyShard(module, zero);
    expect(() => fullyShard(module, zero)).toThrow(/weight is sharded already/);
    const other = new Linear(zero.backend, WIDTH, WIDTH);
    expect(() => sharded.rowsOf(other.weight)).toThrow(/none of the module/);
    expect(() => sharded.gather(other.weight, other.weight.tensor)).toThrow(ArgumentError);
    expect(() => sharded.noSync(async () => {})).toThrow(ArgumentError);
    other.weight.grad = other.weight.tensor.clone();
    expect(() => fullyShard(other, zero)).toThrow(/has a gradient/);
    for (const each of [module, other]) each.dispose();
  });
});

describe("a sharded parameter outside of layers", () => {
  it("keeps the handle that an operation kept: its memory is there again in the backward pass", async () => {
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
