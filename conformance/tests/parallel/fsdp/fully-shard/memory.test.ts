/** The number of bytes that a rank stores and sends if its parameters are sharded. */
import { describe, expect, it } from "vitest";
import type { ProcessGroup } from "../../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import {
  AdamW,
  autocast,
  encode,
  fullyShard,
  functional,
  Linear,
  Module,
  MXFP8BlockScaling,
  normal,
  RandomState,
  type Recipe,
  Scope,
  type Tensor,
  tensor,
  Variable,
} from "../../../../../src/index.js";
import { sampleCases } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { RECIPE_NAMES, RECIPES_UNDER_TEST } from "../../../harness/training/run.js";

const RANKS = 4;
const OUTWARD = 512;
const WIDTH = 128;
const ROWS = 32;
const LAYERS = 2;
const WEIGHTS = LAYERS * OUTWARD * WIDTH;
const backends = useBackends(RANKS, true);

/** Parallel layers whose results are added. */
class Network extends Module {
  readonly #layers: readonly Linear[];

  constructor({ backend }: ProcessGroup) {
    super(backend);
    const options = { bias: false, random: new RandomState(3n) };
    this.#layers = Array.from({ length: LAYERS }, (_, i) =>
      this.addModule(`${i}`, new Linear(backend, WIDTH, OUTWARD, options)),
    );
  }

  forward(input: Variable, call: { readonly isFirstMicrobatch?: boolean }): Variable {
    return this.#layers.map((layer) => layer.forward(input, call)).reduce((a, b) => functional.add(a, b));
  }
}

const network = (group: ProcessGroup): Network => new Network(group);

function rowsOn({ backend, rank }: ProcessGroup, width = WIDTH): Tensor<"bf16"> {
  using scope = new Scope();
  const values = normal({ seed: 4n, offset: BigInt(rank) }, ROWS * width, 1);
  return scope.keep(encode(tensor(backend, values, [ROWS, width]), { format: "bf16" }) as Tensor<"bf16">);
}

/** Counts the bytes of this rank's rows that are sent by gathers. */
function countTraffic(group: ProcessGroup): { bytes: number } {
  const count = { bytes: 0 };
  const gather = group.allGatherCoalesced.bind(group);
  group.allGatherCoalesced = (requests) => {
    for (const { x } of requests) count.bytes += x.byteLength;
    return gather(requests);
  };
  return count;
}

const live = (): number[] => backends.map((backend) => backend.memoryUse().live);

function forward(model: Network, x: Variable, recipe: Recipe | undefined, isFirst?: boolean): Variable {
  const call = isFirst === undefined ? {} : { isFirstMicrobatch: isFirst };
  return autocast(recipe ? { recipe } : { enabled: false }, () => model.forward(x, call));
}

describe("memory and exchanges of a sharded module", () => {
  it.each(sampleCases(RECIPE_NAMES, 2))(
    "%s: a fourth of masters and states; after each pass no gathered weight",
    async (name) => {
      const make = RECIPES_UNDER_TEST[name];
      const groups = loopbackOver(backends, 20_000);
      const models = groups.map(network);
      const xs = groups.map((group) => new Variable(rowsOn(group), true));
      for (const [i, group] of groups.entries()) fullyShard(models[i] as Network, group);
      const optimizers = models.map((model) => new AdamW(model, { learningRate: 0.01 }));
      const rows = ROWS * WIDTH * 2;
      // bf16 rows, f32 masters and two moments, for a fourth of the weights
      const stored = rows + (WEIGHTS / RANKS) * (2 + 4 + 8);
      expect(live()).toEqual(backends.map(() => stored));
      const recipes = groups.map(() => make?.());
      {
        using _ = new Scope();
        const outs = models.map((model, i) => forward(model, xs[i] as Variable, recipes[i]));
        for (const out of outs) await out.tensor.data();
        // results, inputs that are kept for the backward pass, a copy of this rank's rows of weights, and optimizer states
        const results = (2 * LAYERS - 1) * ROWS * OUTWARD * 2;
        const keptBytes = results + LAYERS * 1.1 * rows + 1.1 * (WEIGHTS / RANKS) + 4096;
        for (const bytes of live()) expect(bytes - stored).toBeLessThan(keptBytes);
        for (const [i, out] of outs.entries()) out.backward(rowsOn(groups[i] as ProcessGroup, OUTWARD));
        for (const model of models) await model.parameters()[0]?.grad?.data();
      }
      for (const x of xs) x.zeroGrad();
      const states = recipes[0]?.kind === "delayed" ? LAYERS * 4 * (3 + 2) * (1 + 16) : 0;
      expect(live()).toEqual(backends.map(() => stored + (WEIGHTS / RANKS) * 2 + states));
      for (const optimizer of optimizers) optimizer.step();
      for (const optimizer of optimizers) optimizer.zeroGrad();
      for (const model of models) await model.parameters()[0]?.tensor.data();
      expect(live()).toEqual(backends.map(() => stored + states));
      for (const disposable of [...optimizers, ...models, ...xs.map(({ value }) => value)])
        disposable.dispose();
    },
  );

  it("gathers codes and scales, little more than half of the bytes of bf16", async () => {
    const sentBytes = async (recipe: () => Recipe | undefined): Promise<number> => {
      const groups = loopbackOver(backends, 20_000);
      const counts = groups.map(countTraffic);
      const models = groups.map(network);
      const xs = groups.map((group) => new Variable(rowsOn(group), true));
      for (const [i, group] of groups.entries()) fullyShard(models[i] as Network, group);
      using _ = new Scope();
      const outs = models.map((model, i) => forward(model, xs[i] as Variable, recipe()));
      for (const [i, out] of outs.entries()) out.backward(rowsOn(groups[i] as ProcessGroup, OUTWARD));
      for (const model of models) await model.parameters()[0]?.grad?.data();
      for (const x of xs) x.zeroGrad();
      for (const disposable of [...models, ...xs.map(({ value }) => value)]) disposable.dispose();
      expect(new Set(counts.map(({ bytes }) => bytes)).size).toBe(1);
      return counts[0]?.bytes as number;
    };
    // one gather per layer in the forward pass, and one in the backward pass
    const gathers = (2 * WEIGHTS) / RANKS;
    expect(await sentBytes(() => undefined)).toBe(2 * gathers);
    for (const name of ["delayed", "current"] as const)
      expect(await sentBytes(() => RECIPES_UNDER_TEST[name]())).toBe(gathers);
    expect(await sentBytes(() => RECIPES_UNDER_TEST.block())).toBe(gathers * (1 + 4 / 128 ** 2));
    expect(await sentBytes(() => RECIPES_UNDER_TEST.mxfp8())).toBe(gathers * (1 + 1 / 32));
    expect(await sentBytes(() => RECIPES_UNDER_TEST.nvfp4())).toBe(gathers * (1 / 2 + 1 / 16));
  });

  it("quantizes a weight once for several microbatches and gathers it for each of them", async () => {
    const groups = loopbackOver(backends, 20_000);
    const counts = groups.map(countTraffic);
    const models = groups.map(network);
    const xs = groups.map((group) => new Variable(rowsOn(group), true));
    for (const [i, group] of groups.entries()) fullyShard(models[i] as Network, group);
    const liveBefore = live();
    {
      using _ = new Scope();
      const outs = models.flatMap((model, i) =>
        [true, false, false].map((isFirst) =>
          forward(model, xs[i] as Variable, new MXFP8BlockScaling(), isFirst),
        ),
      );
      for (const out of outs) await out.tensor.data();
    }
    // this rank's cached rows, in both copies
    const cachedBytes = (WEIGHTS / RANKS) * 2 * (1 + 1 / 32);
    expect(live()).toEqual(liveBefore.map((bytes) => bytes + cachedBytes));
    expect(counts[0]?.bytes).toBe(3 * (WEIGHTS / RANKS) * (1 + 1 / 32));
    for (const x of xs) x.zeroGrad();
    for (const disposable of [...models, ...xs.map(({ value }) => value)]) disposable.dispose();
  });
});
