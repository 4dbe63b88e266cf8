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
  readonly isTied: boolean;
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
  isTied: fc.boolean(),
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
  const fusedOptions = { dtype, fuseWgradAccumulation: fuses, random: new RandomState(5n) };
  const options = { ...fusedOptions, delayWgradCompute: delays !== undefined };
  const model = new Layers(backend, [
    new Linear(backend, WIDTH, WIDTH, options),
    new LayerNormMLP(backend, WIDTH, 2 * WIDTH, options),
    new Linear(backend, WIDTH, WIDTH, { ...options, bias: false }),
  ]);
  if (fuses)
    for (const [name, parameter] of model.namedParameters())
      if (name.toLowerCase().endsWith("weight") && parameter.shape.length === 2)
        parameter.mainGrad = persistent(zeros(backend, "f32", parameter.shape));
  return model;
}

function sample(backend: Backend, number: number, dtype: WideDType): Tensor<WideDType> {
  const values = normal({ seed: 7n, offset: BigInt(number * ROWS * WIDTH) }, ROWS * WIDTH, 1);
  const x = tensor(backend, values, [ROWS, WIDTH]);
  return dtype === "f32" ? x : (encode(x, { format: "bf16" }) as Tensor<WideDType>);
}

function freeze(model: Module, frozen: readonly boolean[]): void {
  for (const [i, parameter] of model.parameters().entries()) parameter.requiresGrad = !frozen[i];
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
    const initMethod = constantInit(1);
    this.x = this.parameter("x", x, initMethod);
    this.y = this.parameter("y", y, initMethod);
  }
}

/** The backward pass of one microbatch. */
function pass(model: Layers, { dtype, fp8, isTied, delays }: Case, number: number): void {
  using _ = new Scope();
  const x = sample(model.backend, number, dtype);
  const rows = (): Variable => {
    const weight = model.parameters().at(-1) as Parameter;
    const ids = Int32Array.from({ length: ROWS }, (_, i) => (i * number + 3) % WIDTH);
    return functional.embedding(weight, tensor(model.backend, ids, [ROWS], "i32"));
  };
  const forward = (): Variable => (isTied ? functional.add(model.forward(x), rows()) : model.forward(x));
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
async function reduceByDataParallel(testCase: Case): Promise<string[][]> {
  const groups = loopbackOver(backends.slice(0, testCase.ranks), 5000);
  const models = groups.map((group) => {
    const model = modelOn(group.backend, testCase);
    freeze(model, testCase.frozen);
    using parallel = new DataParallel(model, group, testCase.options);
    const numbers = Array.from(
      { length: testCase.microbatches },
      (_, i) => testCase.microbatches * group.rank + i,
    );
    parallel.noSync(() => {
      for (const number of numbers.slice(0, -1)) pass(model, testCase, number);
    });
    pass(model, testCase, numbers.at(-1) as number);
    if (testCase.delays === "step") {
      parallel.noSync(() => {
        for (const _ of numbers.slice(0, -1)) backwardDw(model);
      });
      backwardDw(model);
    }
    return model;
  });
  return gradientsOfAll(models);
}

async function gradientsOfAll(models: readonly Module[]): Promise<string[][]> {
  const texts = [];
  for (const model of models) {
    for (const parameter of model.parameters()) await gradientOf(parameter)?.data();
    texts.push(model.parameters().map((parameter) => bitsOf(gradientOf(parameter))));
    model.dispose();
  }
  return texts;
}

/** The expected gradients: each gradient is reduced by a separate all-reduce after all passes. */
async function addOneByOne(testCase: Case): Promise<string[][]> {
  const groups = loopbackOver(backends.slice(0, testCase.ranks), 5000);
  const { reduction = "mean", plan } = testCase.options;
  const models = groups.map((group) => {
    const model = modelOn(group.backend, testCase);
    freeze(model, testCase.frozen);
    for (let i = 0; i < testCase.microbatches; i++)
      pass(model, testCase, testCase.microbatches * group.rank + i);
    if (testCase.delays === "step") for (let i = 0; i < testCase.microbatches; i++) backwardDw(model);
    for (const parameter of model.parameters()) {
      using _ = new Scope();
      if (parameter.mainGrad && parameter.grad) {
        add(parameter.mainGrad, parameter.grad, { out: parameter.mainGrad });
        parameter.zeroGrad();
      }
      const grad = gradientOf(parameter);
      if (!grad || !parameter.requiresGrad) continue;
      const sum = group.allReduce(grad.clone(), { plan });
      grad.paste(
        reduction === "mean" ? (scaled(sum, 1 / group.size, { outDtype: sum.dtype }) as never) : sum,
        0,
      );
    }
    return model;
  });
  return gradientsOfAll(models);
}

/**
 * The events of a pass, in order: the completion of a gradient, by the index of its parameter; and a sum over all ranks, with its
 * dtype, its size, and whether it is in place.
 */
type Event = readonly ["ready", number] | readonly ["sum", WideDType, number, boolean];

/**
 * The expected events of a pass, or of a call of `backwardDw`, that completes the gradients of some parameters. Buckets are
 * formed in the order of `indices`; gradients become complete in the order of `ready`.
 */
function eventsOf(
  parameters: readonly Parameter[],
  { indices, ready, bytes }: { indices: readonly number[]; ready: readonly number[]; bytes: number },
): readonly Event[] {
  const buckets: { readonly dtype: WideDType; readonly members: number[]; end: number; inPlace: boolean }[] =
    [];
  for (const i of indices) {
    const { mainGrad, value, shape } = parameters[i] as Parameter;
    const dtype = mainGrad ? "f32" : (value.dtype as WideDType);
    const elementBytes = dtype === "f32" ? 4 : 2;
    const size = shape.reduce((product, count) => product * count, 1);
    const last = buckets.at(-1);
    const begin = last ? Math.ceil((last.end * elementBytes) / 256) * 256 : 0;
    if (last?.dtype === dtype && begin + size * elementBytes <= bytes) {
      last.members.push(i);
      last.end = begin / elementBytes + size;
      last.inPlace = true;
    } else buckets.push({ dtype, members: [i], end: size, inPlace: mainGrad !== undefined });
  }
  const complete = new Set<number>();
  return ready.flatMap((number): readonly Event[] => {
    if (!indices.includes(number)) return [];
    complete.add(number);
    const events: Event[] = [["ready", number]];
    for (; buckets[0]?.members.every((member) => complete.has(member)); buckets.shift())
      events.push(["sum", buckets[0].dtype, buckets[0].end, buckets[0].inPlace]);
    return events;
  });
}

/** Weights that have both a `mainGrad` and a `grad`, in one common bucket, and in one bucket for each weight. */
const FUSED: readonly Case[] = (["bf16", "f32"] as const).flatMap((dtype) =>
  [{}, { bucketBytes: 1 }].map((options) => ({
    ...{ ranks: 2, dtype, fuses: true, fp8: false, isTied: true, microbatches: 2 },
    ...{ frozen: [], options },
  })),
);
/** A ring of three ranks: the sum of three gradients depends on their order. */
const RING: Case = {
  ...{ ranks: 3, dtype: "f32", fuses: false, fp8: false, isTied: false, microbatches: 1 },
  ...{ frozen: [], options: { plan: { algorithm: "ring" } } },
};

describe("data parallelism", () => {
  it("reduces each gradient independently of buckets, dtypes, microbatches and frozen parameters", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (testCase) => {
        // the splits of a ring depend on the full bucket, and determine its bits
        const wholeCase =
          testCase.options.plan?.algorithm === "ring"
            ? { ...testCase, options: { ...testCase.options, bucketBytes: 1 } }
            : testCase;
        const [firstRank, ...otherRanks] = await reduceByDataParallel(wholeCase);
        expect(firstRank).toEqual((await addOneByOne(wholeCase))[0]);
        for (const otherRank of otherRanks) expect(otherRank).toEqual(firstRank);
      }),
      {
        numRuns: draws(25, FUSED.length + 3),
        seed: derivedSeed(11),
        examples: [...FUSED, RING].map((testCase) => [testCase]),
      },
    );
  });

  it("with f32 gradients equals one process that adds the gradients of the samples in rank order, to the bit", async () => {
    const testCase: Case = {
      ranks: 4,
      dtype: "f32",
      fuses: false,
      fp8: false,
      isTied: false,
      microbatches: 1,
      frozen: [],
      options: { reduction: "sum", bucketBytes: 5000 },
    };
    const [ranks] = await reduceByDataParallel(testCase);
    const model = modelOn(backends[0] as Backend, testCase);
    for (let rank = 0; rank < 4; rank++) pass(model, testCase, rank);
    expect(ranks).toEqual(model.parameters().map((parameter) => bitsOf(parameter.grad)));
    model.dispose();
  });

  it("reduces each bucket of bucketBytes as soon as it and all earlier buckets are complete", () => {
    fc.assert(
      fc.property(cases, (testCase) => {
        const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
        const model = modelOn(group.backend, testCase);
        freeze(model, testCase.frozen);
        const parameters = model.parameters();
        const events: Event[] = [];
        for (const [i, parameter] of parameters.entries())
          parameter.registerPostAccumulateGradHook(() => void events.push(["ready", i]));
        const allReduce = vi.spyOn(group, "allReduce").mockImplementation((x, options) => {
          events.push(["sum", x.dtype, x.size, options?.out === x]);
          return ProcessGroup.prototype.allReduce.call(group, x, options) as never;
        });
        using _parallel = new DataParallel(model, group, testCase.options);
        pass(model, testCase, 0);
        if (testCase.delays === "step") backwardDw(model);
        allReduce.mockRestore();
        const ready = events.flatMap(([kind, number]) => (kind === "ready" ? [number] : []));
        expect([...ready].sort((a, b) => a - b)).toEqual(
          parameters.flatMap(({ requiresGrad }, i) => (requiresGrad ? [i] : [])),
        );
        const bytes = testCase.options.bucketBytes ?? 25 * 2 ** 20;
        const indicesOf = (module: Module, isDelayed: boolean): readonly number[] =>
          module
            .parameters()
            .filter(({ requiresGrad, delayedGradients }) => requiresGrad && !!delayedGradients === isDelayed)
            .map((parameter) => parameters.indexOf(parameter));
        const calls = testCase.delays === "layers" ? [...model.layers].reverse() : [model];
        const expected = [
          indicesOf(model, false).toReversed(),
          ...calls.map((module) => indicesOf(module, true)),
        ].flatMap((indices) => eventsOf(parameters, { indices, ready, bytes }));
        expect(events).toEqual(expected);
        model.dispose();
      }),
      { numRuns: draws(20, 12), seed: derivedSeed(12) },
    );
  });

  it.each([
    [0, 1],
    [64, 2],
  ])(
    "takes 25 MiB together unless told otherwise: with %i elements more there are %i sums",
    (extraElements, sums) => {
      const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
      const count = (25 * 2 ** 20) / 4 / 2;
      const model = new Terms(group.backend, [[count], [count + extraElements]]);
      const allReduce = vi.spyOn(group, "allReduce");
      {
        using _ = new DataParallel(model, group);
        using _scope = new Scope();
        const sumOfOnes = differentiable([model.x, model.y], () => ({
          results: [zeros(group.backend, "f32", [1])],
          backward: () => [model.x, model.y].map(({ shape }) => zeros(group.backend, "f32", shape)),
        }));
        sumOfOnes[0].backward();
      }
      expect(allReduce).toHaveBeenCalledTimes(sums);
      model.dispose();
    },
  );

  it("does not reduce gradients inside noSync, nested or failed, nor after dispose()", () => {
    const testCase: Case = {
      ranks: 1,
      dtype: "f32",
      fuses: false,
      fp8: false,
      isTied: false,
      microbatches: 1,
      frozen: [],
      options: {},
    };
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    const model = modelOn(group.backend, testCase);
    const allReduce = vi.spyOn(group, "allReduce");
    const sums = (): number => {
      allReduce.mockClear();
      pass(model, testCase, 0);
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
      const failingResult = differentiable([model.y], () => ({
        results: [zeros(backend, "f32", [ROWS, WIDTH])],
        backward: () => {
          throw new RangeError("of the pass");
        },
      }));
      const dy = sample(backend, 0, "f32");
      expect(() => functional.add(functional.add(failingResult[0], model.x), model.x).backward(dy)).toThrow(
        RangeError,
      );
      for (const frozenLayer of [undefined, model.x, model.y]) {
        for (const layer of [model.x, model.y]) {
          layer.zeroGrad();
          layer.requiresGrad = layer !== frozenLayer;
        }
        allReduce.mockClear();
        functional.add(model.x, model.y).backward(dy);
        const trainedLayers = [model.x, model.y].filter((layer) => layer !== frozenLayer);
        expect(allReduce.mock.calls.map(([x]) => x.size)).toEqual([trainedLayers.length * ROWS * WIDTH]);
        for (const layer of trainedLayers) expect(bitsOf(layer.grad)).toBe(bitsOf(dy));
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
    const [zero, secondModel] = await gradientsOfAll(models);
    using _ = new Scope();
    const backend = backends[0] as Backend;
    const sum = bitsOf(add(sample(backend, 0, "f32"), sample(backend, 1, "f32")));
    expect([zero, secondModel]).toEqual([
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
    const [firstTerms, secondTerms] = groups.map(({ backend }) => new Terms(backend)) as [Terms, Terms];
    using _first = new DataParallel(firstTerms, groups[0] as ProcessGroup);
    using _second = new DataParallel(secondTerms, groups[1] as ProcessGroup);
    {
      using _ = new Scope();
      functional.add(secondTerms.x, secondTerms.y).backward(sample(secondTerms.backend, 0, "f32"));
      const dy = sample(firstTerms.backend, 0, "f32");
      expect(() => functional.add(firstTerms.y, firstTerms.y).backward(dy)).toThrow(/did not reach x;/);
    }
    const rejectedRead = secondTerms.x.grad?.data() as Promise<unknown>;
    await expect(rejectedRead).rejects.toThrow(DistributedError);
    await expect(rejectedRead).rejects.toMatchObject({ failure: "aborted", rank: 0 });
    await expect(rejectedRead).rejects.toThrow(/did not reach x;/);
    for (const model of [firstTerms, secondTerms]) model.dispose();
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
      const options = { dtype: "f32" as const, random: new RandomState(BigInt(rank)), initMethod };
      const make = (): Linear => new Linear(backend, WIDTH, WIDTH, options);
      const model = recipe ? quantizedModelInit({ recipe }, make) : make();
      model.bias?.tensor.write(new Float32Array(WIDTH).fill(rank));
      return model;
    });
    const tensorsOfModels = () =>
      models.map((model) => model.parameters().flatMap(({ value }) => membersOf(value)));
    const bitsBefore = tensorsOfModels().map((tensors) => tensors.map(bitsOf));
    for (const [i, group] of groups.entries()) broadcastParameters(models[i] as Linear, group, 1);
    for (const tensor of tensorsOfModels().flat()) await tensor.data();
    const [zero, secondModel, thirdModel] = tensorsOfModels().map((tensors) => tensors.map(bitsOf));
    expect(secondModel).toEqual(bitsBefore[1]);
    expect([zero, thirdModel]).toEqual([secondModel, secondModel]);
    for (const [i, bits] of (secondModel as string[]).entries()) expect(bits).not.toBe(bitsBefore[0]?.[i]);
    for (const model of models) model.dispose();
  });

  it("copies the parameters of rank 0 by default", async () => {
    const groups = loopbackOver(backends.slice(0, 2), 5000);
    const models = groups.map(
      ({ backend, rank }) => new Linear(backend, WIDTH, WIDTH, { random: new RandomState(BigInt(rank)) }),
    );
    const bitsBefore = bitsOf(models[0]?.weight.tensor);
    for (const [i, group] of groups.entries()) broadcastParameters(models[i] as Linear, group);
    for (const { weight } of models) await weight.tensor.data();
    expect(models.map(({ weight }) => bitsOf(weight.tensor))).toEqual([bitsBefore, bitsBefore]);
    for (const model of models) model.dispose();
  });

  it("refuses anything but a module and a group of its backend, and invalid options", async () => {
    const groups = loopbackOver(backends.slice(0, 2), 5000);
    const [zero, member] = groups as [ProcessGroup, ProcessGroup];
    const model = new Linear(zero.backend, WIDTH, WIDTH);
    const invalidArguments: readonly unknown[][] = [
      [undefined, zero],
      [model, undefined],
      [model, member],
      [model, zero, { bucketBytes: 0 }],
      [model, zero, { bucketBytes: Number.NaN }],
      [model, zero, { reduction: "max" }],
      [model, zero, { plan: { algorithm: "tree" } }],
      [model, zero, { buckets: 1 }],
    ];
    for (const [module, group, options] of invalidArguments as [never, never, never][]) {
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
    const { dp: otherGroup } = group.split({ dp: 1 });
    const expectRefusal = (body: () => unknown, reason: RegExp): void => {
      expect(body).toThrow(ArgumentError);
      expect(body).toThrow(reason);
    };
    const innerParallel = new DataParallel(inner, group);
    expectRefusal(() => new DataParallel(inner, group), /^DataParallel: weight .*already/);
    expectRefusal(() => new DataParallel(outer, group), /^DataParallel: 0\.weight .*already/);
    expectRefusal(() => fullyShard(outer, group), /^fullyShard: 0\.weight .*DataParallel/);
    expectRefusal(() => fullyShard(outer, otherGroup), /^fullyShard: 0\.weight .*DataParallel/);
    new DataParallel(outer, otherGroup).dispose(); // another group, as along two axes of a mesh
    innerParallel.dispose();
    const outerParallel = new DataParallel(outer, group);
    innerParallel.dispose();
    expectRefusal(() => new DataParallel(inner, group), /^DataParallel: weight .*already/);
    outerParallel.dispose();
    fullyShard(inner, group);
    expectRefusal(() => new DataParallel(outer, group), /^DataParallel: 0\.weight .*fullyShard/);
    expectRefusal(() => new DataParallel(outer, otherGroup), /^DataParallel: 0\.weight .*fullyShard/);
    outer.dispose();
  });

  it("refuses a layer that another DataParallel reduces, after any sequence of wrapping and disposing", () => {
    const [group] = loopbackOver(backends.slice(0, 1), 5000) as [ProcessGroup];
    const groups = [group, group.split({ dp: 1 }).dp];
    const inner = new Linear(group.backend, WIDTH, WIDTH);
    const otherLayer = new Linear(group.backend, WIDTH, WIDTH);
    const outer = new Sequential(group.backend, inner, otherLayer);
    // the layers of each module
    const modules = [
      { module: inner, layers: [inner] },
      { module: otherLayer, layers: [otherLayer] },
      { module: outer, layers: [inner, otherLayer] },
    ] as const;
    const step = fc.oneof(
      fc.record({ module: fc.nat(2), over: fc.nat(1) }),
      fc.record({ dispose: fc.nat(7) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        const subjects: {
          readonly parallel: DataParallel;
          readonly keys: readonly string[];
          live: boolean;
        }[] = [];
        for (const step of steps) {
          if ("dispose" in step) {
            const subject = subjects[step.dispose % Math.max(subjects.length, 1)];
            subject?.parallel.dispose();
            if (subject) subject.live = false;
            continue;
          }
          const { module, layers } = modules[step.module] as (typeof modules)[number];
          const keys = layers.map((layer) => `${layer === inner ? 0 : 1} over ${step.over}`);
          const isTaken = subjects.some(
            (other) => other.live && other.keys.some((key) => keys.includes(key)),
          );
          const make = () => new DataParallel(module, groups[step.over] as ProcessGroup);
          if (isTaken) expect(make).toThrow(/another DataParallel already reduces/);
          else subjects.push({ parallel: make(), keys, live: true });
        }
        const isReduced = (layer: number) =>
          subjects.some(({ live, keys }) => live && keys.some((key) => key.startsWith(`${layer} `)));
        for (const [i, { module }] of modules.slice(0, 2).entries())
          if (isReduced(i)) expect(() => fullyShard(module, group)).toThrow(/DataParallel/);
        for (const { parallel } of subjects) parallel.dispose();
      }),
      { numRuns: draws(100, 40) },
    );
    outer.dispose();
  });
});
