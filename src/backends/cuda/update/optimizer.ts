/** Optimizer steps on a GPU. */
import type { AdamWArgs, SGDArgs } from "../../ops.js";
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, updates, writes } from "../native-arguments.js";

const STEP = {
  grad: reads.wide("count"),
  parameter: updates.f32("count"),
  "copy?": writes.wide("count", "Receives the new parameter, rounded; bf16 or f16."),
  "gradScale?": reads.f32("1", "A factor of the gradient; null means 1."),
  "noop?": reads.f32("1", "If not null and exactly 1, nothing is written."),
  learningRate: "float",
  weightDecay: "float",
  count: "count",
} as const;

export const OPTIMIZER_CALLS = {
  /** `undamped` is 1 - dampening. The first step does not read m. */
  sgd: {
    ...STEP,
    "m?": updates.f32("count", "Null means no momentum."),
    momentum: "float",
    undamped: "float",
    nesterov: "flag",
    first: "flag",
  },
  /**
   * `correction1` is 1 - beta1^step, and `correction2` is 1 - beta2^step. If `decoupled`, weight decay is applied to the
   * parameter directly (AdamW) instead of being added to the gradient.
   */
  adamw: {
    ...STEP,
    m: updates.f32("count"),
    v: updates.f32("count"),
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
  return { grad, parameter, copy, gradScale, noop, learningRate, weightDecay, count: parameter.size };
}

export const sgd: Lowering<"sgd"> = {
  run({ addon, device }, args) {
    const { m, momentum, undamped, nesterov, first } = args;
    addon.sgd(device, { m, momentum, undamped, nesterov, first, ...step(args) });
  },
};

export const adamw: Lowering<"adamw"> = {
  run({ addon, device }, args) {
    const { m, v, beta1, beta2, correction1, correction2, eps, decoupled } = args;
    const rule = { beta1, beta2, correction1, correction2, epsilon: eps, decoupled };
    addon.adamw(device, { m, v, ...rule, ...step(args) });
  },
};
