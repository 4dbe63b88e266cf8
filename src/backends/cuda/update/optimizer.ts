/** Optimizer steps on a GPU. */

import type { AdamWArgs, SGDArgs } from "../../ops.js";
import { addressOf, type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { GRAD } from "../shared-arguments.js";

const STEP = {
  ...GRAD,
  parameter: "pointer",
  "copy?": "pointer",
  "copyType?": "wide",
  "gradScale?": "pointer",
  "noop?": "pointer",
  count: "count",
  learningRate: "float",
  weightDecay: "float",
} as const;

export const OPTIMIZER_CALLS = {
  sgd: { ...STEP, "m?": "pointer", momentum: "float", undamped: "float", nesterov: "flag", first: "flag" },
  adamw: {
    ...STEP,
    m: "pointer",
    v: "pointer",
    beta1: "float",
    beta2: "float",
    correction1: "float",
    correction2: "float",
    epsilon: "float",
    decoupled: "flag",
  },
} as const satisfies Declarations;

/** Returns the arguments that all optimizers share. */
function step({ grad, parameter, copy, gradScale, noop, learningRate, weightDecay }: SGDArgs | AdamWArgs) {
  return {
    grad: grad.address,
    gradType: wideOf(grad),
    parameter: parameter.address,
    copy: addressOf(copy),
    copyType: copy && wideOf(copy),
    gradScale: addressOf(gradScale),
    noop: addressOf(noop),
    count: parameter.size,
    learningRate,
    weightDecay,
  };
}

export const sgd: Lowering<"sgd"> = {
  run({ addon, device }, args) {
    const { m, momentum, undamped, nesterov, first } = args;
    addon.sgd(device, { m: addressOf(m), momentum, undamped, nesterov, first, ...step(args) });
  },
};

export const adamw: Lowering<"adamw"> = {
  run({ addon, device }, args) {
    const { m, v, beta1, beta2, correction1, correction2, eps, decoupled } = args;
    const rule = { beta1, beta2, correction1, correction2, epsilon: eps, decoupled };
    addon.adamw(device, { m: m.address, v: v.address, ...rule, ...step(args) });
  },
};
