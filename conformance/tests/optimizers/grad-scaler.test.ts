/** Dynamic loss scaling: the rule of the scale, the bits of a step, and one decision on all ranks. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import {
  AdamW,
  ArgumentError,
  clipGradNorm,
  DTypeError,
  fullyShard,
  functional,
  GradScaler,
  type GradScalerOptions,
  type GradScalerState,
  LayerNormMLP,
  Linear,
  normal,
  Pipeline,
  RandomState,
  Scope,
  SGD,
  type Tensor,
  tensor,
  Variable,
  zeros,
} from "../../../src/index.js";
import { persistent } from "../../../src/modules/parameter.js";
import { download } from "../../values/plain.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";

const backends = useBackends(4);
const [rows, width] = [16, 32];

const layerOn = (backend: Backend): Linear =>
  new Linear(backend, width, width, { dtype: "f32", random: new RandomState(1n) });

const samples = (backend: Backend): Tensor<"f32"> =>
  tensor(backend, normal({ seed: 2n, offset: 0n }, rows * width, 1), [rows, width]);

/** Gives every parameter of an optimizer a gradient whose elements are all `value`. */
function plantGradient(optimizer: SGD, value: number): void {
  optimizer.zeroGrad();
  for (const { parameter } of optimizer.slots.values()) {
    const { backend, shape, size } = parameter.tensor;
    parameter.grad = persistent(tensor(backend, new Float32Array(size).fill(value), shape));
  }
}

/** The rule of aten/src/ATen/native/cuda/AmpKernels.cu of PyTorch (amp_update_scale_cuda_kernel) in plain numbers. */
class PlainScaler {
  #overflowed: boolean | undefined;
  state: GradScalerState;

  constructor(readonly options: Record<keyof GradScalerOptions, number>) {
    this.state = { scale: Math.fround(options.initScale), growthTracker: 0 };
  }

  load(state: GradScalerState): void {
    this.state = state;
    this.#overflowed = undefined;
  }

  step(overflows: boolean): void {
    this.#overflowed = (this.#overflowed ?? false) || overflows;
  }

  /** Returns false if there was no step since the last update. */
  update(): boolean {
    const hasOverflowed = this.#overflowed;
    if (hasOverflowed === undefined) return false;
    const { growthFactor, backoffFactor, growthInterval } = this.options;
    const { scale, growthTracker } = this.state;
    const grows = !hasOverflowed && growthTracker + 1 === growthInterval;
    const product = Math.fround(scale * (hasOverflowed ? backoffFactor : grows ? growthFactor : 1));
    // PyTorch's scale may become 0; here it keeps a finite reciprocal
    const isKept = !Number.isFinite(product) || !Number.isFinite(Math.fround(1 / product));
    this.state = {
      scale: isKept ? scale : product,
      growthTracker: hasOverflowed || grows ? 0 : growthTracker + 1,
    };
    this.#overflowed = undefined;
    return true;
  }
}

describe("GradScaler", () => {
  it("changes its scale as torch.amp.GradScaler does, whatever steps, updates and loaded states follow each other", async () => {
    const command = fc.oneof(
      { weight: 4, arbitrary: fc.record({ optimizer: fc.nat(1), overflows: fc.boolean() }) },
      { weight: 3, arbitrary: fc.constant("update" as const) },
      { weight: 1, arbitrary: fc.constantFrom("save" as const, "load" as const) },
    );
    const choices = fc.record({
      initScale: fc.constantFrom(1, 3, 0.1, 65_536, 2 ** 127, 2 ** -126),
      growthFactor: fc.constantFrom(2, 1.5),
      backoffFactor: fc.constantFrom(0.5, 0.3),
      growthInterval: fc.integer({ min: 1, max: 3 }),
      commands: fc.array(command, { minLength: 4, maxLength: 16 }),
    });
    await fc.assert(
      fc.asyncProperty(choices, async ({ commands, ...options }) => {
        const [backend] = backends as readonly [Backend];
        using firstLayer = layerOn(backend);
        using secondLayer = layerOn(backend);
        using firstOptimizer = new SGD(firstLayer, { learningRate: 0 });
        using secondOptimizer = new SGD(secondLayer, { learningRate: 0 });
        const scaler = new GradScaler(options);
        const model = new PlainScaler(options);
        let savedState = scaler.state;
        for (const command of commands) {
          if (command === "save") savedState = scaler.state;
          else if (command === "load") {
            scaler.state = savedState;
            model.load(savedState);
          } else if (command === "update") {
            if (model.update()) scaler.update();
            else expect(() => scaler.update()).toThrow(ArgumentError);
          } else {
            const optimizer = command.optimizer === 0 ? firstOptimizer : secondOptimizer;
            plantGradient(optimizer, command.overflows ? Number.NaN : 1);
            const { stepped } = await scaler.step(optimizer);
            expect(stepped).toBe(!command.overflows);
            model.step(command.overflows);
          }
          expect(scaler.state).toEqual(model.state);
        }
      }),
      { numRuns: draws(400, 100), seed: derivedSeed(5) },
    );
  });

  it("keeps a scale with a finite reciprocal, for any options and any number of overflows", async () => {
    const [backend] = backends as readonly [Backend];
    for (const initScale of [0, -1, 1e-40, 2 ** -129, 2 ** 128, Number.NaN])
      expect(() => new GradScaler({ initScale }), String(initScale)).toThrow(ArgumentError);
    const scaler = new GradScaler({ initScale: 2 ** -120 });
    using layer = layerOn(backend);
    using optimizer = new SGD(layer, { learningRate: 1 });
    const gradientOf = (value: number) =>
      persistent(tensor(backend, new Float32Array(width * width).fill(value), [width, width]));
    for (let pass = 0; pass < 20; pass++) {
      optimizer.zeroGrad();
      layer.weight.grad = gradientOf(Number.NaN);
      await scaler.step(optimizer);
      scaler.update();
    }
    optimizer.zeroGrad();
    layer.weight.grad = gradientOf(0);
    expect(await scaler.step(optimizer)).toEqual({ norm: 0, stepped: true });
    expect(layer.weight.tensor.dataSync().every(Number.isFinite)).toBe(true);
    new GradScaler().state = scaler.state;
  });

  it("by a power of two steps with the bits of an unscaled step, clipped or not", async () => {
    const [backend] = backends as readonly [Backend];
    for (const maxNorm of [undefined, 0.01, 1e6]) {
      const weights = [];
      for (const scaler of [undefined, new GradScaler({ initScale: 1024 })]) {
        using layer = layerOn(backend);
        using optimizer = new AdamW(layer, { learningRate: 0.1 });
        using _ = new Scope();
        const x = samples(backend);
        const loss = functional.mseLoss(layer.forward(x), x);
        (scaler?.scale(loss) ?? loss).backward();
        if (scaler) {
          const { stepped, norm } = await scaler.step(optimizer, maxNorm === undefined ? {} : { maxNorm });
          expect(stepped).toBe(true);
          weights.push(norm);
        } else {
          const { factor, norm } = clipGradNorm(optimizer, maxNorm ?? 1e30);
          optimizer.step({ gradScale: factor });
          weights.push(...(await norm.data()));
        }
        weights.push(download(layer.weight.tensor));
      }
      expect(weights.slice(2)).toEqual(weights.slice(0, 2));
    }
  });

  it("that overflowed changes no tensor, and the step does not count", async () => {
    const [backend] = backends as readonly [Backend];
    for (const plantedValue of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 2 ** 64]) {
      using layer = layerOn(backend);
      using optimizer = new AdamW(layer, { learningRate: 0.1 });
      const weightBefore = download(layer.weight.tensor);
      const grad = new Float32Array(width * width);
      grad[77] = plantedValue;
      layer.weight.grad = persistent(tensor(backend, grad, [width, width]));
      const scaler = new GradScaler();
      const { stepped, norm } = await scaler.step(optimizer);
      expect([stepped, Number.isFinite(norm)]).toEqual([false, false]);
      expect(download(layer.weight.tensor)).toEqual(weightBefore);
      expect([...optimizer.slots.values()].map(({ steps }) => steps)).toEqual([0, 0]);
    }
  });

  it("makes one decision on all ranks that have parts of the model", async () => {
    const plantedValue = Number.POSITIVE_INFINITY;
    for (const faulty of [undefined, 0, 3]) {
      const groups = loopbackOver(backends.slice(0, 4), 20_000);
      const results = await Promise.all(
        groups.map(async (group) => {
          const { tp, dp } = group.split({ tp: 2, dp: 2 });
          using mlp = new LayerNormMLP(group.backend, width, 64, { group: tp, dtype: "f32" });
          fullyShard(mlp, dp);
          using optimizer = new SGD(mlp, { learningRate: 0.1 });
          const { localValue: localWeight } = mlp.fc1Weight;
          const grad = new Float32Array((localWeight.shape[0] as number) * width);
          if (group.rank === faulty) grad[5] = plantedValue;
          mlp.fc1Weight.grad = persistent(tensor(group.backend, grad, localWeight.shape));
          const scaler = new GradScaler();
          const { stepped } = await scaler.step(optimizer);
          scaler.update();
          return [stepped, scaler.state.scale];
        }),
      );
      expect(results).toEqual(groups.map(() => (faulty === undefined ? [true, 65_536] : [false, 32_768])));
    }
  });

  it("scales the loss of a pipeline, whose stages step together", async () => {
    const groups = loopbackOver(backends.slice(0, 2), 20_000);
    const results = await Promise.all(
      groups.map(async (group) => {
        using stage = layerOn(group.backend);
        using optimizer = new SGD(stage, { learningRate: 0.1 });
        const scaler = new GradScaler({ initScale: 2 ** 127 });
        using _ = new Scope();
        const x = samples(group.backend);
        const pipeline = new Pipeline(stage, group, {
          microbatches: 2,
          input: { shape: [rows, width], dtype: "f32" },
          loss: (output) => scaler.scale(functional.mseLoss(output, x)),
        });
        pipeline.step(() => x);
        const { stepped } = await scaler.step(optimizer);
        scaler.update();
        return [stepped, scaler.state.scale];
      }),
    );
    expect(results).toEqual([
      [false, 2 ** 126],
      [false, 2 ** 126],
    ]);
  });

  it("multiplies the loss and its gradient, and rounds every scale to f32", () => {
    const [backend] = backends as readonly [Backend];
    using _ = new Scope();
    const scaler = new GradScaler({ initScale: 0.1 });
    expect(scaler.state.scale).toBe(Math.fround(0.1));
    const loss = new Variable(tensor(backend, [3]), true);
    const scaledLoss = scaler.scale(loss);
    scaledLoss.backward(tensor(backend, [5]));
    const product = (x: number): number => Math.fround(x * Math.fround(0.1));
    expect(download(scaledLoss.tensor)).toEqual(download(tensor(backend, [product(3)])));
    expect(download(loss.grad as Tensor)).toEqual(download(tensor(backend, [product(5)])));
    loss.zeroGrad();
    scaler.state = { scale: 0.3, growthTracker: 0 };
    expect(scaler.state.scale).toBe(Math.fround(0.3));
  });

  it("continues from a saved state", async () => {
    const [backend] = backends as readonly [Backend];
    using layer = layerOn(backend);
    using optimizer = new SGD(layer, { learningRate: 0.1 });
    layer.weight.grad = persistent(zeros(backend, "f32", [width, width]));
    const firstScaler = new GradScaler({ growthInterval: 2 });
    await firstScaler.step(optimizer);
    firstScaler.update();
    const secondScaler = new GradScaler({ growthInterval: 2, initScale: 1 });
    secondScaler.state = JSON.parse(JSON.stringify(firstScaler.state));
    for (const layer of [firstScaler, secondScaler]) {
      await layer.step(optimizer);
      layer.update();
      expect(layer.state).toEqual({ scale: 131_072, growthTracker: 0 });
    }
  });

  it("refuses options outside of their ranges, and an update without a step", async () => {
    const [backend] = backends as readonly [Backend];
    for (const options of [
      { initScale: 0 },
      { initScale: 1e39 },
      { initScale: 1e-46 },
      { growthFactor: 1 },
      { backoffFactor: 1 },
      { backoffFactor: 0 },
      { growthInterval: 0 },
      { scale: 2 },
    ] as never[])
      expect(() => new GradScaler(options)).toThrow(ArgumentError);
    const scaler = new GradScaler();
    for (const state of [
      undefined,
      {},
      { scale: 1 },
      { scale: -1, growthTracker: 0 },
      { scale: 1, growthTracker: 0.5 },
    ] as never[])
      expect(() => {
        scaler.state = state;
      }).toThrow(ArgumentError);
    expect(() => scaler.update()).toThrow(ArgumentError);
    await expect(scaler.step({} as never)).rejects.toThrow(ArgumentError);
    using layer = layerOn(backend);
    using optimizer = new SGD(layer, { learningRate: 0.1 });
    await expect(scaler.step(optimizer)).rejects.toThrow(ArgumentError);
    plantGradient(optimizer, 1);
    for (const options of [{ maxNorm: -1 }, { norm: 1 }] as never[])
      await expect(scaler.step(optimizer, options)).rejects.toThrow(ArgumentError);
    await expect(scaler.step(layer as never)).rejects.toThrow(
      /^step: optimizer is .*; it must be an optimizer/,
    );
    expect(() => {
      scaler.state = 1 as never;
    }).toThrow(/^GradScaler: state /);
    using ids = zeros(backend, "i32", [1]);
    expect(() => scaler.scale(ids)).toThrow(DTypeError);
  });
});
