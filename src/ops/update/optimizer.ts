/** Optimizer steps on f32 master parameters, in place. */
import type { Backend } from "../../backends/backend.js";
import { ArgumentError } from "../../errors.js";
import {
  atLeastZero,
  boolean,
  decayRate,
  finite,
  integer,
  needed,
  type OptionTable,
  optionsOf,
} from "../../options.js";
import { requireF32, requireHalf, requireScalar, requireWide } from "../../tensor/require.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";
import { requireApart } from "../overlap.js";

/**
 * The tensors of a step. All but the scalars have the shape of `parameter`. Updated tensors share no memory with any other of
 * them.
 */
export interface StepInputs {
  /** The master parameters, updated. */
  readonly parameter: Tensor<"f32">;
  /** f32, bf16 or f16. */
  readonly grad: Tensor;
  /** Receives the new parameters, rounded to nearest even; overflow gives infinity. */
  readonly copy?: Tensor<"bf16" | "f16"> | undefined;
  /** Multiplies the gradient, [1]: for clipping, or to undo loss scaling. Read on the device. */
  readonly gradScale?: Tensor<"f32"> | undefined;
  /** If this is exactly 1, nothing is written; [1]. Read on the device. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/** The tensors of one step of `sgd`, of one shape; `parameter`, `copy` and `m` are updated in place. */
export interface SGDInputs extends StepInputs {
  /** The momentum buffer, updated. Required with momentum, otherwise not touched. */
  readonly m?: Tensor<"f32"> | undefined;
  /** AdamW's second buffer; not touched, so that one object may serve both optimizers. */
  readonly v?: Tensor<"f32"> | undefined;
}

/** The tensors of one step of `adamw`, of one shape; `parameter`, `copy`, `m` and `v` are updated in place. */
export interface AdamWInputs extends StepInputs {
  /** The running means of the gradient and of its square, zeros to begin with; updated. */
  readonly m: Tensor<"f32">;
  /** The mean of the gradient's square, f32, in the parameter's shape, updated in place. */
  readonly v: Tensor<"f32">;
}

/** Numbers are rounded to f32. */
export interface SGDStepOptions {
  /** The learning rate: the factor of the update that is subtracted. */
  readonly learningRate: number;
  /** Default 0. */
  readonly momentum?: number | undefined;
  /** The fraction of the gradient that does not enter the buffer. Default 0. */
  readonly dampening?: number | undefined;
  /** Added to the gradient times the parameter. Default 0. */
  readonly weightDecay?: number | undefined;
  /** Whether to use Nesterov momentum; needs momentum, and dampening 0. Default false. */
  readonly nesterov?: boolean | undefined;
  /** Whether this is the first step, which initializes the buffer with the gradient. Default false. */
  readonly first?: boolean | undefined;
}

/** Numbers are rounded to f32. */
export interface AdamWStepOptions {
  /** The learning rate: the factor of the update that is subtracted. */
  readonly learningRate: number;
  /** The number of this step, from 1. */
  readonly step: number;
  /** Default 0.9. */
  readonly beta1?: number | undefined;
  /** Default 0.999. */
  readonly beta2?: number | undefined;
  /** Default 1e-8. */
  readonly eps?: number | undefined;
  /** Default 0. */
  readonly weightDecay?: number | undefined;
  /** Whether weight decay acts on the parameter, as in AdamW, rather than on the gradient, as in Adam. Default true. */
  readonly decoupled?: boolean | undefined;
}

const STEP: OptionTable<StepInputs> = {
  parameter: needed(requireF32),
  grad: needed(requireWide),
  copy: requireHalf,
  gradScale: requireScalar,
  noop: requireScalar,
};
const checkSGDInputs = optionsOf<SGDInputs>({ ...STEP, m: requireF32, v: requireF32 });
const checkAdamWInputs = optionsOf<AdamWInputs>({ ...STEP, m: needed(requireF32), v: needed(requireF32) });

/** The option rows of SGD, also for `SGD`. */
const SGD_OPTIONS: OptionTable<Omit<SGDStepOptions, "first">> = {
  learningRate: needed(atLeastZero),
  momentum: atLeastZero,
  dampening: finite,
  weightDecay: atLeastZero,
  nesterov: boolean,
};
const checkSGDStep = optionsOf<SGDStepOptions>({ ...SGD_OPTIONS, first: boolean });
const checkSGDOptions = optionsOf(SGD_OPTIONS);

const ADAMW_OPTIONS: OptionTable<Omit<AdamWStepOptions, "step">> = {
  learningRate: needed(atLeastZero),
  beta1: decayRate,
  beta2: decayRate,
  eps: atLeastZero,
  weightDecay: atLeastZero,
  decoupled: boolean,
};
const checkAdamWStep = optionsOf<AdamWStepOptions>({ ...ADAMW_OPTIONS, step: needed(integer(1)) });
const checkAdamWOptions = optionsOf(ADAMW_OPTIONS);

/**
 * One step of stochastic gradient descent: torch.optim.SGD's formulas, with each operation rounded to f32 (numerics.md §9.1).
 * NaN and infinity propagate as in the formulas; empty tensors are allowed.
 *
 * @throws `ArgumentError` for options outside their domain and for tensors on different backends, `ShapeError` and `DTypeError`
 * for a tensor of another shape or type than it must have.
 * @throws `DisposedError` for a tensor that was disposed of.
 */
export function sgd(inputs: SGDInputs, options: SGDStepOptions): void {
  checkSGDInputs("sgd", inputs);
  checkSGDStep("sgd", options);
  const { nesterov = false, first = false } = options;
  const { learningRate, momentum, undamped, weightDecay } = sgdNumbers("sgd", options);
  if (momentum !== 0 && !inputs.m)
    throw new ArgumentError(`sgd: momentum is ${momentum}; it needs a buffer, m`);
  const backend = requireStep("sgd", inputs, inputs.m, inputs.v);
  // v, and m without momentum, are not touched, but must not overlap either
  requireApart("adamw", inputs, { adamw: "sgd" });
  const m = momentum === 0 ? undefined : inputs.m;
  const { parameter, copy, gradScale, noop } = inputs;
  const grad = inputs.grad as Tensor<WideDType>;
  // listed one by one, because spreading an object of this size costs more than the checks
  execute(backend, "sgd", {
    parameter,
    grad,
    copy,
    gradScale,
    noop,
    m,
    learningRate,
    momentum,
    undamped,
    weightDecay,
    nesterov,
    first,
  });
}

/** Throws `ArgumentError` for options of SGD outside their domain, or that do not go together. */
export function requireSGDOptions(user: string, options: Omit<SGDStepOptions, "first">): void {
  sgdNumbers(user, checkSGDOptions(user, options));
}

/** The numbers of a step of SGD, in f32. */
function sgdNumbers(user: string, options: Omit<SGDStepOptions, "first">) {
  const { learningRate, momentum = 0, dampening = 0, weightDecay = 0, nesterov = false } = options;
  const undamped = Math.fround(1 - dampening);
  atLeastZero(user, "1 - dampening", undamped);
  if (nesterov && (Math.fround(momentum) === 0 || undamped !== 1)) {
    throw new ArgumentError(
      `${user}: nesterov needs momentum and no dampening; momentum is ${momentum}, dampening ${dampening}`,
    );
  }
  return {
    learningRate: Math.fround(learningRate),
    momentum: Math.fround(momentum),
    undamped,
    weightDecay: Math.fround(weightDecay),
  };
}

/**
 * One step of AdamW, or of Adam with `decoupled: false`: the formulas of TransformerEngine's FusedAdam, with each operation
 * rounded to f32 (numerics.md §9.2). NaN and infinity propagate as in the formulas; empty tensors are allowed.
 *
 * @throws `ArgumentError` for options outside their domain and for tensors on different backends, `ShapeError` and `DTypeError`
 * for a tensor of another shape or type than it must have, `DisposedError` for a tensor that was disposed of.
 */
export function adamw(inputs: AdamWInputs, options: AdamWStepOptions): void {
  checkAdamWInputs("adamw", inputs);
  checkAdamWStep("adamw", options);
  const { step, decoupled = true, beta1 = 0.9, beta2 = 0.999 } = options;
  const { learningRate, eps = 1e-8, weightDecay = 0 } = options;
  const { parameter, copy, gradScale, noop, m, v } = inputs;
  const grad = inputs.grad as Tensor<WideDType>;
  const backend = requireStep("adamw", inputs, m, v);
  execute(backend, "adamw", {
    parameter,
    grad,
    copy,
    gradScale,
    noop,
    m,
    v,
    learningRate: Math.fround(learningRate),
    beta1: Math.fround(beta1),
    beta2: Math.fround(beta2),
    eps: Math.fround(eps),
    weightDecay: Math.fround(weightDecay),
    correction1: correction(Math.fround(beta1), step),
    correction2: correction(Math.fround(beta2), step),
    decoupled,
  });
}

/** Throws `ArgumentError` for options of AdamW outside their domain. */
export function requireAdamWOptions(user: string, options: Omit<AdamWStepOptions, "step">): void {
  checkAdamWOptions(user, options);
}

/** The backend of a step, after checking its tensors; `m` and `v` are the optimizer's buffers. */
function requireStep(op: string, inputs: StepInputs, m: Tensor | undefined, v: Tensor | undefined): Backend {
  const { parameter, grad, copy, gradScale, noop } = inputs;
  const { shape } = parameter;
  requireShape(op, "grad", grad, shape);
  if (copy) requireShape(op, "copy", copy, shape);
  if (m) requireShape(op, "m", m, shape);
  if (v) requireShape(op, "v", v, shape);
  return commonBackend(op, parameter, copy, m, v, grad, gradScale, noop);
}

/** 1 - beta^step by repeated squaring in f64 from the lowest bit of `step` up, the result rounded to f32. */
function correction(beta: number, step: number): number {
  let power = 1;
  let square = beta;
  for (let rest = step; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) power *= square;
    square *= square;
  }
  return Math.fround(1 - power);
}
