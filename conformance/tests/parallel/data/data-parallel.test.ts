/** Data parallelism: gradients that each rank computes are reduced while the backward pass runs. */
import * as fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import {
  ArgumentError,
  add,
  autocast,
  broadcastParameters,
  constantInit,
  DataParallel,
  type DataParallelOptions,
  DistributedError,
  DTypeError,
  differentiable,
  encode,
  Float8CurrentScaling,
  fullyShard,
  functional,
  LayerNormMLP,
  Linear,
  Module,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
  normal,
  normalInit,
  type Parameter,
  quantizedModelInit,
  RandomState,
  Scope,
  Sequential,
  type Shape,
  scaled,
  type Tensor,
  tensor,
  type Variable,
  type WideDType,
  zeros,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { membersOf } from "../../../../src/tape/value.js";
import { download } from "../../../values/plain.js";
import { derivedSeed, draws } from "../../harness/draws.js";
import { useBackends } from "../../harness/ranks/backends.js";

const MOST = 4;
const WIDTH = 32;
const ROWS = 32;
const backends = useBackends(MOST);

interface Case {
  readonly ranks: number;
  readonly dtype: WideDType;
  readonly fuses: boolean;
  readonly fp8: boolean;
  /** Whether a weight is also used as an embedding table, so that it has a `grad` besides its `mainGrad`. */
  readonly tied: boolean;
  /**
   * When `backwardDw` computes gradients of weights: of the model after each pass, of the model after all passes, or of one layer
   * after another after each pass. Undefined if the pass computes them.
   */
  readonly delays?: "pass" | "step" | "layers" | undefined;
  readonly microbatches: number;
  readonly frozen: readonly boolean[];
  readonly options: DataParallelOptions;
}

const cases: fc.Arbitrary<Case> = fc.record({
  ranks: fc.integer({ min: 1, max: MOST }),
  dtype: fc.constantFrom("f32", "bf16"),
  fuses: fc.boolean(),
  fp8: fc.boolean(),
  tied: fc.boolean(),
  delays: fc.constantFrom(undefined, "pass", "step", "layers"),
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

/** Layers in sequence. */
class Layers extends Sequential {
  constructor(
    backend: Backend,
    readonly layers: readonly (Linear | LayerNormMLP)[],
  ) {
    super(backend, ...layers);
  }
}

function modelOn(
  backend: Backend,
  { dtype, fuses, delays }: Pick<Case, "dtype" | "fuses"> & Partial<Pick<Case, "delays">>,
): Layers {
  const fused = { dtype, fuseWgradAccumulation: fuses, random: new RandomState(5n) };
  const of = { ...fused, delayWgradCompute: delays !== undefined };
  const model = new Layers(backend, [
    new Linear(backend, WIDTH, WIDTH, of),
    new LayerNormMLP(backend, WIDTH, 2 * WIDTH, of),
    new Linear(backend, WIDTH, WIDTH, { ...of, bias: false }),
  ]);
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

/** A module that adds two parameters. */
class Terms extends Module {
  readonly x: Parameter;
  readonly y: Parameter;

  constructor(
    backend: Backend,
    [x, y]: readonly [Shape, Shape] = [
      [ROWS, WIDTH],
      [ROWS, WIDTH],
    ],
  ) {
    super(backend, { dtype: "f32" });
    const one = constantInit(1);
    this.x = this.parameter("x", x, one);
    this.y = this.parameter("y", y, one);
  }
}

/** The backward pass of one microbatch. */
function pass(model: Layers, { dtype, fp8, tied, delays }: Case, number: number): void {
  using _ = new Scope();
  const x = sample(model.backend, number, dtype);
  const rows = (): Variable => {
    const weight = model.parameters().at(-1) as Parameter;
    const ids = Int32Array.from({ length: ROWS }, (_, i) => (i * number + 3) % WIDTH);
    return functional.embedding(weight, tensor(model.backend, ids, [ROWS], "i32"));
  };
  const forward = (): Variable => (tied ? functional.add(model.forward(x), rows()) : model.forward(x));
  const y = fp8 ? autocast({ recipe: new MXFP8BlockScaling() }, forward) : forward();
  y.backward(sample(model.backend, 1000 + number, dtype));
  if (delays === "pass") backwardDw(model);
  if (delays === "layers") for (const layer of [...model.layers].reverse()) backwardDw(layer);
}

/** Computes the gradients that the oldest pass has left out, if there are any. */
function backwardDw(module: Module): void {
  if (module.parameters().some(({ delayedGradients }) => delayedGradients?.isWaiting)) module.backwardDw();
}

/** The gradient of a parameter: `mainGrad` if it has one, else `grad`. */
function gradientOf({ mainGrad, grad }: Parameter): Tensor<WideDType> | undefined {
  if (mainGrad) expect(grad).toBeUndefined();
  return mainGrad ?? grad;
}
const bitsOf = (x: Tensor | undefined): string => (x ? String(download(x).codes) : "none");

/** Returns the gradients of all ranks, which are reduced during the backward passes. */
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
    if (given.delays === "step") {
      parallel.noSync(() => {
        for (const _ of numbers.slice(0, -1)) backwardDw(model);
      });
      backwardDw(model);
    }
    return model;
  });
  return finished(models);
}

async function finished(models: readonly Module[]): Promise<string[][]> {
  const texts = [];
  for (const model of models) {
    for (const parameter of model.parameters()) await gradientOf(parameter)?.data();
    texts.push(model.parameters().map((each) => bitsOf(gradientOf(each))));
    model.dispose();
  }
  return texts;
}

/** The expected gradients: each gradient is reduced by a separate all-reduce after all passes. */
async function oneByOne(given: Case): Promise<string[][]> {
  const groups = loopbackOver(backends.slice(0, given.ranks), 5000);
  const { reduction = "mean", plan } = given.options;
  const models = groups.map((group) => {
    const model = modelOn(group.backend, given);
    freeze(model, given.frozen);
    for (let i = 0; i < given.microbatches; i++) pass(model, given, given.microbatches * group.rank + i);
    if (given.delays === "step") for (let i = 0; i < given.microbatches; i++) backwardDw(model);
    for (const each of model.parameters()) {
      using _ = new Scope();
      if (each.mainGrad && each.grad) {
        add(each.mainGrad, each.grad, { out: each.mainGrad });
        each.zeroGrad();
      }
      const grad = gradientOf(each);
      if (!grad || !each.requiresGrad) continue;
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

/**
 * The events of a pass, in order: the completion of a gradient, by the index of its parameter; and a sum over all ranks, with its
 * dtype, its size, and whether it is in place.
 */
type Told = readonly ["ready", number] | readonly ["sum", WideDType, number, boolean];

/**
 * The expected events of a pass, or of a call of `backwardDw`, that completes the gradients of some parameters. Buckets are
 * formed in the order of `indices`; gradients become complete in the order of `ready`.
 */
function toldBy(
  parameters: readonly Parameter[],
  { indices, ready, bytes }: { indices: readonly number[]; ready: readonly number[]; bytes: number },
): readonly Told[] {
  const buckets: { readonly dtype: WideDType; readonly members: number[]; end: number; inPlace: boolean }[] =
    [];
  for (const i of indices) {
    const { mainGrad, value, shape } = parameters[i] as Parameter;
    const dtype = mainGrad ? "f32" : (value.dtype as WideDType);
    const each = dtype === "f32" ? 4 : 2;
    const size = shape.reduce((product, count) => product * count, 1);
    const last = buckets.at(-1);
    const begin = last ? Math.ceil((last.end * each) / 256) * 256 : 0;
    if (last?.dtype === dtype && begin + size * each <= bytes) {
      last.members.push(i);
      last.end = begin / each + size;
      last.inPlace = true;
    } else buckets.push({ dtype, members: [i], end: size, inPlace: mainGrad !== undefined });
  }
  const complete = new Set<number>();
  return ready.flatMap((number): readonly Told[] => {
    if (!indices.includes(number)) return [];
    complete.add(number);
    const told: Told[] = [["ready", number]];
    for (; buckets[0]?.members.every((each) => complete.has(each)); buckets.shift())
      told.push(["sum", buckets[0].dtype, buckets[0].end, buckets[0].inPlace]);
    return told;
  });
}

/** Weights that have both a `mainGrad` and a `grad`, in one common bucket, and in one bucket for each weight. */
const FUSED: readonly Case[] = (["bf16", "f32"] as const).flatMap((dtype) =>
  [{}, { bucketBytes: 1 }].map((options) => ({
    ...{ ranks: 2, dtype, fuses: true, fp8: false, tied: true, microbatches: 2 },
    ...{ frozen: [], options },
  })),
);
/** A ring of three ranks: the sum of three gradients depends on their order. */
const RING: Case = {
  ...{ ranks: 3, dtype: "f32", fuses: false, fp8: false, tied: false, microbatches: 1 },
  ...{ frozen: [], options: { plan: { algorithm: "ring" } } },
};

describe("data parallelism", () => {
  it("reduces each gradient independently of buckets, dtypes, microbatches and frozen parameters", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (given) => {
        // the splits of a ring depend on the full bucket, and determine its bits
        const whole =
          given.options.plan?.algorithm === "ring"
            ? { ...given, options: { ...given.options, bucketBytes: 1 } }
            : given;
        const [first, ...others] = await reduced(whole);
        expect(first).toEqual((await oneByOne(whole))[0]);
        for (const other of others) expect(other).toEqual(first);
      }),
      {
        numRuns: draws(25, FUSED.length + 3),
        seed: derivedSeed(11),
        examples: [...FUSED, RING].map((given) => [given]),
      },
    );
  });

  it("with f32 gradients equals one process that adds the gradients of the samples in rank order, to the bit", async () => {
    const given: Case = {
      ranks: 4,
      dtype: "f32",
      fuses: false,
      fp8: false,
      tied: false,
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

  it("reduces each bucket of bucketBytes as soon as it and all earlier buckets are complete", () => {
    fc.assert(
      fc.property(cases, (given) => {
        const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
        const model = modelOn(group.backend, given);
        freeze(model, given.frozen);
        const parameters = model.parameters();
        const told: Told[] = [];
        for (const [i, each] of parameters.entries())
          each.registerPostAccumulateGradHook(() => void told.push(["ready", i]));
        const allReduce = vi.spyOn(group, "allReduce").mockImplementation((x, options) => {
          told.push(["sum", x.dtype, x.size, options?.out === x]);
          return ProcessGroup.prototype.allReduce.call(group, x, options) as never;
        });
        using _parallel = new DataParallel(model, group, given.options);
        pass(model, given, 0);
        if (given.delays === "step") backwardDw(model);
        allReduce.mockRestore();
        const ready = told.flatMap(([what, number]) => (what === "ready" ? [number] : []));
        expect([...ready].sort((a, b) => a - b)).toEqual(
          parameters.flatMap(({ requiresGrad }, i) => (requiresGrad ? [i] : [])),
        );
        const bytes = given.options.bucketBytes ?? 25 * 2 ** 20;
        const indicesOf = (module: Module, delayed: boolean): readonly number[] =>
          module
            .parameters()
            .filter(({ requiresGrad, delayedGradients }) => requiresGrad && !!delayedGradients === delayed)
            .map((each) => parameters.indexOf(each));
        const calls = given.delays === "layers" ? [...model.layers].reverse() : [model];
        const expected = [
          indicesOf(model, false).toReversed(),
          ...calls.map((module) => indicesOf(module, true)),
        ].flatMap((indices) => toldBy(parameters, { indices, ready, bytes }));
        expect(told).toEqual(expected);
        model.dispose();
      }),
      { numRuns: draws(20, 12), seed: derivedSeed(12) },
    );
  });

  it.each([
    [0, 1],
    [64, 2],
  ])("takes 25 MiB together unless told otherwise: with %i elements more there are %i sums", (more, sums) => {
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    const count = (25 * 2 ** 20) / 4 / 2;
    const model = new Terms(group.backend, [[count], [count + more]]);
    const allReduce = vi.spyOn(group, "allReduce");
    {
      using _ = new DataParallel(model, group);
      using _scope = new Scope();
      const ones = differentiable([model.x, model.y], () => ({
        results: [zeros(group.backend, "f32", [1])],
        backward: () => [model.x, model.y].map(({ shape }) => zeros(group.backend, "f32", shape)),
      }));
      ones[0].backward();
    }
    expect(allReduce).toHaveBeenCalledTimes(sums);
    model.dispose();
  });

  it("does not reduce gradients inside noSync, nested or failed, nor after dispose()", () => {
    const given: Case = {
      ranks: 1,
      dtype: "f32",
      fuses: false,
      fp8: false,
      tied: false,
      microbatches: 1,
      frozen: [],
      options: {},
    };
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    const model = modelOn(group.backend, given);
    const allReduce = vi.spyOn(group, "allReduce");
    const sums = (): number => {
      allReduce.mockClear();
      pass(model, given, 0);
      return allReduce.mock.calls.length;
    };
    const parallel = new DataParallel(model, group);
    expect(sums()).toBe(1);
    parallel.noSync(() => {
      expect(sums()).toBe(0);
      expect(parallel.noSync(sums)).toBe(0);
      expect(sums()).toBe(0);
      expect(() =>
        parallel.noSync(() => {
          throw new RangeError("of the body");
        }),
      ).toThrow(RangeError);
      expect(sums()).toBe(0);
    });
    expect(sums()).toBe(1);
    expect(() =>
      parallel.noSync(() => {
        throw new RangeError("of the body");
      }),
    ).toThrow(RangeError);
    expect(sums()).toBe(1);
    parallel.dispose();
    parallel.dispose();
    expect(sums()).toBe(0);
    {
      using _ = new DataParallel(model, group);
      expect(sums()).toBe(1);
    }
    expect(sums()).toBe(0);
    model.dispose();
  });

  it.each([1, 2 ** 20])(
    "refuses a gradient of another type than its parameter's, in buckets of %i bytes",
    (bucketBytes) => {
      const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
      const model = new Terms(group.backend);
      {
        using _ = new DataParallel(model, group, { bucketBytes });
        using _scope = new Scope();
        const [sum] = differentiable([model.x, model.y], () => ({
          results: [zeros(group.backend, "f32", [1])],
          backward: () => [model.x, model.y].map(({ shape }) => zeros(group.backend, "bf16", shape)),
        }));
        expect(() => sum.backward()).toThrow(
          new DTypeError(
            "DataParallel: a gradient is bf16; the gradient of a f32 parameter must be f32, as on other ranks; return one from the custom operation",
          ),
        );
        expect(() => sum.backward()).toThrow(ArgumentError);
      }
      model.dispose();
    },
  );

  it("works after a failed pass, and with other frozen parameters in each pass", () => {
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    const { backend } = group;
    const model = new Terms(backend);
    const allReduce = vi.spyOn(group, "allReduce");
    {
      using _ = new DataParallel(model, group);
      using _scope = new Scope();
      const failing = differentiable([model.y], () => ({
        results: [zeros(backend, "f32", [ROWS, WIDTH])],
        backward: () => {
          throw new RangeError("of the pass");
        },
      }));
      const dy = sample(backend, 0, "f32");
      expect(() => functional.add(functional.add(failing[0], model.x), model.x).backward(dy)).toThrow(
        RangeError,
      );
      for (const frozen of [undefined, model.x, model.y]) {
        for (const each of [model.x, model.y]) {
          each.zeroGrad();
          each.requiresGrad = each !== frozen;
        }
        allReduce.mockClear();
        functional.add(model.x, model.y).backward(dy);
        const trained = [model.x, model.y].filter((each) => each !== frozen);
        expect(allReduce.mock.calls.map(([x]) => x.size)).toEqual([trained.length * ROWS * WIDTH]);
        for (const each of trained) expect(bitsOf(each.grad)).toBe(bitsOf(dy));
      }
    }
    model.dispose();
  });

  it("reduces gradients separately that share memory, such as those of both terms of a sum", async () => {
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

  it.each([
    [1, ["gradients of y", "gradients of x"]],
    [2 ** 20, ["gradients of y, x"]],
  ] as const)("names the gradients of a reduction, in buckets of %i bytes", (bucketBytes, names) => {
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    using model = new Terms(group.backend);
    using _parallel = new DataParallel(model, group, { bucketBytes });
    using _ = new Scope();
    const withSubject = vi.spyOn(group, "withSubject");
    functional.add(model.x, model.y).backward(sample(group.backend, 0, "f32"));
    expect(withSubject.mock.calls.map(([subject]) => subject)).toEqual(names);
  });

  it("fails the group with the name of a parameter that the pass did not reach", async () => {
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
    const ended = second.x.grad?.data() as Promise<unknown>;
    await expect(ended).rejects.toThrow(DistributedError);
    await expect(ended).rejects.toMatchObject({ failure: "aborted", rank: 0 });
    await expect(ended).rejects.toThrow(/did not reach x;/);
    for (const model of [first, second]) model.dispose();
  });

  it("fails the group if the pass reached a parameter but computed no gradient for it", () => {
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    const model = new Terms(group.backend);
    {
      using _ = new DataParallel(model, group);
      using _scope = new Scope();
      const [sum] = differentiable([model.x, model.y], () => ({
        results: [zeros(group.backend, "f32", [1])],
        backward: () => [zeros(group.backend, "f32", model.x.shape)],
      }));
      expect(() => sum.backward()).toThrow(/did not reach y;/);
    }
    model.dispose();
  });

  it.each([
    ["wide", undefined],
    ["with a scale of the tensor", new Float8CurrentScaling()],
    ["with scales of blocks", new MXFP8BlockScaling()],
    ["with scales of blocks and an amax", new NVFP4BlockScaling()],
  ])("copies the parameters of one rank to the others, %s, every tensor of each", async (_what, recipe) => {
    const groups = loopbackOver(backends.slice(0, 3), 5000);
    const models = groups.map(({ backend, rank }) => {
      const initMethod = normalInit(2 ** rank);
      const of = { dtype: "f32" as const, random: new RandomState(BigInt(rank)), initMethod };
      const make = (): Linear => new Linear(backend, WIDTH, WIDTH, of);
      const model = recipe ? quantizedModelInit({ recipe }, make) : make();
      model.bias?.tensor.write(new Float32Array(WIDTH).fill(rank));
      return model;
    });
    const all = () => models.map((model) => model.parameters().flatMap(({ value }) => membersOf(value)));
    const before = all().map((each) => each.map(bitsOf));
    for (const [i, group] of groups.entries()) broadcastParameters(models[i] as Linear, group, 1);
    for (const each of all().flat()) await each.data();
    const [zero, one, two] = all().map((each) => each.map(bitsOf));
    expect(one).toEqual(before[1]);
    expect([zero, two]).toEqual([one, one]);
    for (const [i, bits] of (one as string[]).entries()) expect(bits).not.toBe(before[0]?.[i]);
    for (const model of models) model.dispose();
  });

  it("copies the parameters of rank 0 by default", async () => {
    const groups = loopbackOver(backends.slice(0, 2), 5000);
    const models = groups.map(
      ({ backend, rank }) => new Linear(backend, WIDTH, WIDTH, { random: new RandomState(BigInt(rank)) }),
    );
    const before = bitsOf(models[0]?.weight.tensor);
    for (const [i, group] of groups.entries()) broadcastParameters(models[i] as Linear, group);
    for (const { weight } of models) await weight.tensor.data();
    expect(models.map(({ weight }) => bitsOf(weight.tensor))).toEqual([before, before]);
    for (const model of models) model.dispose();
  });

  it("refuses anything but a module and a group of its backend, and invalid options", async () => {
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
    for (const [module, group, options] of wrong as [never, never, never][]) {
      expect(() => new DataParallel(module, group, options)).toThrow(/^DataParallel: /);
      expect(() => new DataParallel(module, group, options)).toThrow(ArgumentError);
      if (options === undefined)
        expect(() => broadcastParameters(module, group)).toThrow(/^broadcastParameters: /);
    }
    using parallel = new DataParallel(model, zero);
    expect(() => parallel.noSync(async () => {})).toThrow(ArgumentError);
    expect(() => parallel.noSync(undefined as never)).toThrow(ArgumentError);
    expect(() => broadcastParameters(model, zero, 2)).toThrow(ArgumentError);
    parallel.dispose();
    fullyShard(model, zero);
    expect(() => broadcastParameters(model, zero)).toThrow(/weight is divided by fullyShard/);
    model.dispose();
  });

  it("refuses a second reduction of a gradient over the same ranks, and any of a part of it", async () => {
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    const inner = new Linear(group.backend, WIDTH, WIDTH);
    const outer = new Sequential(group.backend, inner, new Linear(group.backend, WIDTH, WIDTH));
    const { dp: other } = group.split({ dp: 1 });
    const refused = (body: () => unknown, reason: RegExp): void => {
      expect(body).toThrow(ArgumentError);
      expect(body).toThrow(reason);
    };
    const first = new DataParallel(inner, group);
    refused(() => new DataParallel(inner, group), /^DataParallel: weight .*already/);
    refused(() => new DataParallel(outer, group), /^DataParallel: 0\.weight .*already/);
    refused(() => fullyShard(outer, group), /^fullyShard: 0\.weight .*DataParallel/);
    refused(() => fullyShard(outer, other), /^fullyShard: 0\.weight .*DataParallel/);
    new DataParallel(outer, other).dispose(); // another group, as along two axes of a mesh
    first.dispose();
    const second = new DataParallel(outer, group);
    first.dispose();
    refused(() => new DataParallel(inner, group), /^DataParallel: weight .*already/);
    second.dispose();
    fullyShard(inner, group);
    refused(() => new DataParallel(outer, group), /^DataParallel: 0\.weight .*fullyShard/);
    refused(() => new DataParallel(outer, other), /^DataParallel: 0\.weight .*fullyShard/);
    outer.dispose();
  });

  it("refuses a layer that another DataParallel reduces, after any sequence of wrapping and disposing", () => {
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    const groups = [group, group.split({ dp: 1 }).dp];
    const inner = new Linear(group.backend, WIDTH, WIDTH);
    const other = new Linear(group.backend, WIDTH, WIDTH);
    const outer = new Sequential(group.backend, inner, other);
    // the layers of each module
    const modules = [
      { module: inner, layers: [inner] },
      { module: other, layers: [other] },
      { module: outer, layers: [inner, other] },
    ] as const;
    const step = fc.oneof(
      fc.record({ module: fc.nat(2), over: fc.nat(1) }),
      fc.record({ dispose: fc.nat(7) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        const made: { readonly parallel: DataParallel; readonly keys: readonly string[]; live: boolean }[] =
          [];
        for (const each of steps) {
          if ("dispose" in each) {
            const one = made[each.dispose % Math.max(made.length, 1)];
            one?.parallel.dispose();
            if (one) one.live = false;
            continue;
          }
          const { module, layers } = modules[each.module] as (typeof modules)[number];
          const keys = layers.map((layer) => `${layer === inner ? 0 : 1} over ${each.over}`);
          const taken = made.some((one) => one.live && one.keys.some((key) => keys.includes(key)));
          const make = () => new DataParallel(module, groups[each.over] as ProcessGroup);
          if (taken) expect(make).toThrow(/another DataParallel already reduces/);
          else made.push({ parallel: make(), keys, live: true });
        }
        const isReduced = (layer: number) =>
          made.some(({ live, keys }) => live && keys.some((key) => key.startsWith(`${layer} `)));
        for (const [i, { module }] of modules.slice(0, 2).entries())
          if (isReduced(i)) expect(() => fullyShard(module, group)).toThrow(/DataParallel/);
        for (const { parallel } of made) parallel.dispose();
      }),
      { numRuns: draws(100, 40) },
    );
    outer.dispose();
  });
});
