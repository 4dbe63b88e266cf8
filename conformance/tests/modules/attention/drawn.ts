/** Inputs and parameters of attention modules in tests. */
import type { Backend } from "../../../../src/backends/backend.js";
import type { AttentionMaskType } from "../../../../src/modules/attention/masks.js";
import type { Module } from "../../../../src/modules/module.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { elementCount, type Shape, type WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";

/** The properties of each mask: causal, padding, and the position of the diagonal, unless `bottomRightDiagonal` sets it. */
export const MASKS = {
  no_mask: [false, false, undefined],
  padding: [false, true, undefined],
  causal: [true, false, "start"],
  padding_causal: [true, true, "start"],
  causal_bottom_right: [true, false, "end"],
  padding_causal_bottom_right: [true, true, "end"],
  arbitrary: [false, false, undefined],
} as const satisfies Record<AttentionMaskType, unknown>;

/** A tensor of values between -1 and 1 that depend on the seed. */
export function waves(b: Backend, seed: number, shape: Shape, dtype: WideDType = "bf16"): Tensor<WideDType> {
  let state = (seed * 2654435761 + 12345) >>> 0;
  const values = Float32Array.from({ length: elementCount(shape) }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) / 2 ** 23 - 1;
  });
  return castTo(tensor(b, values, shape), dtype);
}

/** Gives the parameters of modules new values, the same to modules with the same shapes of parameters in order. */
export function fill(seed: number, ...modules: readonly Module[]): void {
  const parameters = modules.flatMap((module) => [...module.namedParameters().values()]);
  for (const [i, parameter] of parameters.entries()) {
    const { backend, shape, dtype } = parameter.tensor;
    using values = waves(backend, seed + i, shape, dtype);
    parameter.tensor.paste(values, 0);
  }
}
