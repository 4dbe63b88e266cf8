/** Delayed scaling of sharded layers if an autocast region contains several passes, and weights change between the passes. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../../src/backends/backend.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import {
  autocast,
  DelayedScaling,
  fullyShard,
  Linear,
  noGrad,
  type Parameter,
  recompute,
  Scope,
  Sequential,
  type Tensor,
  type Variable,
} from "../../../../../src/index.js";
import { wideTensor } from "../../../../../src/modules/parameter.js";
import { normal } from "../../../../../src/random.js";
import { draws } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";

const MAX_RANKS = 3;
const [ROWS, WIDTH, LAYERS] = [16, 48, 2];
const backends = useBackends(MAX_RANKS);

/** A forward pass of the model, and a backward pass if `backward` is set. */
interface Pass {
  /** The largest magnitude of the weights. It is the magnitude of the last element, which the last rank has. */
  readonly weightAmax: number;
  /** The largest magnitude of the input. */
  readonly inputAmax: number;
  readonly backward: boolean;
  readonly recomputes: boolean;
  /** The value of `isFirstMicrobatch`. */
  readonly first: boolean | undefined;
}

const AMAXES = [0.25, 1, 3, 8] as const;
const pass: fc.Arbitrary<Pass> = fc.record({
  weightAmax: fc.constantFrom(...AMAXES),
  inputAmax: fc.constantFrom(...AMAXES),
  backward: fc.boolean(),
  recomputes: fc.boolean(),
  first: fc.constantFrom(undefined, undefined, true, false),
});
const regions = fc.array(fc.array(pass, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 4 });

/** Random values with magnitudes up to 1/8, except that the last element has the magnitude `amax`. */
function valuesWithAmax(seed: number, count: number, amax: number): Float32Array {
  const values = normal({ seed: BigInt(seed), offset: 0n }, count, 1).map(
    (x) => Math.max(-4, Math.min(4, x)) / 32,
  );
  values[count - 1] = -amax;
  return values;
}

/** Overwrites a weight, or this rank's rows of it, with the values of a full weight, as loading a checkpoint does. */
function write(parameter: Parameter, values: Float32Array): void {
  const { rowsPerRank = [], group } = parameter.sharding ?? {};
  const firstRow = rowsPerRank.slice(0, group?.rank).reduce((total, count) => total + count, 0);
  const local = parameter.localValue as Tensor<"f32">;
  local.write(values.slice(firstRow * WIDTH, firstRow * WIDTH + local.size));
  parameter.clearGrads();
}

/** A model of two layers under delayed scaling. If it is sharded, the weight of the second layer is prefetched. */
class TestModel {
  readonly #recipe = new DelayedScaling({ amaxHistoryLen: 3 });
  readonly #layers: readonly Linear[];
  readonly model: Sequential;
  readonly #results: Tensor[] = [];
  #passes = 0;

  constructor(private readonly backend: Backend) {
    const options = { dtype: "f32", bias: false } as const;
    this.#layers = Array.from({ length: LAYERS }, () => new Linear(backend, WIDTH, WIDTH, options));
    this.model = new Sequential(backend, ...this.#layers);
  }

  /** Runs passes in one autocast region. */
  region(passes: readonly Pass[]): void {
    autocast({ recipe: this.#recipe }, () => {
      for (const pass of passes) this.#run(pass);
    });
  }

  #run({ weightAmax, inputAmax, backward, recomputes, first }: Pass): void {
    using scope = new Scope();
    const seed = ++this.#passes;
    for (const { weight } of this.#layers) write(weight, valuesWithAmax(seed, WIDTH * WIDTH, weightAmax));
    const x = wideTensor(
      this.backend,
      valuesWithAmax(1000 + seed, ROWS * WIDTH, inputAmax),
      [ROWS, WIDTH],
      "f32",
    );
    const forward = (input: Variable | Tensor): Variable =>
      this.model.forward(input, first === undefined ? {} : { isFirstMicrobatch: first });
    const run = (): Variable => (recomputes ? recompute(forward, x) : forward(x));
    const y = backward ? run() : noGrad(run);
    if (backward) y.backward(y.tensor as Tensor<"f32">);
    this.#results.push(scope.keep(y.tensor.clone()));
  }

  /** Returns the results of all passes, and all scales and amax histories. Call it after all ranks have run their passes. */
  async readAll(): Promise<{ readonly results: readonly string[]; readonly scales: readonly string[] }> {
    const results: string[] = [];
    for (const x of this.#results.splice(0)) {
      results.push(String(await x.data()));
      x.dispose();
    }
    const scales = [...this.model.namedQuantizations()].map(([name, quantization]) => {
      const { forward, backward } = quantization.snapshotSync() ?? {};
      return `${name}: ${forward?.scale}; ${forward?.amaxHistory}; ${backward?.scale}; ${backward?.amaxHistory}`;
    });
    return { results, scales };
  }
}

describe("scales of sharded layers under delayed scaling", () => {
  it("follow the largest amaxes of all passes of a region, as in one process", async () => {
    const falling: readonly Pass[] = [8, 1].map((amax) => ({
      ...{ weightAmax: amax, inputAmax: amax, backward: true, recomputes: false, first: undefined },
    }));
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 2, max: MAX_RANKS }), regions, async (ranks, regionPasses) => {
        const groups = loopbackOver(backends.slice(0, ranks), 20_000);
        const unshardedModel = new TestModel(backends[0] as Backend);
        const models = groups.map(({ backend }) => new TestModel(backend));
        for (const [i, { model }] of models.entries()) fullyShard(model, groups[i] as (typeof groups)[0]);
        try {
          for (const passes of regionPasses) {
            for (const model of [unshardedModel, ...models]) model.region(passes);
            const expected = await unshardedModel.readAll();
            for (const model of models) expect(await model.readAll()).toEqual(expected);
          }
        } finally {
          for (const { model } of [unshardedModel, ...models]) model.dispose();
        }
      }),
      { numRuns: draws(60, 8), examples: [[2, [falling, falling]]] },
    );
  });
});
