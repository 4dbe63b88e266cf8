/** Runs a plan in plain arithmetic. */

import type { DatapathFamily } from "../../../../src/formats/datapath.js";
import {
  activation,
  add,
  attention,
  crossEntropyLoss,
  embedding,
  mseLoss,
} from "../../../oracle/training/functions.js";
import { linear, mlp, normLinear } from "../../../oracle/training/layers.js";
import {
  type CallModel,
  endPass,
  LinearModel,
  type ParameterModel,
  type Run,
} from "../../../oracle/training/linear.js";
import { type Matrix, matrix, ofRow } from "../../../oracle/training/matrix.js";
import { type NormModel, normLayer } from "../../../oracle/training/norms.js";
import { OptimizerRun } from "../../../oracle/training/optimizers.js";
import { Tape, Value } from "../../../oracle/training/tape.js";
import { ACTIVATIONS, RECIPES } from "./options.js";
import {
  activationType,
  BATCH,
  type CellPlan,
  drawClasses,
  drawNumbers,
  EVALUATION,
  GRAD_SCALE,
  HEADS,
  isFrozen,
  MAX_NORM,
  mayPassCodes,
  optimizerOptions,
  SMOOTHING_OPTIONS,
  type StepPlan,
  stepActions,
} from "./plan.js";
import { inputSeed, parameterScale, parameterSeed } from "./seeds.js";
import type { StepResults } from "./seen.js";

type Apply = (tape: Tape, x: Value, call: CallModel) => Value;

export class StepModel {
  readonly run: Run;
  readonly parameters = new Map<string, ParameterModel>();
  readonly linears = new Map<string, LinearModel>();
  readonly #cells: readonly Apply[];
  readonly #optimizer: OptimizerRun;

  constructor(
    readonly plan: StepPlan,
    family: DatapathFamily,
    offset: bigint,
  ) {
    this.run = {
      family,
      random: { seed: BigInt(plan.seed), offset },
      recipe: undefined,
      usedSlots: { forward: new Set(), backward: new Set() },
    };
    if (plan.vocabulary > 0) this.#parameter("table.weight", [plan.vocabulary, plan.features]);
    this.#cells = plan.cells.map((cell, i) => this.#cell(cell, `cell${i}`));
    this.#optimizer = new OptimizerRun(optimizerOptions(plan), [...this.parameters.values()]);
  }

  #parameter(name: string, shape: readonly [number, number]): ParameterModel {
    const { plan } = this;
    const i = this.parameters.size;
    const values = drawNumbers(plan, parameterSeed(plan, i), shape, parameterScale(name));
    const parameter = new Value(
      matrix(shape, plan.parameters, (r, c) => values[r * shape[1] + c] as number),
      !plan.evaluates && !isFrozen(plan, name, i),
    );
    this.parameters.set(name, parameter);
    return parameter;
  }

  #linear(name: string, from: number, to: number, prefix = ""): LinearModel {
    const { bias, fuses } = this.plan;
    const parameterName = (suffix: string): string =>
      prefix ? `${name}.${prefix}${suffix}` : `${name}.${suffix.toLowerCase()}`;
    const weight = this.#parameter(parameterName("Weight"), [to, from]);
    const biasParameter = bias ? this.#parameter(parameterName("Bias"), [1, to]) : undefined;
    if (fuses) weight.mainGrad = matrix([to, from], "f32", () => 3);
    const layer = new LinearModel(weight, biasParameter, fuses);
    this.linears.set(`${name}.${prefix || "linear"}`, layer);
    return layer;
  }

  #norm(name: string, features: number, weight: string, bias: string): NormModel {
    const { normalization, eps, zeroCenteredGamma } = this.plan;
    const gamma = this.#parameter(`${name}.${weight}`, [1, features]);
    const beta =
      normalization === "LayerNorm" ? this.#parameter(`${name}.${bias}`, [1, features]) : undefined;
    return { gamma, beta, eps, zeroCenteredGamma };
  }

  #cell(cell: CellPlan, name: string): Apply {
    const body = this.#body(cell, name);
    if (cell.wrap === "residual") return (tape, x, call) => add(tape, x, body(tape, x, call));
    if (cell.wrap === "twice") return (tape, x, call) => body(tape, body(tape, x, call), call);
    return body;
  }

  #body({ layer, from, to, middle }: CellPlan, name: string): Apply {
    const { plan, run } = this;
    const activationOptions = ACTIVATIONS[plan.activation];
    switch (layer) {
      case "linear": {
        const layerModel = this.#linear(`${name}.linear`, from, to);
        return (tape, x, call) => linear(run, tape, x, layerModel, call);
      }
      case "norm": {
        const normModel = this.#norm(`${name}.norm`, from, "weight", "bias");
        return (tape, x) => normLayer(tape, x, normModel);
      }
      case "normLinear":
      case "returned":
      case "attention": {
        const norm = this.#norm(`${name}.linear`, from, "layerNormWeight", "layerNormBias");
        const layerModel = this.#linear(`${name}.linear`, from, layer === "attention" ? 3 * to : to);
        const layers = { norm, layer: layerModel };
        return (tape, x, call) => {
          const [out, normResult] = normLinear(run, tape, x, layers, call, layer === "returned") as [
            Value,
            Value?,
          ];
          if (normResult) return add(tape, out, normResult);
          if (layer !== "attention") return out;
          return attention(run, tape, out, {
            batch: BATCH,
            heads: HEADS,
            causal: plan.causal,
          });
        };
      }
      case "mlp": {
        const norm = this.#norm(`${name}.mlp`, from, "layerNormWeight", "layerNormBias");
        const fc1 = this.#linear(`${name}.mlp`, from, activationOptions.gated ? 2 * middle : middle, "fc1");
        const fc2 = this.#linear(`${name}.mlp`, middle, from, "fc2");
        return (tape, x, call) => mlp(run, tape, x, { norm, fc1, fc2, act: activationOptions }, call);
      }
      case "activation":
        return (tape, x) => activation(tape, x, activationOptions);
      case "gate": {
        const layerModel = this.#linear(`${name}.linear`, from, activationOptions.gated ? 2 * to : to);
        return (tape, x, call) => activation(tape, linear(run, tape, x, layerModel, call), activationOptions);
      }
      case "between": {
        const first = this.#linear(`${name}.first`, from, middle);
        const second = this.#linear(`${name}.second`, middle, to);
        const codes = mayPassCodes(plan);
        return (tape, x, call) => {
          const h = linear(run, tape, x, first, { ...call, fp8Output: codes });
          return linear(run, tape, h, second, { ...call, fp8Grad: codes && h.requiresGrad });
        };
      }
    }
  }

  #start(tape: Tape, step: number, call: number): { readonly x: Value; readonly root: Value } {
    const { plan } = this;
    const table = this.parameters.get("table.weight");
    if (table) {
      const ids = drawClasses(inputSeed(plan, "ids", step, call), plan.rows, plan.vocabulary);
      return { x: table, root: embedding(tape, table, ids) };
    }
    const shape = [plan.rows, plan.features] as const;
    const values = drawNumbers(plan, inputSeed(plan, "x", step, call), shape);
    const x = new Value(
      matrix(shape, plan.input, (r, c) => values[r * shape[1] + c] as number),
      plan.start === "variable" && !plan.evaluates && call !== EVALUATION,
    );
    return { x, root: x };
  }

  #loss(tape: Tape, y: Value, step: number, call: number): Value {
    const { plan } = this;
    const { shape } = y.wide;
    const seed = inputSeed(plan, "target", step, call);
    if (plan.loss === "mse") {
      const values = drawNumbers(plan, seed, shape);
      return mseLoss(
        tape,
        y,
        matrix(shape, activationType(plan), (r, c) => values[r * shape[1] + c] as number),
      );
    }
    if (plan.loss === "gradient") return y;
    const options = plan.loss === "smoothed" ? SMOOTHING_OPTIONS : {};
    return crossEntropyLoss(tape, y, drawClasses(seed, shape[0], shape[1]), options);
  }

  /** Runs one microbatch and returns everything observable after it. */
  microbatch(step: number, call: number): StepResults {
    const { plan, run } = this;
    const actions = stepActions(plan, step);
    const evaluates = plan.evaluates || call === EVALUATION;
    const { rewritten, ...callOptions } =
      (call === EVALUATION ? actions.evaluated : actions.calls[call]) ?? {};
    if (rewritten) this.#rewrite(step, call);
    if (call === EVALUATION) this.#freeze(() => true);
    const tape = new Tape();
    run.recipe = actions.recipe ? RECIPES[actions.recipe] : plan.quantization;
    const { x, root } = this.#start(tape, step, call);
    const y = this.#cells.reduce((h, cell) => cell(tape, h, callOptions), root);
    const loss = this.#loss(tape, y, step, call);
    run.recipe = undefined;
    if (!evaluates) endPass(run, "forward");
    if (call === EVALUATION) this.#freeze((name, i) => plan.evaluates || isFrozen(plan, name, i));
    if (loss.requiresGrad) {
      const { shape, dtype } = loss.wide;
      const values = drawNumbers(plan, inputSeed(plan, "grad", step, call), shape, 0.5);
      tape.backward(
        loss,
        plan.loss === "gradient"
          ? matrix(shape, dtype, (r, c) => values[r * shape[1] + c] as number)
          : ofRow([1], "f32"),
      );
      endPass(run, "backward");
    }
    const grads = [...this.parameters].flatMap(([name, { grad, mainGrad }]) => [
      ...(grad ? [[`${name} grad`, grad] as const] : []),
      ...(mainGrad ? [[`${name} mainGrad`, mainGrad] as const] : []),
    ]);
    const dx = plan.vocabulary === 0 && x.grad ? [["dx", x.grad] as const] : [];
    return new Map<string, Matrix>([["result", loss.wide], ...dx, ...grads, ...this.#scales()]);
  }

  #scales(): readonly (readonly [string, Matrix])[] {
    return [...this.linears].flatMap(([name, { slots }]) =>
      slots
        ? (["forward", "backward"] as const).flatMap((pass) => [
            [`${name} ${pass} scale`, ofRow(slots[pass].scale, "f32")] as const,
            [`${name} ${pass} amaxHistory`, ofRow(slots[pass].history.flat(), "f32")] as const,
          ])
        : [],
    );
  }

  /** Changes the layers' weights between two calls, to test whether a cached weight is used. */
  #rewrite(step: number, call: number): void {
    const { plan } = this;
    [...this.parameters].forEach(([name, parameter], i) => {
      const { shape, dtype } = parameter.wide;
      const values = drawNumbers(plan, parameterSeed(plan, i, step, call), shape, parameterScale(name));
      parameter.data = matrix(shape, dtype, (r, c) => values[r * shape[1] + c] as number);
    });
  }

  #freeze(isFrozen: (name: string, i: number) => boolean): void {
    [...this.parameters].forEach(([name, parameter], i) => {
      parameter.requiresGrad = !isFrozen(name, i);
    });
  }

  #load: () => void = () => this.#optimizer.zeroGrad();

  /** Saves all state for `#load`. */
  #save(): void {
    const { random } = this.run;
    const { offset } = random;
    const copy = (x: Matrix): Matrix => ({ ...x, data: x.data.slice() });
    const slots = this.#optimizer.slots.map((slot) => {
      const { parameter, ...states } = slot;
      const data = copy(parameter.wide);
      return () => {
        parameter.data = copy(data);
        Object.assign(slot, states);
      };
    });
    const scales = [...this.linears.values()].map((layer) => layer.saved());
    this.#load = () => {
      this.#optimizer.zeroGrad();
      for (const load of [...slots, ...scales]) load();
      random.offset = offset;
    };
  }

  /** Runs the optimizer step and returns everything observable after it. */
  step(step: number): StepResults {
    const { plan } = this;
    if (this.parameters.size === 0) return new Map();
    const optimizer = this.#optimizer;
    const { stepping, zeroes, state } = stepActions(plan, step);
    this.#freeze((name, i) => plan.evaluates || isFrozen(plan, name, i, true));
    const norms: (readonly [string, Matrix])[] = [];
    const hasGradients = optimizer.slots.some(({ parameter: { grad, mainGrad } }) => grad ?? mainGrad);
    if (stepping === "clipped" && hasGradients) {
      const { norm, factor } = optimizer.norm(MAX_NORM);
      norms.push(["norm", ofRow([norm], "f32")], ["factor", ofRow([factor], "f32")]);
      optimizer.step({ gradScale: factor });
    } else if (stepping === "scaled") optimizer.step({ gradScale: GRAD_SCALE });
    else if (stepping === "noop") optimizer.step({ noop: step === 0 ? 1 : 0 });
    else if (stepping !== "none") optimizer.step();
    if (zeroes) optimizer.zeroGrad();
    if (state === "saved") this.#save();
    if (state === "loaded") this.#load();
    this.#freeze((name, i) => plan.evaluates || isFrozen(plan, name, i));
    const names = [...this.parameters.keys()];
    const slots = optimizer.slots.flatMap((slot, i) => {
      const name = names[i] as string;
      const { parameter, steps } = slot;
      return [
        [name, parameter.wide] as const,
        [`${name} steps`, ofRow([steps], "f32")] as const,
        ...optimizer.namedTensors(slot).map(([state, { type, values }]) => {
          // codes of e4m3 are compared as values, remainders as integers
          const dtype = type === "e4m3" || type === "u16" ? "f32" : type;
          return [`${name} ${state}`, { ...ofRow([...values], "f32"), dtype }] as const;
        }),
        ...(parameter.mainGrad ? [[`${name} mainGrad`, parameter.mainGrad] as const] : []),
      ];
    });
    return new Map<string, Matrix>([...norms, ...slots]);
  }
}
