/**
 * Optimizers and a GradScaler agree with a model in plain numbers over any sequence of calls: gradients that are kept, are
 * missing or overflow, frozen parameters, steps that are scaled, clipped or skipped, two optimizers with one scaler.
 */
import fc from "fast-check";
import { expect, it } from "vitest";
import {
  AdamW,
  ArgumentError,
  clipGradNorm,
  GradScaler,
  Linear,
  type Optimizer,
  Parameter,
  quantizedModelInit,
  Scope,
  SGD,
  type Tensor,
  tensor,
  zeros,
} from "../../../src/index.js";
import { persistent } from "../../../src/modules/parameter.js";
import { castTo, decode } from "../../../src/ops/cast/cast.js";
import { dequantize } from "../../../src/ops/quantize/dequantize.js";
import { QuantizedTensor } from "../../../src/tensor/quantized.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { expectNoLeak } from "../../operations/guarded.js";
import type { ParameterModel } from "../../oracle/training/linear.js";
import { cast, type Matrix } from "../../oracle/training/matrix.js";
import { type OptimizerModel, OptimizerRun } from "../../oracle/training/optimizers.js";
import { type StoredState, stored } from "../../oracle/training/stored-state.js";
import { Value } from "../../oracle/training/tape.js";
import { assertSame } from "../../values/difference.js";
import { download, wideValues } from "../../values/plain.js";
import { drawsOr } from "../harness/draws.js";
import { recipeByName } from "../harness/step/library-recipes.js";
import { OPTIMIZERS } from "../harness/step/options.js";
import { useBackend } from "../harness/suite.js";

const RUNS = drawsOr(30);
const backend = useBackend();

/** Each optimizer has one parameter of each kind. */
const KINDS = ["f32", "bf16", "f16", "quantized", "fused"] as const;
type Kind = (typeof KINDS)[number];
/** The smallest weight that FP8 recipes accept. */
const LINEAR = [16, 16] as const;
const shapeOf = (kind: Kind): readonly [number, number] => (kind === "quantized" ? LINEAR : [3, 5]);
const dtypeOf = (kind: Kind): WideDType => (kind === "f32" || kind === "f16" ? kind : "bf16");
const gradType = (kind: Kind): WideDType => (kind === "fused" ? "f32" : dtypeOf(kind));

const SCALERS = [
  { initScale: 3, growthFactor: 1.5, backoffFactor: 0.3, growthInterval: 2 },
  { initScale: 1024, growthFactor: 2, backoffFactor: 0.5, growthInterval: 1 },
  { initScale: 2 ** 126, growthFactor: 2, backoffFactor: 2 ** -90, growthInterval: 1 },
] as const;

const which = fc.nat(1);
const kind = fc.constantFrom(...KINDS);
/** Large gradients of f16 and bf16 have an infinite sum of squares; some are infinite themselves. */
const size = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(2 ** -9, 1, 8) },
  fc.constantFrom(2 ** 70, Number.POSITIVE_INFINITY, Number.NaN),
);
const grads = fc.array(fc.option(fc.tuple(fc.nat(), size), { nil: undefined, freq: 3 }), {
  minLength: KINDS.length,
  maxLength: KINDS.length,
});

type Event =
  | {
      readonly do: "grads";
      readonly which: number;
      readonly grads: readonly (readonly [number, number] | undefined)[];
    }
  | { readonly do: "both"; readonly which: number; readonly seed: number }
  | { readonly do: "step"; readonly which: number; readonly gradScale?: number; readonly noop?: number }
  | { readonly do: "clip"; readonly which: number; readonly maxNorm: number }
  | { readonly do: "scaled"; readonly which: number; readonly maxNorm?: number }
  | { readonly do: "zero"; readonly which: number }
  | { readonly do: "update" | "save" | "load" }
  | { readonly do: "freeze"; readonly which: number; readonly kind: Kind }
  | { readonly do: "rate"; readonly which: number };

const factor = fc.constantFrom(0.375, 1, 3);
const maxNorm = fc.constantFrom(0, 0.5, 1e9);
const give: fc.Arbitrary<Event> = fc.record({ do: fc.constant("grads" as const), which, grads });
const scaledStep: fc.Arbitrary<Event> = fc.record(
  { do: fc.constant("scaled" as const), which, maxNorm },
  { requiredKeys: ["do", "which"] },
);
const anyEvent: fc.Arbitrary<Event> = fc.oneof(
  { weight: 5, arbitrary: give },
  { weight: 5, arbitrary: scaledStep },
  {
    weight: 4,
    arbitrary: fc.record(
      { do: fc.constant("step" as const), which, gradScale: factor, noop: fc.constantFrom(0, 1, 2) },
      { requiredKeys: ["do", "which"] },
    ),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("clip" as const), which, maxNorm }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("update" as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("zero" as const), which }) },
  fc.record({ do: fc.constant("both" as const), which, seed: fc.nat() }),
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("save" as const, "load" as const) }) },
  fc.record({ do: fc.constant("freeze" as const), which, kind }),
  fc.record({ do: fc.constant("rate" as const), which }),
);

/** Whether a quantized parameter keeps its values before quantization. */
const keepsInitial = (seed: number): boolean => seed % 2 === 0;

function values(seed: number, [rows, columns]: readonly [number, number], scale: number): Float32Array {
  const randomWords = words(seed, rows * columns);
  const gradients = Float32Array.from(
    randomWords,
    (word) => (1 + (word & 127) / 128) * (word >>> 31 ? -1 : 1),
  );
  if (Number.isFinite(scale)) return gradients.map((value) => value * scale);
  gradients[seed % gradients.length] = scale;
  return gradients;
}

function wideTensor(
  dtype: WideDType,
  data: Float32Array,
  shape: readonly [number, number],
): Tensor<WideDType> {
  return castTo(tensor(backend(), data, shape), dtype);
}

const matrixOf = (x: Tensor): Matrix => {
  const plainTensor = download(x as Tensor<WideDType>);
  return { data: wideValues(plainTensor), shape: plainTensor.matrix, dtype: plainTensor.dtype };
};

/** The values of codes, or the remainders of a u16 tensor. */
const codesOf = (x: Tensor): ArrayLike<number> =>
  x.dtype === "u16" ? (x.dataSync() as Uint16Array) : matrixOf(x.dtype === "e4m3" ? decode(x) : x).data;

const bits = (data: ArrayLike<number>): string[] =>
  Array.from(data, (x) => (Object.is(x, -0) ? "-0" : String(x)));

const expectBits = (name: string, actual: Matrix, expected: Matrix): void =>
  expect([actual.dtype, bits(actual.data)], name).toEqual([expected.dtype, bits(expected.data)]);

/** An optimizer with its parameters, and the model of both. */
class Side {
  readonly parameters: ReadonlyMap<Kind, Parameter>;
  readonly optimizer: SGD | AdamW;
  readonly model: OptimizerRun;
  readonly optimizerModel: ReadonlyMap<Kind, ParameterModel>;
  readonly #layers: Linear[] = [];
  #settings: OptimizerModel;

  constructor(settings: OptimizerModel, seed: number) {
    this.#settings = settings;
    this.parameters = new Map(KINDS.map((kind, i) => [kind, this.#parameter(kind, seed + i)]));
    for (const [kind, { tensor: weight }] of [...this.parameters].filter(([kind]) => kind === "fused")) {
      const parameter = this.parameters.get(kind) as Parameter;
      parameter.mainGrad = persistent(zeros(backend(), "f32", weight.shape));
    }
    const { kind: name, ...numbers } = settings;
    const namedParameters = new Map<string, Parameter>(this.parameters);
    this.optimizer =
      name === "SGD"
        ? new SGD(namedParameters, numbers as never)
        : new AdamW(namedParameters, numbers as never);
    this.optimizerModel = new Map(
      KINDS.map((kind) => {
        const { value } = this.parameters.get(kind) as Parameter;
        const wideValue = value instanceof QuantizedTensor ? dequantize(value, "f32") : value;
        return [kind, new Value(cast(matrixOf(wideValue as Tensor), dtypeOf(kind)), true)] as const;
      }),
    );
    const fused = this.optimizerModel.get("fused") as ParameterModel;
    fused.mainGrad = { ...fused.wide, dtype: "f32", data: new Float32Array(fused.wide.data.length) };
    this.model = new OptimizerRun(settings, [...this.optimizerModel.values()]);
    for (const [i, kind] of KINDS.entries()) {
      const slot = this.model.slots[i];
      if (slot && kind === "quantized")
        Object.assign(slot, { master: this.#quantizedMaster(seed + i), isQuantized: true });
    }
  }

  /** The master of the quantized parameter: its initial values if it kept them, else its dequantized codes. */
  #quantizedMaster(seed: number): StoredState {
    const { value } = this.parameters.get("quantized") as Parameter;
    const initial = keepsInitial(seed)
      ? values(seed, LINEAR, 0.25)
      : dequantize(value as QuantizedTensor, "f32").dataSync();
    return stored([...(initial as Float32Array)], this.#settings.masterWeightDtype ?? "f32");
  }

  #parameter(kind: Kind, seed: number): Parameter {
    const shape = shapeOf(kind);
    const data = values(seed, shape, 0.25);
    if (kind !== "quantized") return new Parameter(wideTensor(dtypeOf(kind), data, shape));
    const layer = quantizedModelInit(
      { recipe: recipeByName("current"), preserveHighPrecisionInitVal: keepsInitial(seed) },
      () => new Linear(backend(), ...LINEAR, { bias: false, initMethod: () => data }),
    );
    this.#layers.push(layer);
    return layer.weight;
  }

  give(grads: Extract<Event, { do: "grads" }>["grads"]): void {
    KINDS.forEach((kind, i) => {
      const gradDraw = grads[i];
      if (!gradDraw) return;
      const [seed, gradScale] = gradDraw;
      const shape = shapeOf(kind);
      const grad = wideTensor(gradType(kind), values(seed, shape, gradScale), shape);
      const [parameter, model] = this.bothParameters(kind);
      if (kind === "fused") {
        parameter.mainGrad?.paste(grad as Tensor<"f32">, 0);
        model.mainGrad = matrixOf(grad);
        return;
      }
      parameter.zeroGrad();
      parameter.grad = persistent(grad);
      model.grad = matrixOf(grad);
    });
  }

  /** Also gives the parameter with a main gradient a `grad`, as a second use of the same table in an embedding would. */
  giveBoth(seed: number): void {
    const [parameter, model] = this.bothParameters("fused");
    parameter.zeroGrad();
    const shape = shapeOf("fused");
    parameter.grad = persistent(wideTensor("bf16", values(seed, shape, 1), shape));
    model.grad = matrixOf(parameter.grad);
  }

  bothParameters(kind: Kind): readonly [Parameter, ParameterModel] {
    return [this.parameters.get(kind) as Parameter, this.optimizerModel.get(kind) as ParameterModel];
  }

  /** Changes the learning rate, as a schedule does. */
  changeRate(): void {
    const learningRate = this.#settings.learningRate / 2;
    this.#settings = { ...this.#settings, learningRate };
    this.optimizer.options = { ...this.optimizer.options, learningRate } as never;
    Object.assign(this.model, { options: this.#settings });
  }

  check(): void {
    KINDS.forEach((kind, i) => {
      const slot = this.optimizer.slots.get(kind);
      const model = this.model.slots[i];
      if (!slot || !model) throw new RangeError(`no slot of ${kind}`);
      expect(slot.steps, `steps of ${kind}`).toBe(model.steps);
      const { value } = slot.parameter;
      const tensors = new Map<string, Tensor>([["master", slot.master], ...slot.buffers]);
      const expected = new Map(this.model.namedTensors(model));
      expect([...tensors.keys()].sort(), `states of ${kind}`).toEqual([...expected.keys()].sort());
      for (const [name, { type, values }] of expected) {
        const tensor = tensors.get(name) as Tensor;
        expect([tensor.dtype, bits(codesOf(tensor))], `${name} of ${kind}`).toEqual([type, bits(values)]);
      }
      if (!(value instanceof QuantizedTensor)) expectBits(kind, matrixOf(value), model.parameter.wide);
      else if (model.written) this.#checkCodes(value, Float32Array.from(model.written));
    });
  }

  /** Once a step has written the quantized parameter, it has the codes of the step's f32 result. */
  #checkCodes(value: QuantizedTensor, data: Float32Array): void {
    using layer = quantizedModelInit({ recipe: recipeByName("current") }, () => {
      return new Linear(backend(), ...LINEAR, { bias: false, dtype: "f32", initMethod: () => data });
    });
    const expected = layer.weight.value as QuantizedTensor;
    for (const [i, member] of value.members.entries())
      assertSame(`member ${i}`, download(member), download(expected.members[i] as Tensor));
  }

  dispose(): void {
    this.optimizer.dispose();
    const inLayers = new Set(this.#layers.map(({ weight }) => weight));
    for (const layer of this.#layers) layer.dispose();
    for (const parameter of this.parameters.values()) if (!inLayers.has(parameter)) parameter.dispose();
  }
}

const LARGEST = (2 - 2 ** -23) * 2 ** 127;

/** The update rule of torch.amp.GradScaler. */
class ScalerModel {
  scale: number;
  growthTracker = 0;
  #overflowed: boolean | undefined;

  constructor(readonly options: (typeof SCALERS)[number]) {
    this.scale = options.initScale;
  }

  step(
    model: OptimizerRun,
    maxNorm: number | undefined,
  ): { readonly norm: number; readonly stepped: boolean } {
    const { norm: scaledNorm } = model.norm(LARGEST);
    const inverse = Math.fround(1 / this.scale);
    const norm = Math.fround(scaledNorm * inverse);
    const stepped = Number.isFinite(scaledNorm);
    this.#overflowed = (this.#overflowed ?? false) || !stepped;
    if (stepped) {
      const divisor = Math.fround(norm + Math.fround(1e-6));
      const clip = maxNorm === undefined ? 1 : Math.min(1, Math.fround(Math.fround(maxNorm) / divisor));
      model.step({ gradScale: Math.fround(inverse * clip) });
    }
    return { norm, stepped };
  }

  /** Whether there was a step since the last update. */
  update(): boolean {
    const { growthFactor, backoffFactor, growthInterval } = this.options;
    const hasOverflowed = this.#overflowed;
    if (hasOverflowed === undefined) return false;
    this.#overflowed = undefined;
    if (hasOverflowed) {
      this.scale = Math.fround(this.scale * backoffFactor);
      this.growthTracker = 0;
      return true;
    }
    this.growthTracker++;
    if (this.growthTracker < growthInterval) return true;
    this.growthTracker = 0;
    const grownScale = Math.fround(this.scale * growthFactor);
    if (Number.isFinite(grownScale)) this.scale = grownScale;
    return true;
  }

  load(state: { readonly scale: number; readonly growthTracker: number }): void {
    Object.assign(this, state);
    this.#overflowed = undefined;
  }
}

const hasGrads = ({ model }: Side): boolean =>
  model.slots.some(({ parameter: { grad, mainGrad } }) => grad ?? mainGrad);

async function run(sides: readonly [Side, Side], events: readonly Event[], numRates: number): Promise<void> {
  const options = SCALERS[numRates % SCALERS.length] as (typeof SCALERS)[number];
  const [scaler, model] = [new GradScaler(options), new ScalerModel(options)];
  let savedState = scaler.state;
  for (const event of events) {
    using _ = new Scope();
    const side = sides[("which" in event ? event.which : 0) % 2] as Side;
    const { optimizer, model: optimizerModel } = side;
    const scalarTensor = (value: number | undefined) =>
      value === undefined ? undefined : tensor(backend(), [value]);
    if (event.do === "grads") side.give(event.grads);
    else if (event.do === "both") side.giveBoth(event.seed);
    else if (event.do === "zero") {
      optimizer.zeroGrad();
      optimizerModel.zeroGrad();
    } else if (event.do === "freeze") {
      for (const parameter of side.bothParameters(event.kind))
        parameter.requiresGrad = !parameter.requiresGrad;
    } else if (event.do === "rate") side.changeRate();
    else if (event.do === "step") {
      const { gradScale, noop } = event;
      optimizer.step({ gradScale: scalarTensor(gradScale), noop: scalarTensor(noop) });
      optimizerModel.step({
        ...(gradScale === undefined ? {} : { gradScale }),
        ...(noop === undefined ? {} : { noop }),
      });
    } else if (event.do === "clip" && hasGrads(side)) {
      const expected = optimizerModel.norm(event.maxNorm);
      const { norm, factor } = clipGradNorm(optimizer as Optimizer, event.maxNorm);
      expect([norm.dataSync()[0], factor.dataSync()[0]]).toEqual([expected.norm, expected.factor]);
      optimizer.step({ gradScale: factor });
      optimizerModel.step({ gradScale: expected.factor });
    } else if (event.do === "scaled" && hasGrads(side)) {
      const expected = model.step(optimizerModel, event.maxNorm);
      const { maxNorm: clipLimit } = event;
      expect(await scaler.step(optimizer, clipLimit === undefined ? {} : { maxNorm: clipLimit })).toEqual(
        expected,
      );
    } else if (event.do === "update") {
      if (model.update()) scaler.update();
      else expect(() => scaler.update()).toThrow(ArgumentError);
    } else if (event.do === "save") savedState = scaler.state;
    else if (event.do === "load") {
      scaler.state = savedState;
      model.load(savedState);
    }
    for (const trainedSide of sides) trainedSide.check();
    expect(scaler.state).toEqual({ scale: model.scale, growthTracker: model.growthTracker });
  }
}

const gradsOf = (which: number, gradScale: number): Event => ({
  ...{ do: "grads", which },
  grads: KINDS.map((_, i): readonly [number, number] => [i, gradScale]),
});

/**
 * Loading a state discards the overflow that was found before. The first optimizer's overflow counts even if the second has none.
 */
const LOADED_AFTER_OVERFLOW: readonly Event[] = [
  ...[gradsOf(0, Number.POSITIVE_INFINITY), gradsOf(1, 1)],
  ...([{ do: "scaled", which: 0 }, { do: "load" }, { do: "scaled", which: 1 }, { do: "update" }] as const),
  ...([{ do: "scaled", which: 0 }, { do: "scaled", which: 1 }, { do: "update" }] as const),
];

const EXAMPLE: [keyof typeof OPTIMIZERS, keyof typeof OPTIMIZERS, number, Event, Event, Event[]] = [
  ...(["AdamW", "SGD", 0] as const),
  ...([gradsOf(0, 1), gradsOf(1, 1)] as const),
  [...LOADED_AFTER_OVERFLOW],
];

it("have the state, the parameters and the scale of the model after every call", async () => {
  const names = fc.constantFrom(...(Object.keys(OPTIMIZERS) as (keyof typeof OPTIMIZERS)[]));
  const programs = fc.array(anyEvent, { minLength: 6, maxLength: 16, size: "max" });
  await fc.assert(
    fc.asyncProperty(
      names,
      names,
      fc.nat(),
      give,
      give,
      programs,
      async (firstKind, secondKind, seed, a, b, events) => {
        const memoryBefore = backend().memoryUse();
        const scope = new Scope();
        scope.close();
        const sides = scope.within(
          () => [new Side(OPTIMIZERS[firstKind], seed), new Side(OPTIMIZERS[secondKind], seed + 31)] as const,
        );
        try {
          await run(sides, [{ ...a, which: 0 } as Event, { ...b, which: 1 } as Event, ...events], seed);
        } finally {
          for (const side of sides) side.dispose();
          scope.dispose();
        }
        expectNoLeak(backend(), memoryBefore);
      },
    ),
    { numRuns: RUNS, examples: [EXAMPLE] },
  );
});
