/** A model of optimizers over parameters: f32 master weights, optimizer state, clipping (numerics.md §9). */

import { mul } from "../core/rational.js";
import { gradNorm } from "../update/grad-norm.js";
import { adamw, sgd } from "../update/optimizer.js";
import type { ParameterModel } from "./linear.js";
import { cast, type Matrix, sum } from "./matrix.js";
import {
  divided,
  joined,
  type StateType,
  type StoredState,
  stored,
  valuesOf,
  zeroState,
} from "./stored-state.js";

/** The types of the states. The default of each is f32. */
interface StateTypes {
  readonly masterWeightDtype?: "f32" | "f16";
  readonly storeParamRemainders?: boolean;
}

export type OptimizerModel =
  | (StateTypes & {
      readonly kind: "SGD";
      readonly momentumDtype?: StateType;
      readonly learningRate: number;
      readonly weightDecay: number;
      readonly momentum: number;
      readonly dampening: number;
      readonly nesterov: boolean;
    })
  | (StateTypes & {
      readonly kind: "AdamW";
      readonly expAvgDtype?: StateType;
      readonly expAvgSqDtype?: StateType;
      readonly learningRate: number;
      readonly weightDecay: number;
      readonly beta1: number;
      readonly beta2: number;
      readonly eps: number;
      readonly decoupled: boolean;
    });

export interface SlotModel {
  readonly parameter: ParameterModel;
  master: StoredState;
  m: StoredState;
  v: StoredState;
  /** Whether the parameter has codes. `parameter` then has the dtype of its values. Default false. */
  isQuantized?: boolean;
  /** The f32 values from which the last step wrote the parameter. */
  written?: readonly number[];
  steps: number;
}

/** A tensor of a state, as the values of its elements. */
export interface StoredTensor {
  readonly type: StateType;
  readonly values: readonly number[];
}

/** The values of a slot during a step. */
interface SlotValues {
  readonly m: number[];
  readonly v: number[];
  readonly steps: number;
}

/** The gradient for the step: the sum of `grad` and `mainGrad` if a weight has both. */
function readGradient({ grad, mainGrad }: ParameterModel): Matrix | undefined {
  return grad && mainGrad ? sum(mainGrad, grad, "f32") : (mainGrad ?? grad);
}

export class OptimizerRun {
  readonly slots: readonly SlotModel[];

  constructor(
    readonly options: OptimizerModel,
    parameters: readonly ParameterModel[],
  ) {
    this.slots = parameters.map((parameter) => {
      const { wide } = parameter;
      const [m, v] = this.#types.moments.map((type) => zeroState(type, wide.data.length)) as [
        StoredState,
        StoredState,
      ];
      return { parameter, master: stored([...wide.data], this.masterType({ parameter })), m, v, steps: 0 };
    });
  }

  /** The type of a master. An f32 parameter serves as its own master. */
  masterType({ parameter: { wide }, isQuantized }: Pick<SlotModel, "parameter" | "isQuantized">): StateType {
    if (wide.dtype === "f32") return "f32";
    const hasRemainder = this.options.storeParamRemainders && wide.dtype === "bf16" && !isQuantized;
    return hasRemainder ? "u16" : this.#types.master;
  }

  /** The master of a slot as its stored form. */
  #masterOf({ parameter: { wide }, master }: SlotModel): StoredState {
    return wide.dtype === "f32" ? stored([...wide.data], "f32") : master;
  }

  /** The values of the master with which a step computes. */
  #masterValues(slot: SlotModel): readonly number[] {
    if (this.masterType(slot) !== "u16") return valuesOf(this.#masterOf(slot));
    const { data } = slot.parameter.wide;
    return slot.master.codes.map((remainder, i) => joined(data[i] as number, remainder));
  }

  get #types(): { readonly moments: readonly [StateType, StateType]; readonly master: StateType } {
    const { options } = this;
    const { masterWeightDtype: master = "f32" } = options;
    if (options.kind === "SGD") return { moments: [options.momentumDtype ?? "f32", "f32"], master };
    return { moments: [options.expAvgDtype ?? "f32", options.expAvgSqDtype ?? "f32"], master };
  }

  norm(maxNorm: number): { readonly norm: number; readonly factor: number } {
    const grads = this.slots.flatMap(({ parameter }) => readGradient(parameter) ?? []);
    return gradNorm(
      grads.map(({ data }) => [...data]),
      maxNorm,
    );
  }

  step({ gradScale, noop }: { readonly gradScale?: number; readonly noop?: number } = {}): void {
    for (const slot of this.slots) {
      const { parameter } = slot;
      const grad = parameter.requiresGrad ? readGradient(parameter) : undefined;
      if (!grad) continue;
      slot.steps++;
      if (noop === 1) continue;
      const master = this.#masterValues(slot);
      const values = { m: [...valuesOf(slot.m)], v: [...valuesOf(slot.v)], steps: slot.steps };
      const newMaster = master.map((p, i) => {
        const gradient = grad.data[i] as number;
        return this.#element(values, i, p, gradScale === undefined ? gradient : mul(gradient, gradScale));
      });
      const type = this.masterType(slot);
      const data = Float32Array.from(type === "u16" ? newMaster.map((x) => divided(x).parameter) : newMaster);
      parameter.data = cast({ ...parameter.wide, dtype: "f32", data }, parameter.wide.dtype);
      const { moments } = this.#types;
      slot.written = newMaster;
      slot.master = stored(newMaster, type);
      slot.m = stored(values.m, moments[0]);
      slot.v = stored(values.v, moments[1]);
    }
  }

  #element({ m, v, steps }: SlotValues, i: number, p: number, g: number): number {
    const { options } = this;
    if (options.kind === "SGD") {
      const result = sgd({ ...options, g, p, m: m[i] as number, first: steps === 1 });
      m[i] = result.m;
      return result.p;
    }
    const result = adamw({ ...options, g, p, m: m[i] as number, v: v[i] as number, step: steps });
    m[i] = result.m;
    v[i] = result.v;
    return result.p;
  }

  /** The tensors of a slot that an optimizer stores, by their names: the codes of each state, and its scale if it has one. */
  namedTensors(slot: SlotModel): readonly (readonly [string, StoredTensor])[] {
    const { options } = this;
    const { moments } = this.#types;
    const hasMomentum = options.kind === "AdamW" || options.momentum !== 0;
    const states = [
      ["master", this.masterType(slot), this.#masterOf(slot)] as const,
      ...(hasMomentum ? [["m", moments[0], slot.m] as const] : []),
      ...(options.kind === "AdamW" ? [["v", moments[1], slot.v] as const] : []),
    ];
    return states.flatMap(([name, type, { codes, scale }]) => [
      [name, { type, values: codes }] as const,
      ...(scale === undefined ? [] : [[`${name}.scale`, { type: "f32", values: [scale] }] as const]),
    ]);
  }

  zeroGrad(): void {
    for (const { parameter } of this.slots) {
      parameter.grad = undefined;
      if (parameter.mainGrad)
        parameter.mainGrad = { ...parameter.mainGrad, data: parameter.mainGrad.data.map(() => 0) };
    }
  }
}
