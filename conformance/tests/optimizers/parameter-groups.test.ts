/** An optimizer with parameter groups is equal to a separate optimizer for each set of options. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  AdamW,
  type AdamWOptions,
  ArgumentError,
  Linear,
  Module,
  type Optimizer,
  type Parameter,
  RandomState,
  Scope,
  SGD,
  type SGDOptions,
} from "../../../src/index.js";
import { loadCheckpoint, saveCheckpoint } from "../../../src/io/index.js";
import { drawnTensor } from "../harness/drawn-tensor.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const SIZE = 16;
const STEPS = 3;

class Pair extends Module {
  readonly first: Linear;
  readonly second: Linear;

  constructor(seed: number) {
    super(backend());
    const options = { random: new RandomState(BigInt(seed)) };
    this.first = this.addModule("first", new Linear(backend(), SIZE, SIZE, options));
    this.second = this.addModule("second", new Linear(backend(), SIZE, SIZE, options));
  }

  /** Gives all parameters a gradient. */
  train(step: number): void {
    const x = drawnTensor(backend(), step, [SIZE, SIZE], "bf16");
    this.second.forward(this.first.forward(x)).backward(drawnTensor(backend(), -step, [SIZE, SIZE], "bf16"));
  }
}

const NAMES = ["first.weight", "first.bias", "second.weight", "second.bias"] as const;

/** Patterns, and whether they match, as a second version of the rule. */
const PATTERNS: Readonly<Record<string, (name: string) => boolean>> = {
  "*": () => true,
  "*.bias": (name) => name.endsWith(".bias"),
  "first.*": (name) => name.startsWith("first."),
  "second.weight": (name) => name === "second.weight",
  "?irst.weight": (name) => name === "first.weight",
};

const fewValues = (...values: number[]) => fc.option(fc.constantFrom(...values), { nil: undefined });
const pattern = fc.constantFrom(...Object.keys(PATTERNS));
const sgdFields = {
  learningRate: fewValues(0.25, 0.5),
  momentum: fewValues(0, 0.5),
  weightDecay: fewValues(0, 0.125),
};
const adamFields = {
  learningRate: fewValues(0.25, 0.5),
  beta1: fewValues(0.5),
  beta2: fewValues(0.75),
  eps: fewValues(0.5),
  weightDecay: fewValues(0, 0.125),
};
const groupsOf = <T>(fields: { [K in keyof T]: fc.Arbitrary<T[K]> }) =>
  fc.array(
    fc.record({ parameters: pattern, ...fields } as { [K in keyof T]: fc.Arbitrary<T[K]> } & {
      parameters: fc.Arbitrary<string>;
    }),
    { maxLength: 4 },
  );

/** The values, masters and buffers of all parameters, by name. */
function stateOf(optimizers: readonly Optimizer[]): unknown {
  const slots = optimizers.flatMap((optimizer) => [...optimizer.slots]);
  return NAMES.map((name) => {
    const slot = slots.find(([slotName]) => slotName === name)?.[1];
    const buffers = [...(slot?.buffers ?? [])].map(([key, buffer]) => [key, buffer.dataSync()]);
    return [name, slot?.parameter.tensor.dataSync(), slot?.master.dataSync(), buffers, slot?.steps];
  });
}

type ParameterGroup = { readonly parameters: string } & Readonly<Record<string, number | string | undefined>>;

/** The options of one parameter: each from the last group that sets it. */
function mergeGroups(base: object, groups: readonly ParameterGroup[], name: string): Record<string, number> {
  const options: Record<string, number> = { ...base };
  for (const { parameters, ...groupOptions } of groups)
    if (PATTERNS[parameters]?.(name))
      for (const [key, value] of Object.entries(groupOptions))
        if (value !== undefined) options[key] = Number(value);
  return options;
}

function expectSameSteps(
  make: (optimized: Module | ReadonlyMap<string, Parameter>, options: object) => Optimizer,
  base: object,
  groups: readonly ParameterGroup[],
): void {
  using _ = new Scope();
  using together = new Pair(1);
  using singlePair = new Pair(1);
  using optimizer = make(together, { ...base, groups });
  const parameters = singlePair.namedParameters();
  const singleOptimizers = NAMES.map((name) =>
    make(new Map([[name, parameters.get(name) as Parameter]]), mergeGroups(base, groups, name)),
  );
  for (let step = 1; step <= STEPS; step++) {
    for (const model of [together, singlePair]) model.train(step);
    for (const disposable of [optimizer, ...singleOptimizers]) {
      disposable.step();
      disposable.zeroGrad();
    }
    expect(stateOf([optimizer])).toEqual(stateOf(singleOptimizers));
  }
  for (const optimizer of singleOptimizers) optimizer.dispose();
}

describe("groups of parameters", () => {
  it("have the steps of an optimizer of their own, with SGD", () => {
    const property = fc.property(groupsOf(sgdFields), fewValues(0.5), (groups, momentum) => {
      const make = (optimized: Module | ReadonlyMap<string, Parameter>, options: object) =>
        new SGD(optimized, options as SGDOptions);
      expectSameSteps(make, { learningRate: 0.125, ...(momentum === undefined ? {} : { momentum }) }, groups);
    });
    fc.assert(property, { numRuns: draws(20, 8) });
  });

  it("have the steps of an optimizer of their own, with AdamW", () => {
    const property = fc.property(groupsOf(adamFields), fc.boolean(), (groups, decoupled) => {
      const make = (optimized: Module | ReadonlyMap<string, Parameter>, options: object) =>
        new AdamW(optimized, options as AdamWOptions);
      expectSameSteps(
        (optimized, options) => make(optimized, { ...options, decoupled }),
        { learningRate: 0.125, weightDecay: 0.0625 },
        groups,
      );
    });
    fc.assert(property, { numRuns: draws(20, 8) });
  });

  it("follow options that a schedule replaces, and groups that it replaces", () => {
    using _ = new Scope();
    using model = new Pair(1);
    using optimizer = new SGD(model, {
      learningRate: 0.5,
      groups: [{ parameters: "*.bias", learningRate: 0 }],
    });
    const changedSlots = () => {
      const mastersBefore = NAMES.map((name) => String(optimizer.slots.get(name)?.master.dataSync()));
      model.train(1);
      optimizer.step();
      optimizer.zeroGrad();
      return NAMES.filter(
        (name, i) => String(optimizer.slots.get(name)?.master.dataSync()) !== mastersBefore[i],
      );
    };
    expect(changedSlots()).toEqual(["first.weight", "second.weight"]);
    optimizer.options = { ...optimizer.options, learningRate: 0 };
    expect(changedSlots()).toEqual([]);
    optimizer.options = { ...optimizer.options, groups: [{ parameters: "first.*", learningRate: 0.5 }] };
    expect(changedSlots()).toEqual(["first.weight", "first.bias"]);
    const undefinedRate = { parameters: "*.weight", learningRate: undefined };
    optimizer.options = {
      ...optimizer.options,
      groups: [...(optimizer.options.groups ?? []), undefinedRate],
    };
    expect(changedSlots()).toEqual(["first.weight", "first.bias"]);
    optimizer.options = { ...optimizer.options, groups: undefined };
    expect(changedSlots()).toEqual([]);
  });

  it("are in one checkpoint", async () => {
    const folder = await mkdtemp(join(tmpdir(), "lockstep-"));
    const path = join(folder, "run.safetensors");
    const options: AdamWOptions = { learningRate: 0.25, groups: [{ parameters: "*.bias", beta1: 0.5 }] };
    const make = (seed: number) => {
      const module = new Pair(seed);
      return { module, optimizer: new AdamW(module, options) };
    };
    const [firstPair, secondPair] = [make(1), make(2)];
    const step = ({ module, optimizer }: typeof firstPair, number: number): void => {
      using _ = new Scope();
      module.train(number);
      optimizer.step();
      optimizer.zeroGrad();
    };
    step(firstPair, 1);
    await saveCheckpoint(path, firstPair);
    await loadCheckpoint(path, secondPair);
    for (const pair of [firstPair, secondPair]) step(pair, 2);
    expect(stateOf([secondPair.optimizer])).toEqual(stateOf([firstPair.optimizer]));
    for (const { module, optimizer } of [firstPair, secondPair]) {
      optimizer.dispose();
      module.dispose();
    }
    await rm(folder, { recursive: true });
  });

  it("are refused without a parameter, or with options that do not go together, and keep no memory then", () => {
    using model = new Pair(1);
    const groups = (group: object) => () =>
      new SGD(model, { learningRate: 1, groups: [group as { parameters: string }] });
    const live = backend().memoryUse().live;
    const missing = { learningRate: 1, groups: [{ parameters: "third.*" }] };
    for (const Each of [SGD, AdamW])
      expect(() => new Each(model, missing), Each.name).toThrow(/no parameter matches/);
    expect(groups({ parameters: "*.bias", nesterov: true })).toThrow(ArgumentError);
    expect(groups({ parameters: "*", beta1: 1 })).toThrow(ArgumentError);
    expect(groups({ learningRate: 1 })).toThrow(ArgumentError);
    expect(backend().memoryUse().live).toBe(live);
  });

  it("are refused as well if they replace others, before the step has changed a parameter", () => {
    const base = { learningRate: 0.5, groups: [{ parameters: "*.bias", learningRate: 0.25 }] };
    const invalidGroups: readonly (readonly [group: ParameterGroup, message: RegExp])[] = [
      [{ parameters: "third.*" }, /no parameter matches the group "third\.\*"/],
      [{ parameters: "*.bias", learningRate: -1 }, /learningRate/],
      [{ parameters: "*.bias", rate: 1 }, /rate/],
    ];
    const makers = [SGD, AdamW] as readonly (new (model: Module, options: typeof base) => SGD | AdamW)[];
    for (const Each of makers)
      for (const [group, message] of invalidGroups) {
        using _ = new Scope();
        using model = new Pair(1);
        using optimizer = new Each(model, base);
        const step = (): void => {
          model.train(1);
          optimizer.step();
          optimizer.zeroGrad();
        };
        step();
        const state = stateOf([optimizer]);
        // a second group: the parameters that a step updates before it have valid options
        const groups = [...base.groups, group as (typeof base.groups)[number]];
        optimizer.options = { ...optimizer.options, groups };
        expect(step, `${Each.name} ${JSON.stringify(group)}`).toThrow(message);
        expect(stateOf([optimizer])).toEqual(state);
        optimizer.zeroGrad();
        optimizer.options = { ...optimizer.options, groups: base.groups };
        step();
        expect(stateOf([optimizer])).not.toEqual(state);
      }
  });
});
