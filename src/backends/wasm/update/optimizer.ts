/** Optimizer steps on the reference. */
import { WIDE } from "../../../formats/contract.gen.js";
import type { AdamWArgs, SGDArgs } from "../../ops.js";
import { type Lowering, wideOf } from "../lowering.js";

/** Threads share a step in multiples of `grain` elements. `weight` is the cost of an element, in units of copying one. */
const STEP = { grain: 32, weight: 4 } as const;

function skips({ noop }: SGDArgs | AdamWArgs): boolean {
  return noop !== undefined && noop.dataSync()[0] === 1;
}

/** Returns the arguments that all optimizers share. The address of an absent tensor is 0. */
function stepOf({ grad, parameter, copy, gradScale, learningRate, weightDecay }: SGDArgs | AdamWArgs) {
  return {
    grad: grad.address,
    gradType: wideOf(grad),
    p: parameter.address,
    copy: copy?.address ?? 0,
    copyType: copy ? WIDE[copy.dtype] : 0,
    gradScale: gradScale ? (gradScale.dataSync()[0] as number) : 1,
    learningRate,
    weightDecay,
  };
}

export const sgd: Lowering<"sgd"> = {
  run({ pool }, args) {
    if (skips(args)) return;
    const { parameter, m, momentum, undamped, nesterov, first } = args;
    const rule = { momentum, undamped, nesterov, first };
    pool.run("sgd", { total: parameter.size, ...STEP }, { m: m?.address ?? 0, ...stepOf(args), ...rule });
  },
};

export const adamw: Lowering<"adamw"> = {
  run({ pool }, args) {
    if (skips(args)) return;
    const { parameter, m, v, beta1, beta2, correction1, correction2, eps, decoupled } = args;
    const moments = { m: m.address, v: v.address, beta1, beta2, correction1, correction2 };
    const job = { total: parameter.size, ...STEP };
    pool.run("adamw", job, { epsilon: eps, decoupled, ...stepOf(args), ...moments });
  },
};
