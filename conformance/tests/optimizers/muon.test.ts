/** Muon is bitwise equal to its definition, and a run from a checkpoint to an uninterrupted one. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, ShapeError, UnsupportedError } from "../../../src/errors.js";
import { fullyShard, loopbackGroup } from "../../../src/index.js";
import { loadCheckpoint, saveCheckpoint } from "../../../src/io/index.js";
import { Linear } from "../../../src/modules/linear.js";
import { Module } from "../../../src/modules/module.js";
import { Parameter } from "../../../src/modules/parameter.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import { Muon, type MuonOptions } from "../../../src/optimizers/muon.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { wideType } from "../../arbitraries/wide.js";
import type { Matrix } from "../../oracle/training/matrix.js";
import * as oracle from "../../oracle/training/newton-schulz.js";
import { assertSame } from "../../values/difference.js";
import { download, type PlainTensor, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { drawnTensor } from "../harness/drawn-tensor.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const STEPS = 3;

const matrixOf = (x: Tensor): Matrix => ({
  data: Float32Array.from(wideValues(download(x) as PlainTensor<WideDType>)),
  shape: x.shape as [number, number],
  dtype: x.dtype as WideDType,
});
const plainMatrix = ({ data, shape, dtype }: Matrix) => rounded(dtype, shape, Array.from(data));

const size = fc.integer({ min: 1, max: 12 });
const shape = fc.oneof(
  fc.tuple(size, size),
  fc.constantFrom([1, 9] as const, [9, 1] as const, [0, 4] as const),
);
const options = fc.record(
  {
    learningRate: fc.constantFrom(0, 0.02, 0.5),
    momentum: fc.constantFrom(0, 1e-60, 0.5, 0.95),
    nesterov: fc.boolean(),
    weightDecay: fc.constantFrom(0, 0.1),
    adjustLearningRate: fc.constantFrom("original" as const, "matchRmsAdamW" as const),
    eps: fc.constantFrom(1e-7, 0.01),
    dtype: wideType(),
  },
  { requiredKeys: ["learningRate"] },
);
/** The documented defaults. */
const DEFAULTS = {
  momentum: 0.95,
  nesterov: true,
  weightDecay: 0,
  adjustLearningRate: "original",
  eps: 1e-7,
  dtype: "bf16",
} as const;
/** The factor of a step's gradients, and whether the step changes nothing. */
interface Call {
  readonly gradScale?: number | undefined;
  readonly noop?: number | undefined;
}
const calls: fc.Arbitrary<Call[]> = fc.array(
  fc.record({ gradScale: fc.constantFrom(undefined, 0.5, 3), noop: fc.constantFrom(undefined, 0, 1, 2) }),
  { minLength: STEPS, maxLength: STEPS },
);

/** A high, a wide and an empty matrix, and the options that every run tests with each. */
const SHAPES = [
  [9, 4],
  [4, 9],
  [0, 4],
  [4, 0],
] as const;
const OPTIONS: readonly Partial<MuonOptions>[] = [
  {},
  { momentum: 0.5, nesterov: false, weightDecay: 0.1, adjustLearningRate: "matchRmsAdamW", dtype: "f32" },
  { momentum: 0 },
];

class Pair extends Module {
  readonly first: Linear;
  readonly second: Linear;

  constructor(seed: number) {
    super(backend());
    const random = new RandomState(BigInt(seed));
    this.first = this.addModule("first", new Linear(backend(), 16, 32, { random }));
    this.second = this.addModule("second", new Linear(backend(), 32, 16, { random }));
  }

  /** The weights, and the biases. */
  divideParameters() {
    const allParameters = [...this.namedParameters()];
    return {
      matrices: new Map(allParameters.filter(([, { shape }]) => shape.length === 2)),
      others: new Map(allParameters.filter(([, { shape }]) => shape.length !== 2)),
    };
  }

  pass(step: number): void {
    const x = drawnTensor(backend(), step, [16, 16], "bf16");
    this.second.forward(this.first.forward(x)).backward(drawnTensor(backend(), -step, [16, 16], "bf16"));
  }
}

describe("Muon", () => {
  it("has the bits of the definition, with clipping and skipped steps", () => {
    const property = fc.property(
      ...([shape, wideType(), wideType(), options, fc.nat(), calls] as const),
      fc.record({ set: fc.constantFrom(...oracle.SET_NAMES), steps: fc.integer({ min: 1, max: 6 }) }),
      (drawnShape, dtype, gradDtype, numbers, seed, drawnCalls, { set, steps }) => {
        using _ = new Scope();
        const parameter = new Parameter(drawnTensor(backend(), seed, drawnShape, dtype));
        const named = new Map([["p", parameter]]);
        using optimizer = new Muon(named, { ...numbers, coefficients: set, steps });
        const coefficients = oracle.stepCoefficients(set, steps);
        const model = { ...DEFAULTS, ...numbers, coefficients, datapath: "hopper" as const };
        const slot = optimizer.slots.get("p")!;
        let [p, m] = [matrixOf(slot.master), matrixOf(slot.buffers.get("m")!)];
        for (const [step, { gradScale, noop }] of drawnCalls.entries()) {
          const grad = castTo(drawnTensor(backend(), seed + step + 1, drawnShape, gradDtype), "f32");
          parameter.mainGrad = grad as Tensor<"f32">;
          const scalar = (value: number | undefined) =>
            value === undefined ? undefined : tensor(backend(), [value]);
          if (noop !== 1)
            ({ p, m } = oracle.muon({ p, m, grad: matrixOf(grad), gradScale: gradScale ?? 1 }, model));
          optimizer.step({ gradScale: scalar(gradScale), noop: scalar(noop) });
          assertSame("master", download(slot.master), plainMatrix(p));
          assertSame("m", download(slot.buffers.get("m")!), plainMatrix(m));
          const value = download(parameter.tensor);
          assertSame("parameter", value, plainMatrix({ ...p, dtype }));
        }
        parameter.mainGrad = undefined;
        parameter.dispose();
      },
    );
    const steps: readonly Call[] = [{}, { gradScale: 3, noop: 0 }, { noop: 1 }];
    const named = SHAPES.flatMap((drawnShape) =>
      OPTIONS.map((numbers) => {
        const set = { set: "quintic", steps: 5 } as const;
        return [drawnShape, "bf16", "f32", { learningRate: 0.5, ...numbers }, 1, steps, set] as never;
      }),
    );
    fc.assert(property, { numRuns: draws(40, named.length + 4), examples: named });
  });

  it("changes nothing in a skipped step, although weight decay would", () => {
    using _ = new Scope();
    using module = new Linear(backend(), 16, 16, { bias: false });
    using optimizer = new Muon(module, { learningRate: 0.5, weightDecay: 0.5 });
    const slot = [...optimizer.slots.values()][0]!;
    const state = () => [slot.parameter.tensor, slot.master, slot.buffers.get("m")!].map((x) => x.dataSync());
    slot.parameter.mainGrad = tensor(backend(), new Float32Array(256).fill(1), [16, 16]);
    const stateBefore = state();
    optimizer.step({ noop: tensor(backend(), [1]) });
    expect(state()).toEqual(stateBefore);
    optimizer.step({ noop: tensor(backend(), [0]) });
    for (const [i, tensor] of state().entries()) expect(tensor).not.toEqual(stateBefore[i]);
    slot.parameter.mainGrad = undefined;
  });

  it("continues from a checkpoint with the bits of an uninterrupted run", async () => {
    const folder = await mkdtemp(join(tmpdir(), "lockstep-"));
    const options: MuonOptions = {
      ...{ learningRate: 0.05, weightDecay: 0.1 },
      groups: [{ parameters: "second.*", momentum: 0.5, coefficients: "cans" }],
    };
    const make = (seed: number) => {
      const module = new Pair(seed);
      const { matrices, others: otherParameters } = module.divideParameters();
      return {
        module,
        optimizers: [new Muon(matrices, options), new AdamW(otherParameters, { learningRate: 0.1 })],
      };
    };
    const step = ({ module, optimizers }: ReturnType<typeof make>, number: number): void => {
      using _ = new Scope();
      module.pass(number);
      for (const optimizer of optimizers) {
        optimizer.step();
        optimizer.zeroGrad();
      }
    };
    const state = ({ optimizers }: ReturnType<typeof make>) =>
      optimizers.flatMap(({ slots }) =>
        [...slots].map(([name, { parameter, master, buffers, steps }]) => ({
          ...{ name, steps, value: parameter.tensor.dataSync(), master: master.dataSync() },
          buffers: [...buffers].map(([key, buffer]) => [key, buffer.dataSync()]),
        })),
      );
    const [firstPair, secondPair] = [make(1), make(2)];
    for (const number of [1, 2]) step(firstPair, number);
    for (const [i, optimizer] of firstPair.optimizers.entries())
      await saveCheckpoint(join(folder, `${i}`), { module: firstPair.module, optimizer });
    for (const [i, optimizer] of secondPair.optimizers.entries())
      await loadCheckpoint(join(folder, `${i}`), { module: secondPair.module, optimizer });
    for (const number of [3, 4]) for (const pair of [firstPair, secondPair]) step(pair, number);
    expect(state(secondPair)).toEqual(state(firstPair));
    for (const { module, optimizers } of [firstPair, secondPair])
      for (const disposable of [...optimizers, module]) disposable.dispose();
    await rm(folder, { recursive: true });
  });

  it("gives a group the options of the group", () => {
    using _ = new Scope();
    using together = new Pair(1);
    using singlePair = new Pair(1);
    const group = { learningRate: 0.25, coefficients: "aol", steps: 3, nesterov: false } as const;
    using groupedOptimizer = new Muon(together.divideParameters().matrices, {
      learningRate: 0.125,
      groups: [{ parameters: "second.*", ...group }],
    });
    using firstOptimizer = new Muon(new Map([["first.weight", singlePair.first.weight]]), {
      learningRate: 0.125,
    });
    using secondOptimizer = new Muon(new Map([["second.weight", singlePair.second.weight]]), group);
    for (const step of [1, 2]) {
      for (const model of [together, singlePair]) model.pass(step);
      for (const optimizer of [groupedOptimizer, firstOptimizer, secondOptimizer]) {
        optimizer.step();
        optimizer.zeroGrad();
      }
    }
    for (const name of ["first", "second"] as const)
      assertSame(name, download(together[name].weight.tensor), download(singlePair[name].weight.tensor));
  });

  it("accepts a matrix that one rank has, and refuses a step if it was divided after the construction", async () => {
    for (const size of [1, 2])
      for (const group of await loopbackGroup(size)) {
        const options = { dtype: "f32", bias: false } as const;
        using layer = new Linear(group.backend, 16, 16, options);
        using optimizer = new Muon(layer, { learningRate: 1 });
        const { shape } = layer.weight;
        fullyShard(layer, group);
        layer.weight.grad = tensor(group.backend, new Float32Array(256 / size), [16 / size, 16]);
        const step = () => optimizer.step();
        if (size > 1) expect(step).toThrow(UnsupportedError);
        else expect(() => new Muon(layer, { learningRate: 1 }).dispose()).not.toThrow();
        expect(shape).toEqual([16, 16]);
      }
  });

  it("refuses a vector, options that do not go together and a divided parameter, and keeps no memory then", async () => {
    using model = new Linear(backend(), 16, 16);
    using linear = new Linear(backend(), 16, 16, { bias: false });
    const live = backend().memoryUse().live;
    expect(() => new Muon(model, { learningRate: 1 })).toThrow(ShapeError);
    const faults: readonly object[] = [
      ...[{ coefficients: [[1, 2, 3]], steps: 2 }, { groups: [{ parameters: "other" }] }],
      ...[{ momentum: 1 }, { groups: [{ parameters: "*", coefficients: [[1, 2, 3]], steps: 2 }] }],
    ];
    for (const fault of faults)
      expect(() => new Muon(linear, { learningRate: 1, ...fault }), JSON.stringify(fault)).toThrow(
        ArgumentError,
      );
    expect(backend().memoryUse().live).toBe(live);
    for (const group of await loopbackGroup(2)) {
      const shardedLayer = new Linear(group.backend, 16, 16, { bias: false });
      fullyShard(shardedLayer, group);
      const dividedLayer = new Linear(group.backend, 16, 16, { bias: false, group, parallelMode: "column" });
      for (const layer of [shardedLayer, dividedLayer])
        expect(() => new Muon(layer, { learningRate: 1 })).toThrow(UnsupportedError);
    }
  });
});
