/** Runs a plan with the library. */
import type { Backend } from "../../../../src/backends/backend.js";
import {
  AdamW,
  autocast,
  clipGradNorm,
  Embedding,
  functional,
  Module,
  noGrad,
  type OptimizerSlot,
  RandomState,
  type Recipe,
  Scope,
  Sequential,
  SGD,
  type Tensor,
  type TensorData,
  tensor,
  Variable,
  type VariableLike,
  zeros,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import type { QuantizationSnapshot, QuantizationState } from "../../../../src/modules/quantization-state.js";
import { castTo, decode } from "../../../../src/ops/cast/cast.js";
import type { RandomSource } from "../../../../src/random.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import { type Matrix, ofRow } from "../../../oracle/training/matrix.js";
import { download, wideValues } from "../../../values/plain.js";
import { type Call, Cell } from "./library-cell.js";
import { libraryRecipe, recipeByName } from "./library-recipes.js";
import {
  activationType,
  drawClasses,
  drawNumbers,
  EVALUATION,
  GRAD_SCALE,
  isFrozen,
  MAX_NORM,
  optimizerOptions,
  SMOOTHING_OPTIONS,
  type StepPlan,
  stepActions,
} from "./plan.js";
import { inputSeed, parameterScale, parameterSeed } from "./seeds.js";
import type { StepResults } from "./seen.js";

/** The layers of the plan in sequence. */
class Layers extends Module {
  readonly #cells: Sequential;

  constructor(backend: Backend, plan: StepPlan, random: RandomState) {
    super(backend, { random });
    const cells = plan.cells.map((cell, i) =>
      this.addModule(`cell${i}`, new Cell(backend, plan, cell, random)),
    );
    // the inner Sequential names its submodules "0", "1", ..., after this module's prefix
    const members = plan.nested ? [new Sequential(backend, ...cells)] : cells;
    this.#cells = new Sequential(backend, ...members);
  }

  forward(x: VariableLike, call: Call): Variable {
    return this.#cells.forward(x, call);
  }
}

/** Parameters, masters and buffers. */
function optimizerTensors({ slots }: SGD | AdamW): readonly Tensor[] {
  const tensors = [...slots.values()].flatMap(({ parameter, master, buffers }) => [
    ...[parameter.tensor, master],
    ...buffers.values(),
  ]);
  return [...new Set<Tensor>(tensors)];
}

/** The state of a run at the end of a step. */
interface SavedRun {
  readonly tensors: readonly (readonly [Tensor, TensorData])[];
  readonly steps: readonly (readonly [OptimizerSlot, number])[];
  readonly scales: readonly (readonly [QuantizationState, QuantizationSnapshot | undefined])[];
  readonly random: RandomSource;
}

export class StepLibrary {
  readonly random: RandomState;
  readonly #layers: Layers;
  readonly #table: Embedding | undefined;
  readonly #optimizer: SGD | AdamW | undefined;
  readonly #recipe: Recipe | undefined;
  readonly #parameters: ReadonlyMap<
    string,
    Layers["namedParameters"] extends () => ReadonlyMap<string, infer P> ? P : never
  >;

  constructor(
    readonly backend: Backend,
    readonly plan: StepPlan,
  ) {
    this.random = new RandomState(BigInt(plan.seed));
    const { random } = this;
    const options = { dtype: plan.parameters, random };
    this.#table =
      plan.vocabulary > 0 ? new Embedding(backend, plan.vocabulary, plan.features, options) : undefined;
    this.#layers = new Layers(backend, plan, random);
    const table = this.#table ? [["table.weight", this.#table.weight] as const] : [];
    this.#parameters = new Map([...table, ...this.#layers.namedParameters()]);
    [...this.#parameters].forEach(([name, parameter], i) => {
      this.#write(name, i, 0, 0);
      if (plan.fuses && /[wW]eight$/.test(name) && !/[nN]orm/.test(name) && !name.startsWith("table")) {
        const { shape, size } = parameter.tensor;
        parameter.mainGrad = persistent(zeros(backend, "f32", shape).write(new Float32Array(size).fill(3)));
      }
    });
    this.#freeze(false);
    const { kind, ...hyperparameters } = optimizerOptions(plan);
    if (this.#parameters.size > 0)
      this.#optimizer =
        kind === "SGD"
          ? new SGD(this.#parameters, hyperparameters)
          : new AdamW(this.#parameters, hyperparameters);
    this.#recipe = libraryRecipe(plan.quantization);
  }

  #freeze(beforeStep: boolean): void {
    [...this.#parameters].forEach(([name, parameter], i) => {
      parameter.requiresGrad = !isFrozen(this.plan, name, i, beforeStep);
    });
  }

  #write(name: string, i: number, step: number, call: number): void {
    using _ = new Scope();
    const { plan } = this;
    const parameter = this.#parameters.get(name);
    if (!parameter) return;
    const { shape } = parameter;
    const [rows, columns] = shape.length === 2 ? (shape as [number, number]) : [1, shape[0] as number];
    const values = drawNumbers(
      plan,
      parameterSeed(plan, i, step, call),
      [rows, columns],
      parameterScale(name),
    );
    parameter.tensor.write(this.#tensor(values, shape, plan.parameters).dataSync());
  }

  #tensor(values: Float32Array, shape: readonly number[], dtype: WideDType): Tensor<WideDType> {
    return castTo(tensor(this.backend, values, shape), dtype);
  }

  #ids(values: readonly number[]): Tensor<"i32"> {
    return tensor(this.backend, Int32Array.from(values), [values.length], "i32");
  }

  #loss(y: Variable, step: number, call: number): Variable {
    const { plan } = this;
    const seed = inputSeed(plan, "target", step, call);
    const [rows, columns] = y.shape as [number, number];
    if (plan.loss === "gradient") return y;
    if (plan.loss === "mse")
      return functional.mseLoss(
        y,
        this.#tensor(drawNumbers(plan, seed, [rows, columns]), y.shape, activationType(plan)),
      );
    const targets = this.#ids(drawClasses(seed, rows, columns));
    return functional.crossEntropyLoss(y, targets, plan.loss === "smoothed" ? SMOOTHING_OPTIONS : {});
  }

  microbatch(step: number, call: number): StepResults {
    using _ = new Scope();
    const { plan } = this;
    const actions = stepActions(plan, step);
    const evaluates = plan.evaluates || call === EVALUATION;
    const { rewritten, skip, isFirstMicrobatch } =
      (call === EVALUATION ? actions.evaluated : actions.calls[call]) ?? {};
    if (rewritten) [...this.#parameters.keys()].forEach((name, i) => void this.#write(name, i, step, call));
    const layerCall: Call = {
      ...(isFirstMicrobatch === undefined ? {} : { isFirstMicrobatch }),
      ...(skip === undefined ? {} : { skipFp8WeightUpdate: tensor(this.backend, [skip]) }),
    };
    const table = this.#table;
    const shape = [plan.rows, plan.features] as const;
    const x = table
      ? undefined
      : new Variable(
          this.#tensor(drawNumbers(plan, inputSeed(plan, "x", step, call), shape), shape, plan.input),
          plan.start === "variable",
        );
    const body = (): Variable => {
      const root =
        x ??
        (table as Embedding).forward(
          this.#ids(drawClasses(inputSeed(plan, "ids", step, call), plan.rows, plan.vocabulary)),
        );
      return this.#loss(this.#layers.forward(root, layerCall), step, call);
    };
    const recipe = actions.recipe ? recipeByName(actions.recipe) : this.#recipe;
    const runForward = (): Variable => (recipe ? autocast({ recipe }, body) : body());
    const loss = evaluates ? noGrad(runForward) : runForward();
    if (loss.requiresGrad) {
      const { dtype } = loss.tensor;
      const grad = (): Tensor =>
        this.#tensor(
          drawNumbers(plan, inputSeed(plan, "grad", step, call), loss.shape as [number, number], 0.5),
          loss.shape,
          dtype as WideDType,
        );
      loss.backward(plan.loss === "gradient" ? grad() : undefined);
      if (plan.delays) this.#layers.backwardDw();
    }
    const grads = [...this.#parameters].flatMap(([name, { grad, mainGrad }]) => [
      ...(grad ? [[`${name} grad`, toMatrix(grad)] as const] : []),
      ...(mainGrad ? [[`${name} mainGrad`, toMatrix(mainGrad)] as const] : []),
    ]);
    const dx = x?.grad ? [["dx", toMatrix(x.grad)] as const] : [];
    const results = new Map<string, Matrix>([
      ["result", toMatrix(loss.tensor)],
      ...dx,
      ...grads,
      ...this.#scales(),
    ]);
    x?.zeroGrad();
    return results;
  }

  #scales(): readonly (readonly [string, Matrix])[] {
    return [...this.#layers.namedQuantizations()].flatMap(([name, quantization]) => {
      const snapshot = quantization.snapshotSync();
      const row = (data: Float32Array): Matrix => ({ data, shape: [1, data.length], dtype: "f32" });
      return Object.entries(snapshot ?? {}).flatMap(([pass, { scale, amaxHistory }]) => [
        [`${name} ${pass} scale`, row(scale)] as const,
        [`${name} ${pass} amaxHistory`, row(amaxHistory)] as const,
      ]);
    });
  }

  step(step: number): StepResults {
    using _ = new Scope();
    const { plan } = this;
    const optimizer = this.#optimizer;
    if (!optimizer) return new Map();
    const { stepping, zeroes, state } = stepActions(plan, step);
    this.#freeze(true);
    const norms: (readonly [string, Matrix])[] = [];
    const hasGradients = [...this.#parameters.values()].some(({ grad, mainGrad }) => grad ?? mainGrad);
    if (stepping === "clipped" && hasGradients) {
      const { norm, factor } = clipGradNorm(optimizer, MAX_NORM);
      norms.push(["norm", toMatrix(norm)], ["factor", toMatrix(factor)]);
      optimizer.step({ gradScale: factor });
    } else if (stepping === "scaled") optimizer.step({ gradScale: tensor(this.backend, [GRAD_SCALE]) });
    else if (stepping === "noop") optimizer.step({ noop: tensor(this.backend, [step === 0 ? 1 : 0]) });
    else if (stepping !== "none") optimizer.step();
    if (zeroes) optimizer.zeroGrad();
    if (state === "saved") this.#save(optimizer);
    if (state === "loaded") this.#load(optimizer);
    this.#freeze(false);
    const slots = [...optimizer.slots].flatMap(([name, { parameter, master, buffers, steps }]) => [
      [name, toMatrix(parameter.tensor)] as const,
      [`${name} steps`, ofRow([steps], "f32")] as const,
      ...[["master", master] as const, ...buffers].map(
        ([state, data]) => [`${name} ${state}`, toMatrix(data)] as const,
      ),
      ...(parameter.mainGrad ? [[`${name} mainGrad`, toMatrix(parameter.mainGrad)] as const] : []),
    ]);
    return new Map([...norms, ...slots]);
  }

  /** What `saveCheckpoint` saves. */
  #save(optimizer: SGD | AdamW): void {
    const { random } = this;
    const tensors = optimizerTensors(optimizer).map((x) => [x, x.dataSync().slice()] as const);
    const steps = [...optimizer.slots.values()].map((slot) => [slot, slot.steps] as const);
    const scales = [...this.#layers.namedQuantizations().values()].map(
      (quantization) => [quantization, quantization.snapshotSync()] as const,
    );
    this.#saved = { tensors, steps, scales, random: random.current };
  }

  /** As `loadCheckpoint`. */
  #load(optimizer: SGD | AdamW): void {
    optimizer.zeroGrad();
    const { tensors, steps, scales, random } = this.#saved ?? {};
    for (const [x, data] of tensors ?? []) x.write(data as Float32Array);
    for (const [slot, count] of steps ?? []) slot.steps = count;
    for (const [quantization, snapshot] of scales ?? []) quantization.restore(snapshot);
    Object.assign(this.random, random);
  }

  #saved: SavedRun | undefined;

  [Symbol.dispose](): void {
    this.#optimizer?.dispose();
    this.#table?.dispose();
    this.#layers.dispose();
  }
}

/** The values of a wide tensor, converted to f32 without the library. */
function toMatrix(x: Tensor): Matrix {
  // remainders of masters are compared as integers, and codes as values
  if (x.dtype === "u16") return ofRow([...(x.dataSync() as Uint16Array)], "f32");
  const hostTensor = download((x.dtype === "e4m3" ? decode(x) : x) as Tensor<WideDType>);
  return { data: wideValues(hostTensor), shape: hostTensor.matrix, dtype: hostTensor.dtype };
}
