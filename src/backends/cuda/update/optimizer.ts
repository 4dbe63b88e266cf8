/** Optimizer steps on a GPU. */
import { type Lowering, listLowering } from "../lowering.js";
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

export const OPTIMIZER_LISTS = {
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

// The arguments are listed one by one, because spreading an object of this size takes longer than the rest of the call.

export const sgd: Lowering<"sgd"> = listLowering(({ addon, device }, list) =>
  addon.sgd(
    device,
    list.map((args) => ({
      grad: args.grad,
      parameter: args.parameter,
      copy: args.copy,
      gradScale: args.gradScale,
      noop: args.noop,
      learningRate: args.learningRate,
      weightDecay: args.weightDecay,
      count: args.parameter.size,
      m: args.m,
      momentum: args.momentum,
      undamped: args.undamped,
      nesterov: args.nesterov,
      first: args.first,
    })),
  ),
);

export const adamw: Lowering<"adamw"> = listLowering(({ addon, device }, list) =>
  addon.adamw(
    device,
    list.map((args) => ({
      grad: args.grad,
      parameter: args.parameter,
      copy: args.copy,
      gradScale: args.gradScale,
      noop: args.noop,
      learningRate: args.learningRate,
      weightDecay: args.weightDecay,
      count: args.parameter.size,
      m: args.m,
      v: args.v,
      beta1: args.beta1,
      beta2: args.beta2,
      correction1: args.correction1,
      correction2: args.correction2,
      epsilon: args.eps,
      decoupled: args.decoupled,
    })),
  ),
);
