/** Activations, gated activations and their gradients on the reference. */
import { ACTIVATION } from "../../../formats/contract.gen.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import { type Lowering, sourceOf, targetOf, wideOf } from "../lowering.js";

/** The approximate cost of an activation function, in units of copying an element. */
const WEIGHT = 8;

export const activation: Lowering<"activation"> = {
  run({ pool }, { x, kind, out }) {
    const job = { total: x.size, grain: 32, weight: WEIGHT };
    pool.run("activation", job, { kind: ACTIVATION[kind], ...sourceOf(x), ...targetOf(out) });
  },
};

export const activationBackward: Lowering<"activationBackward"> = {
  run({ pool }, { grad, x, kind, out }) {
    const job = { total: x.size, grain: 32, weight: WEIGHT };
    const tensors = { grad: grad.address, gradType: wideOf(grad), ...sourceOf(x), ...targetOf(out) };
    pool.run("activationBackward", job, { kind: ACTIVATION[kind], ...tensors });
  },
};

/** Returns the number of rows of x (`total`), the cost of a row (`weight`) and the number of columns of each half. */
function halvesOf(x: Tensor): { readonly total: number; readonly weight: number; readonly columns: number } {
  const [rows, columns] = asMatrix(x.shape);
  return { total: rows, weight: columns * WEIGHT, columns: columns / 2 };
}

export const gated: Lowering<"gated"> = {
  run({ pool }, { x, kind, clamp, out }) {
    const { columns, ...job } = halvesOf(x);
    const tensors = { columns, ...sourceOf(x), ...targetOf(out) };
    if (clamp)
      pool.run("clampedSwiglu", job, {
        alpha: clamp.alpha,
        limit: clamp.limit,
        offset: clamp.offset,
        ...tensors,
      });
    else pool.run("gated", job, { kind: ACTIVATION[kind], ...tensors });
  },
};

export const gatedBackward: Lowering<"gatedBackward"> = {
  run({ pool }, { grad, x, kind, clamp, out }) {
    const { columns, ...job } = halvesOf(x);
    const gradient = { grad: grad.address, gradType: wideOf(grad) };
    const tensors = { columns, ...gradient, ...sourceOf(x), ...targetOf(out) };
    if (clamp)
      pool.run("clampedSwigluBackward", job, {
        alpha: clamp.alpha,
        limit: clamp.limit,
        offset: clamp.offset,
        ...tensors,
      });
    else pool.run("gatedBackward", job, { kind: ACTIVATION[kind], ...tensors });
  },
};
