/** Optimizer steps on the reference. */
import { WIDE } from "../../../formats/contract.gen.js";
import type { AdamWArgs, SGDArgs } from "../../ops.js";
import { type Lowering, operand } from "../lowering.js";

/** Elements as they are cut into ranges, and what one costs in copies. */
const STEP = { grain: 32, weight: 4 } as const;

function skips({ noop }: SGDArgs | AdamWArgs): boolean {
  return noop !== undefined && noop.dataSync()[0] === 1;
}

/** Address and type of the copy, or null, and the gradient's factor. */
function copyAndScale({ copy, gradScale }: SGDArgs | AdamWArgs): number[] {
  const scale = gradScale ? (gradScale.dataSync()[0] as number) : 1;
  return copy ? [copy.address, WIDE[copy.dtype], scale] : [0, 0, scale];
}

export const sgd: Lowering<"sgd"> = {
  run({ pool }, args) {
    if (skips(args)) return;
    const { grad, parameter, m, learningRate, momentum, undamped, weightDecay, nesterov, first } = args;
    const tensors = [...operand(grad), parameter.address, m?.address ?? 0, ...copyAndScale(args)];
    const rule = [learningRate, momentum, undamped, weightDecay, Number(nesterov), Number(first)];
    const head = [...tensors, ...rule];
    pool.run("sgd", { ...STEP, total: parameter.size }, (scratch) => [...head, scratch]);
  },
};

export const adamw: Lowering<"adamw"> = {
  run({ pool }, args) {
    if (skips(args)) return;
    const { grad, parameter, m, v } = args;
    const tensors = [...operand(grad), parameter.address, m.address, v.address, ...copyAndScale(args)];
    const { learningRate, beta1, beta2, correction1, correction2, eps, weightDecay, decoupled } = args;
    const corrections = [correction1, correction2];
    const rule = [learningRate, beta1, beta2, ...corrections, eps, weightDecay, Number(decoupled)];
    const head = [...tensors, ...rule];
    pool.run("adamw", { ...STEP, total: parameter.size }, (scratch) => [...head, scratch]);
  },
};
