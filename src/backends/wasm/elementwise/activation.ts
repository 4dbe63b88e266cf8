/** Activations, gated activations and their gradients on the reference. */
import { ACTIVATION } from "../../../formats/contract.gen.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { GatedArgs } from "../../ops.js";
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

/** Returns the activation and the clamp of a gated activation. Only swiglu has a clamp. */
function ruleOf(kind: GatedArgs["kind"], clamp: GatedArgs["clamp"]) {
  if (!clamp) return { kind: ACTIVATION[kind], clamps: false, alpha: 0, limit: 0, offset: 0 };
  const { alpha, limit, offset } = clamp;
  return { kind: ACTIVATION.silu, clamps: true, alpha, limit, offset };
}

export const gated: Lowering<"gated"> = {
  run({ pool }, { x, kind, clamp, out }) {
    const { columns, ...job } = halvesOf(x);
    pool.run("gated", job, { columns, ...ruleOf(kind, clamp), ...sourceOf(x), ...targetOf(out) });
  },
};

export const gatedBackward: Lowering<"gatedBackward"> = {
  run({ pool }, { grad, x, kind, clamp, out }) {
    const { columns, ...job } = halvesOf(x);
    const gradient = { grad: grad.address, gradType: wideOf(grad) };
    const tensors = { ...sourceOf(x), ...targetOf(out) };
    pool.run("gatedBackward", job, { columns, ...gradient, ...ruleOf(kind, clamp), ...tensors });
  },
};
