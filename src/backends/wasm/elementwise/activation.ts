/** Activations and their gated forms on the reference. */
import { ACTIVATION } from "../../../formats/contract.gen.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { GatedArgs } from "../../ops.js";
import { type Lowering, operand } from "../lowering.js";

/** A transcendental function costs about this many copies. */
const WEIGHT = 8;

export const activation: Lowering<"activation"> = {
  run({ pool }, { x, kind, out }) {
    const head = [...operand(x), ...operand(out), ACTIVATION[kind]];
    pool.run("activation", { total: x.size, grain: 32, weight: WEIGHT }, (scratch) => [...head, scratch]);
  },
};

export const activationBackward: Lowering<"activationBackward"> = {
  run({ pool }, { grad, x, kind, out }) {
    const head = [...operand(grad), ...operand(x), ...operand(out), ACTIVATION[kind]];
    pool.run("activationBackward", { total: x.size, grain: 32, weight: WEIGHT }, (scratch) => [
      ...head,
      scratch,
    ]);
  },
};

/** The arguments that say which gated form: its kind, or its clamp; then the columns of a half. */
function form({ x, kind, clamp }: GatedArgs): number[] {
  const columns = asMatrix(x.shape)[1] / 2;
  return clamp ? [clamp.alpha, clamp.limit, clamp.offset, columns] : [ACTIVATION[kind], columns];
}

function rowsOf(x: Tensor): { total: number; weight: number } {
  const [rows, columns] = asMatrix(x.shape);
  return { total: rows, weight: columns * WEIGHT };
}

export const gated: Lowering<"gated"> = {
  run({ pool }, args) {
    const { x, out, clamp } = args;
    const head = [...operand(x), ...operand(out), ...form(args)];
    pool.run(clamp ? "clampedSwiglu" : "gated", rowsOf(x), (scratch) => [...head, scratch]);
  },
};

export const gatedBackward: Lowering<"gatedBackward"> = {
  run({ pool }, args) {
    const { grad, x, out, clamp } = args;
    const head = [...operand(grad), ...operand(x), ...operand(out), ...form(args)];
    pool.run(clamp ? "clampedSwigluBackward" : "gatedBackward", rowsOf(x), (scratch) => [...head, scratch]);
  },
};
