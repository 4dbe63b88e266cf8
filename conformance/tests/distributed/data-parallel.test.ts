/** Gradients that ranks compute by themselves and reduce while the backward pass runs. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../src/distributed/group.js";
import { loopbackOver } from "../../../src/distributed/loopback/loopback.js";
import {
  ArgumentError,
  add,
  autocast,
  broadcastParameters,
  constantInit,
  DataParallel,
  type DataParallelOptions,
  DistributedError,
  encode,
  functional,
  LayerNormMLP,
  Linear,
  Module,
  MXFP8BlockScaling,
  normal,
  type Parameter,
  RandomState,
  Scope,
  Sequential,
  scaled,
  type Tensor,
  tensor,
  type Variable,
  type WideDType,
  zeros,
} from "../../../src/index.js";
import { persistent } from "../../../src/modules/parameter.js";
import { download } from "../../values/plain.js";
import { useBackends } from "./ranks/backends.js";

const MOST = 4;
const WIDTH = 32;
const ROWS = 32;
const backends = useBackends(MOST);

interface Case {
  readonly ranks: number;
  readonly dtype: WideDType;
  readonly fuses: boolean;
  readonly fp8: boolean;
  readonly microbatches: number;
  readonly frozen: readonly boolean[];
  readonly options: DataParallelOptions;
}

const cases: fc.Arbitrary<Case> = fc.record({
  ranks: fc.integer({ min: 1, max: MOST }),
  dtype: fc.constantFrom("f32", "bf16"),
  fuses: fc.boolean(),
  fp8: fc.boolean(),
  microbatches: fc.integer({ min: 1, max: 3 }),
  frozen: fc.array(fc.boolean(), { minLength: 3, maxLength: 3 }),
  options: fc.record(
    {
      reduction: fc.constantFrom("mean", "sum"),
      bucketBytes: fc.constantFrom(1, 100, 5000, 20_000, 2 ** 30),
      plan: fc.record({ algorithm: fc.constantFrom("ranked", "ring") }),
    },
    { requiredKeys: [] },
  ),
});

function modelOn(backend: Backend, { dtype, fuses }: Pick<Case, "dtype" | "fuses">): Sequential {
  const of = { dtype, fuseWgradAccumulation: fuses, random: new RandomState(5n) };
  const model = new Sequential(
    backend,
    new Linear(backend, WIDTH, WIDTH, of),
    new LayerNormMLP(backend, WIDTH, 2 * WIDTH, of),
    new Linear(backend, WIDTH, WIDTH, { ...of, bias: false }),
  );
  if (fuses)
    for (const [name, each] of model.namedParameters())
      if (name.toLowerCase().endsWith("weight") && each.shape.length === 2)
        each.mainGrad = persistent(zeros(backend, "f32", each.shape));
  return model;
}

function sample(backend: Backend, number: number, dtype: WideDType): Tensor<WideDType> {
  const values = normal({ seed: 7n, offset: BigInt(number * ROWS * WIDTH) }, ROWS * WIDTH, 1);
  const x = tensor(backend, values, [ROWS, WIDTH]);
  return dtype === "f32" ? x : (encode(x, { format: "bf16" }) as Tensor<WideDType>);
}

function freeze(model: Module, frozen: readonly boolean[]): void {
  for (const [i, each] of model.parameters().entries()) each.requiresGrad = !frozen[i];
}

/** Two parameters that are added. */
class Terms extends Module {
  readonly x: Parameter;
  readonly y: Parameter;

  constructor(backend: Backend) {
    super(backend, { dtype: "f32" });
    const one = constantInit(1);
    this.x = this.parameter("x", [ROWS, WIDTH], one);
    this.y = this.parameter("y", [ROWS, WIDTH], one);
  }
}

/** The backward pass of one microbatch. */
function pass(model: Sequential, { dtype, fp8 }: Case, number: number): void {
  using _ = new Scope();
  const x = sample(model.backend, number, dtype);
  const forward = (): Variable => model.forward(x);
  const y = fp8 ? autocast({ recipe: new MXFP8BlockScaling() }, forward) : forward();
  y.backward(sample(model.backend, 1000 + number, dtype));
}

const gradientOf = ({ mainGrad, grad }: Parameter): Tensor<WideDType> | undefined => mainGrad ?? grad;
const bitsOf = (x: Tensor | undefined): string => (x ? String(download(x).codes) : "none");

/** The gradients of all ranks, reduced while their passes ran. */
async function reduced(given: Case): Promise<string[][]> {
  const groups = loopbackOver(backends.slice(0, given.ranks), 5000);
  const models = groups.map((group) => {
    const model = modelOn(group.backend, given);
    freeze(model, given.frozen);
    using parallel = new DataParallel(model, group, given.options);
    const numbers = Array.from({ length: given.microbatches }, (_, i) => given.microbatches * group.rank + i);
    parallel.noSync(() => {
      for (const number of numbers.slice(0, -1)) pass(model, given, number);
    });
    pass(model, given, numbers.at(-1) as number);
    return model;
  });
  return finished(models);
}

async function finished(models: readonly Module[]): Promise<string[][]> {
  const texts = [];
  for (const model of models) {
    for (const each of model.parameters()) await gradientOf(each)?.data();
    texts.push(model.parameters().map((each) => bitsOf(gradientOf(each))));
    model.dispose();
  }
  return texts;
}

/** The same by an all-reduce of each gradient by itself, after all passes. */
async function oneByOne(given: Case): Promise<string[][]> {
  const groups = loopbackOver(backends.slice(0, given.ranks), 5000);
  const { reduction = "mean", plan } = given.options;
  const models = groups.map((group) => {
    const model = modelOn(group.backend, given);
    freeze(model, given.frozen);
    for (let i = 0; i < given.microbatches; i++) pass(model, given, given.microbatches * group.rank + i);
    for (const each of model.parameters()) {
      const grad = gradientOf(each);
      if (!grad || !each.requiresGrad) continue;
      using _ = new Scope();
      const sum = group.allReduce(grad.clone(), { plan });
      grad.paste(
        reduction === "mean" ? (scaled(sum, 1 / group.size, { outDtype: sum.dtype }) as never) : sum,
        0,
      );
    }
    return model;
  });
  return finished(models);
}

describe("data parallelism", () => {
  it("reduces each gradient as if it were alone, whatever the buckets, types, microbatches and frozen parameters", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (given) => {
        // the splits of a ring, and so its bits, are those of a bucket
        const whole =
          given.options.plan?.algorithm === "ring"
            ? { ...given, options: { ...given.options, bucketBytes: 1 } }
            : given;
        const [first, ...others] = await reduced(whole);
        expect(first).toEqual((await oneByOne(whole))[0]);
        for (const other of others) expect(other).toEqual(first);
      }),
      { numRuns: 25, seed: 11 },
    );
  });

  it("with f32 gradients gives the bits of one process that adds the samples' gradients in the order of the ranks", async () => {
    const given: Case = {
      ranks: 4,
      dtype: "f32",
      fuses: false,
      fp8: false,
      microbatches: 1,
      frozen: [],
      options: { reduction: "sum", bucketBytes: 5000 },
    };
    const [ranks] = await reduced(given);
    const model = modelOn(backends[0] as Backend, given);
    for (let rank = 0; rank < 4; rank++) pass(model, given, rank);
    expect(ranks).toEqual(model.parameters().map((each) => bitsOf(each.grad)));
    model.dispose();
  });

  it("keeps gradients apart that share memory, as those of the two terms of a sum do", async () => {
    const groups = loopbackOver(backends.slice(0, 2), 5000);
    const models = groups.map((group) => {
      const model = new Terms(group.backend);
      using _ = new DataParallel(model, group, { bucketBytes: 1, reduction: "sum" });
      using _scope = new Scope();
      functional.add(model.x, model.y).backward(sample(group.backend, group.rank, "f32"));
      return model;
    });
    const [zero, one] = await finished(models);
    using _ = new Scope();
    const backend = backends[0] as Backend;
    const sum = bitsOf(add(sample(backend, 0, "f32"), sample(backend, 1, "f32")));
    expect([zero, one]).toEqual([
      [sum, sum],
      [sum, sum],
    ]);
  });

  it("ends the group with the name of a parameter that the pass did not reach", async () => {
    const groups = loopbackOver(backends.slice(0, 2), 5000);
    const [first, second] = groups.map(({ backend }) => new Terms(backend)) as [Terms, Terms];
    using _first = new DataParallel(first, groups[0] as ProcessGroup);
    using _second = new DataParallel(second, groups[1] as ProcessGroup);
    {
      using _ = new Scope();
      functional.add(second.x, second.y).backward(sample(second.backend, 0, "f32"));
      const dy = sample(first.backend, 0, "f32");
      expect(() => functional.add(first.y, first.y).backward(dy)).toThrow(/did not reach x;/);
    }
    await expect(second.x.grad?.data()).rejects.toThrow(DistributedError);
    for (const model of [first, second]) model.dispose();
  });

  it("copies the parameters of one rank to the others", async () => {
    const groups = loopbackOver(backends.slice(0, 3), 5000);
    const models = groups.map(
      ({ backend, rank }) => new Linear(backend, WIDTH, WIDTH, { random: new RandomState(BigInt(rank)) }),
    );
    for (const [i, group] of groups.entries()) broadcastParameters(models[i] as Linear, group, 1);
    for (const { weight } of models) await weight.tensor.data();
    const [zero, one, two] = models.map(({ weight }) => bitsOf(weight.tensor));
    expect([zero, two]).toEqual([one, one]);
    for (const model of models) model.dispose();
  });

  it("refuses what is no module, no group, of another backend, or outside its options", async () => {
    const groups = loopbackOver(backends.slice(0, 2), 5000);
    const [zero, one] = groups as [ProcessGroup, ProcessGroup];
    const model = new Linear(zero.backend, WIDTH, WIDTH);
    const wrong: readonly unknown[][] = [
      [undefined, zero],
      [model, undefined],
      [model, one],
      [model, zero, { bucketBytes: 0 }],
      [model, zero, { bucketBytes: Number.NaN }],
      [model, zero, { reduction: "max" }],
      [model, zero, { plan: { algorithm: "tree" } }],
      [model, zero, { buckets: 1 }],
    ];
    for (const given of wrong)
      expect(() => new DataParallel(...(given as [never, never, never]))).toThrow(ArgumentError);
    using parallel = new DataParallel(model, zero);
    expect(() => parallel.noSync(async () => {})).toThrow(ArgumentError);
    expect(() => parallel.noSync(undefined as never)).toThrow(ArgumentError);
    expect(() => broadcastParameters(model, zero, 2)).toThrow(ArgumentError);
    model.dispose();
  });
});
