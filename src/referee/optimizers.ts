/** Models of fused optimizers. Their results are all tensors of all lists, including the gradients, list by list. */
import type { Backend } from "../backends/backend.js";
import { elementCount } from "../tensor/shape.js";
import type { Call, Model } from "./call.js";
import { roundedValue, toFloat32 } from "./conversions.js";
import { fma } from "./float32.js";
import { readLists } from "./lists.js";
import { NotModelled } from "./not-modelled.js";
import { powf } from "./powers.js";
import type { Value } from "./value.js";

const { fround, sqrt } = Math;

/** The lists with these names that are not empty. */
function nonEmptyLists(call: Call, names: readonly string[]): readonly (readonly Value[])[] {
  const presentNames = names.filter((name) => call.tensors(name).length > 0);
  return readLists(call, presentNames);
}

/** Throws `NotModelled` if the operator has a gradient scale, or a flag that makes it skip the step. */
function requireNoGradScale(call: Call): void {
  call.requireDefault("grad_scale", null);
  call.requireDefault("found_inf", null);
}

/** 1 - powf(beta, step). */
function biasCorrection(backend: Backend, beta: number, step: number): number {
  const power = powf(backend, Float32Array.of(beta), Float32Array.of(step));
  return fround(1 - (power[0] as number));
}

/**
 * Adam and AdamW in f32 (fused_adam_utils.cuh). g is the gradient, m is exp_avg, and v is exp_avg_sq:
 *
 * - AdamW: param = fma(-(lr * weight_decay), param, param). Adam: g = fma(param, weight_decay, g)
 * - m = fma(beta1, m, fma(-beta1, g, g))
 * - s = g * g; v = fma(beta2, v, fma(-beta2, s, s)). With amsgrad, v is then the maximum of all v so far.
 * - param = param - lr / (1 - powf(beta1, step)) * m / (sqrtf(v) / sqrtf(1 - powf(beta2, step)) + eps), from left to right
 *
 * Scalar arguments are rounded to f32 first. The new m and v are rounded to the dtype only when they are stored. One exception is
 * known from the bits of an H200, not from the source: without amsgrad, in f32 tensors whose number of elements is a multiple of
 * 4, Adam computes g of elements 0, 4, 8, … by a rounded product and a rounded sum instead of an fma.
 */
export function adam(isDecoupled: boolean): Model {
  return (call) => {
    requireNoGradScale(call);
    const { backend } = call;
    const [lr, beta1, beta2, decay, eps] = ["lr", "beta1", "beta2", "weight_decay", "eps"].map((name) =>
      fround(call.number(name)),
    ) as [number, number, number, number, number];
    const [isMaximized, isAmsgrad] = [call.boolean("maximize", false), call.boolean("amsgrad", false)];
    const lists = nonEmptyLists(call, ["self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"]);
    if (isAmsgrad !== lists.length > 4)
      throw new NotModelled("amsgrad without lists of maxima, or the reverse");
    const steps = call.tensors("state_steps");
    const results = lists.map((list) => [...list]);
    const factor = fround(lr * decay);
    for (const [i, parameter] of (lists[0] as readonly Value[]).entries()) {
      const [params, grads, means, squares, maxima] = lists.map((list) =>
        toFloat32(backend, list[i] as Value).slice(),
      ) as [Float32Array, Float32Array, Float32Array, Float32Array, Float32Array | undefined];
      const step = toFloat32(backend, steps[i] as Value)[0] as number;
      const stepSize = fround(lr / biasCorrection(backend, beta1, step));
      const correction = fround(sqrt(biasCorrection(backend, beta2, step)));
      const isSplit = parameter.dtype === "F32" && !isAmsgrad && params.length % 4 === 0;
      for (let k = 0; k < params.length; k++) {
        let param = params[k] as number;
        let grad = isMaximized ? -(grads[k] as number) : (grads[k] as number);
        if (decay !== 0) {
          if (isDecoupled) param = fma(-factor, param, param);
          else grad = isSplit && k % 4 === 0 ? fround(fround(param * decay) + grad) : fma(param, decay, grad);
        }
        const square = fround(grad * grad);
        const mean = fma(beta1, means[k] as number, fma(-beta1, grad, grad));
        let second = fma(beta2, squares[k] as number, fma(-beta2, square, square));
        means[k] = mean;
        squares[k] = second;
        if (maxima) {
          const maximum = maxima[k] as number;
          if (!(maximum < second)) second = maximum;
          maxima[k] = second;
        }
        const denominator = fround(fround(fround(sqrt(second)) / correction) + eps);
        params[k] = param - fround(fround(stepSize * mean) / denominator);
      }
      for (const [list, values] of [
        [0, params],
        [2, means],
        [3, squares],
        [4, maxima],
      ] as const)
        if (values)
          (results[list] as Value[])[i] = roundedValue(backend, parameter.dtype, parameter.shape, values);
    }
    return results.flat();
  };
}

/** Whether a call of Adam is of a kind that was compared: without weight decay, or all numbers of elements are multiples of 4. */
export function isComparedAdam(call: Call): boolean {
  const isVectorized = call.tensors("self").every(({ shape }) => elementCount(shape) % 4 === 0);
  return isVectorized || call.number("weight_decay") === 0;
}

/**
 * SGD in f32 (FusedSgdKernel.cu). Scalar arguments are rounded to f32 first. g is the gradient, and b is the momentum buffer:
 *
 * - g = fma(weight_decay, param, g)
 * - With momentum: b = g in the first step, else b = fma(1 - dampening, g, momentum * b)
 * - With momentum: g = b, or g = fma(momentum, b, g) with Nesterov's momentum
 * - param = fma(-lr, g, param)
 *
 * The new b is rounded to the dtype only when it is stored.
 */
export const sgd: Model = (call) => {
  requireNoGradScale(call);
  const { backend } = call;
  const [lr, momentum, decay, dampening] = ["lr", "momentum", "weight_decay", "dampening"].map((name) =>
    fround(call.number(name)),
  ) as [number, number, number, number];
  const [isNesterov, isFirst] = [call.boolean("nesterov", false), call.boolean("is_first_step", false)];
  const rate = call.boolean("maximize", false) ? lr : -lr;
  const lists = nonEmptyLists(call, ["self", "grads", "momentum_buffer_list"]);
  const results = lists.map((list) => [...list]);
  for (const [i, parameter] of (lists[0] as readonly Value[]).entries()) {
    const [params, grads, buffers] = lists.map((list) => toFloat32(backend, list[i] as Value).slice()) as [
      Float32Array,
      Float32Array,
      Float32Array | undefined,
    ];
    for (let k = 0; k < params.length; k++) {
      const param = params[k] as number;
      let grad = grads[k] as number;
      if (decay !== 0) grad = fround(fma(decay, param, grad));
      if (buffers) {
        const buffer = isFirst
          ? grad
          : fma(fround(1 - dampening), grad, fround(momentum * (buffers[k] as number)));
        buffers[k] = buffer;
        grad = fround(isNesterov ? fma(momentum, buffer, grad) : buffer);
      }
      params[k] = fma(rate, grad, param);
    }
    for (const [list, values] of [
      [0, params],
      [2, buffers],
    ] as const)
      if (values)
        (results[list] as Value[])[i] = roundedValue(backend, parameter.dtype, parameter.shape, values);
  }
  return results.flat();
};
