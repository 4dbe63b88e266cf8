/** A model of optimizers over parameters: f32 master weights, optimizer state, clipping (numerics.md §9). */

import { mul } from "../core/rational.js";
import { gradNorm } from "../update/grad-norm.js";
import { adamw, sgd } from "../update/optimizer.js";
import type { ParameterModel } from "./linear.js";
import { cast, type Matrix, sum } from "./matrix.js";

export type OptimizerModel =
  | {
      readonly kind: "SGD";
      readonly learningRate: number;
      readonly weightDecay: number;
      readonly momentum: number;
      readonly dampening: number;
      readonly nesterov: boolean;
    }
  | {
      readonly kind: "AdamW";
      readonly learningRate: number;
      readonly weightDecay: number;
      readonly beta1: number;
      readonly beta2: number;
      readonly eps: number;
      readonly decoupled: boolean;
    };

export interface SlotModel {
  readonly parameter: ParameterModel;
  master: Matrix;
  readonly m: Float32Array;
  readonly v: Float32Array;
  steps: number;
}

/** The gradient for the step: the sum of `grad` and `mainGrad` if a weight has both. */
function gradientOf({ grad, mainGrad }: ParameterModel): Matrix | undefined {
  return grad && mainGrad ? sum(mainGrad, grad, "f32") : (mainGrad ?? grad);
}

export class OptimizerRun {
  readonly slots: readonly SlotModel[];

  constructor(
    readonly options: OptimizerModel,
    parameters: readonly ParameterModel[],
  ) {
    this.slots = parameters.map((parameter) => {
      const master = cast(parameter.wide, "f32");
      const zeros = () => new Float32Array(master.data.length);
      return { parameter, master, m: zeros(), v: zeros(), steps: 0 };
    });
  }

  norm(maxNorm: number): { readonly norm: number; readonly factor: number } {
    const grads = this.slots.flatMap(({ parameter }) => gradientOf(parameter) ?? []);
    return gradNorm(
      grads.map(({ data }) => [...data]),
      maxNorm,
    );
  }

  step({ gradScale, noop }: { readonly gradScale?: number; readonly noop?: number } = {}): void {
    for (const slot of this.slots) {
      const { parameter } = slot;
      const grad = parameter.requiresGrad ? gradientOf(parameter) : undefined;
      if (!grad) continue;
      slot.steps++;
      if (noop === 1) continue;
      // an f32 parameter serves as its own master weight
      if (parameter.wide.dtype === "f32") slot.master = parameter.wide;
      const data = slot.master.data.map((p, i) => {
        const gradient = grad.data[i] as number;
        return this.#element(slot, i, p, gradScale === undefined ? gradient : mul(gradient, gradScale));
      });
      slot.master = { ...slot.master, data };
      parameter.data = cast(slot.master, parameter.wide.dtype);
    }
  }

  #element({ m, v, steps }: SlotModel, i: number, p: number, g: number): number {
    const { options } = this;
    if (options.kind === "SGD") {
      const updated = sgd({ ...options, g, p, m: m[i] as number, first: steps === 1 });
      m[i] = updated.m;
      return updated.p;
    }
    const updated = adamw({ ...options, g, p, m: m[i] as number, v: v[i] as number, step: steps });
    m[i] = updated.m;
    v[i] = updated.v;
    return updated.p;
  }

  zeroGrad(): void {
    for (const { parameter } of this.slots) {
      parameter.grad = undefined;
      if (parameter.mainGrad)
        parameter.mainGrad = { ...parameter.mainGrad, data: parameter.mainGrad.data.map(() => 0) };
    }
  }
}
