/** Optimizer steps on f32 master parameters, in place. */
import type { Backend } from "../../backends/backend.js";
import type { OpArgs } from "../../backends/ops.js";
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
import { commonBackend, execute, executeEach, requireBackendOf, requireShape } from "../execute.js";
import { listMemory, requireApart } from "../overlap.js";

/**
 * The tensors of one optimizer step. All but `gradScale` and `noop` have the shape of `parameter`. A tensor that is updated
 * must not overlap another one.
 */
export interface StepInputs {
  /** The f32 master parameter, updated in place. */
  readonly parameter: Tensor<"f32">;
  /** The gradient: f32, bf16 or f16. */
  readonly grad: Tensor;
  /** A bf16 or f16 tensor that receives the new parameter, rounded to nearest even, with overflow to infinity. */
  readonly copy?: Tensor<"bf16" | "f16"> | undefined;
  /** An f32 [1] factor, read on the device, that multiplies the gradient, for clipping or to undo loss scaling. */
  readonly gradScale?: Tensor<"f32"> | undefined;
  /** An f32 [1] flag, read on the device. If it is exactly 1, nothing is written. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/** The tensors of one step of `sgd`. `parameter`, `copy` and `m` are updated in place. */
export interface SGDInputs extends StepInputs {
  /** The momentum buffer, updated in place. Required if momentum is not 0, otherwise not read or written. */
  readonly m?: Tensor<"f32"> | undefined;
  /** AdamW's second buffer. `sgd` does not read or write it; it is allowed so that one object can serve both optimizers. */
  readonly v?: Tensor<"f32"> | undefined;
}

/** The tensors of one step of `adamw`. `parameter`, `copy`, `m` and `v` are updated in place. */
export interface AdamWInputs extends StepInputs {
  /** The moving average of the gradient, updated in place. Initialize it with zeros. */
  readonly m: Tensor<"f32">;
  /** The moving average of the squared gradient, updated in place. Initialize it with zeros. */
  readonly v: Tensor<"f32">;
}

/** @shared A step of several, with the tensors of one step of `sgd` or `adamw` and its options. */
export interface ListedStep<O> {
  readonly tensors: StepInputs;
  readonly m?: Tensor<"f32"> | undefined;
  readonly v?: Tensor<"f32"> | undefined;
  readonly options: O;
}

/** Options of one step of `sgd`. Numbers are rounded to f32. */
export interface SGDStepOptions {
  /** The learning rate. It multiplies the update that is subtracted from the parameter. */
  readonly learningRate: number;
  /** The factor of the momentum buffer. Default 0. */
  readonly momentum?: number | undefined;
  /** 1 - dampening is the factor of the gradient as it is added to the momentum buffer. Default 0. */
  readonly dampening?: number | undefined;
  /** The factor of the parameter as it is added to the gradient. Default 0. */
  readonly weightDecay?: number | undefined;
  /** Whether to use Nesterov momentum. It requires momentum and dampening 0. Default false. */
  readonly nesterov?: boolean | undefined;
  /** Whether this is the first step, which sets the momentum buffer to the gradient. Default false. */
  readonly first?: boolean | undefined;
}

/** Options of one step of `adamw`. Numbers are rounded to f32. */
export interface AdamWStepOptions {
  /** The learning rate. It multiplies the update that is subtracted from the parameter. */
  readonly learningRate: number;
  /** The number of this step, counted from 1. */
  readonly step: number;
  /** The decay rate of `m`. Default 0.9. */
  readonly beta1?: number | undefined;
  /** The decay rate of `v`. Default 0.999. */
  readonly beta2?: number | undefined;
  /** A constant added to the denominator sqrt(v / (1 - beta2^step)). Default 1e-8. */
  readonly eps?: number | undefined;
  /** The factor of weight decay. Default 0. */
  readonly weightDecay?: number | undefined;
  /** Whether weight decay is applied to the parameter (AdamW) instead of being added to the gradient (Adam). Default true. */
  readonly decoupled?: boolean | undefined;
}

const STEP: OptionTable<StepInputs> = {
  parameter: needed(requireF32),
  grad: needed(requireWide),
  copy: requireHalf,
  gradScale: requireScalar,
  noop: requireScalar,
};
const checkSGDInputs = optionsOf<SGDInputs>({ ...STEP, m: requireF32, v: requireF32 }, "inputs");
const checkAdamWInputs = optionsOf<AdamWInputs>(
  { ...STEP, m: needed(requireF32), v: needed(requireF32) },
  "inputs",
);

/** @shared The checks of the options that `sgd` and the optimizer `SGD` share. */
export const SGD_OPTIONS: OptionTable<Omit<SGDStepOptions, "first">> = {
  learningRate: needed(atLeastZero),
  momentum: atLeastZero,
  dampening: finite,
  weightDecay: atLeastZero,
  nesterov: boolean,
};
const checkSGDStep = optionsOf<SGDStepOptions>({ ...SGD_OPTIONS, first: boolean });
const checkSGDOptions = optionsOf(SGD_OPTIONS);

/** @shared The checks of the options that `adamw` and the optimizer `AdamW` share. */
export const ADAMW_OPTIONS: OptionTable<Omit<AdamWStepOptions, "step">> = {
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
 * Runs one step of stochastic gradient descent, by the formulas of torch.optim.SGD with each operation rounded to f32
 * (numerics.md §9.1). NaN and infinity propagate as in the formulas. Empty tensors are allowed.
 *
 * @throws `ArgumentError` for an invalid option value or tensors on different backends or that overlap, `ShapeError` and
 * `DTypeError` for a tensor of a wrong shape or dtype.
 * @throws `DisposedError` for a disposed tensor.
 */
export function sgd(inputs: SGDInputs, options: SGDStepOptions): void {
  const ownInputs = checkSGDInputs("sgd", inputs);
  const { m, v } = ownInputs;
  const args = sgdArgs(
    { tensors: ownInputs, m, v, options },
    sgdNumbers("sgd", checkSGDStep("sgd", options)),
  );
  // v, and without momentum m, are not used, but must not overlap the outputs either
  requireApart("adamw", ownInputs, { adamw: "sgd" });
  execute(args.parameter.backend, "sgd", args);
}

/**
 * Runs several steps of `sgd`, with the result of running one after the other; on a GPU as one kernel. The options of a step are
 * checked once for all steps that share the object. Throws as `sgd` does, before a tensor changes.
 *
 * @shared
 */
export function sgdEach(steps: readonly ListedStep<SGDStepOptions>[]): void {
  runSteps("sgd", steps, (options) => sgdNumbers("sgd", checkSGDStep("sgd", options)), sgdArgs);
}

/**
 * Runs steps by the operation `op`, the steps of one backend as one list. `numbersOf` checks options, and `argsOf` checks the
 * tensors of a step and returns its arguments.
 */
function runSteps<K extends "sgd" | "adamw", O extends object, N>(
  op: K,
  steps: readonly ListedStep<O>[],
  numbersOf: (options: O) => N,
  argsOf: (step: ListedStep<unknown>, numbers: N) => OpArgs[K],
): void {
  listMemory.clear();
  const numbers = new Map<O, N>();
  const lists = new Map<Backend, OpArgs[K][]>();
  for (const step of steps) {
    let ownNumbers = numbers.get(step.options);
    if (ownNumbers === undefined) {
      ownNumbers = numbersOf(step.options);
      numbers.set(step.options, ownNumbers);
    }
    const args = argsOf(step, ownNumbers);
    addToList(step.tensors, step.m, step.v);
    const { backend } = args.parameter;
    const list = lists.get(backend);
    if (list) list.push(args);
    else lists.set(backend, [args]);
  }
  const areApart = listMemory.areApart();
  for (const [backend, list] of lists) executeEach(backend, op, list, areApart);
}

function sgdArgs(
  { tensors, m: buffer, v }: ListedStep<unknown>,
  numbers: ReturnType<typeof sgdNumbers>,
): OpArgs["sgd"] {
  const { learningRate, momentum, undamped, weightDecay, nesterov, first } = numbers;
  if (momentum !== 0 && !buffer)
    throw new ArgumentError(`sgd: momentum is ${momentum}; it needs a buffer, m`);
  requireStep("sgd", tensors, buffer, v);
  const { parameter, copy, gradScale, noop } = tensors;
  const grad = tensors.grad as Tensor<WideDType>;
  const m = momentum === 0 ? undefined : buffer;
  // the fields are listed one by one, because spreading an object of this size costs more than all the checks
  return {
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
  };
}

/** @shared Returns a copy of options of SGD. Throws `ArgumentError` for an invalid one or an invalid combination. */
export function requireSGDOptions(
  user: string,
  options: Omit<SGDStepOptions, "first">,
): Omit<SGDStepOptions, "first"> {
  const ownOptions = checkSGDOptions(user, options);
  sgdNumbers(user, ownOptions);
  return ownOptions;
}

/** Returns the options of a step of SGD, with numbers rounded to f32. */
function sgdNumbers(user: string, options: SGDStepOptions) {
  const { learningRate, momentum = 0, dampening = 0, weightDecay = 0 } = options;
  const { nesterov = false, first = false } = options;
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
    nesterov,
    first,
  };
}

/**
 * Runs one step of AdamW, or of Adam with `decoupled: false`, by the formulas of TransformerEngine's FusedAdam with each
 * operation rounded to f32 (numerics.md §9.2). NaN and infinity propagate as in the formulas. Empty tensors are allowed.
 *
 * @throws `ArgumentError` for an invalid option value or tensors on different backends or that overlap, `ShapeError` and
 * `DTypeError` for a tensor of a wrong shape or dtype, `DisposedError` for a disposed tensor.
 */
export function adamw(inputs: AdamWInputs, options: AdamWStepOptions): void {
  const tensors = checkAdamWInputs("adamw", inputs);
  const { m, v } = tensors;
  const args = adamwArgs({ tensors, m, v, options }, adamwNumbers(options));
  execute(args.parameter.backend, "adamw", args);
}

/**
 * Runs several steps of `adamw`, as `sgdEach` does. Throws as `adamw` does, before a tensor changes.
 *
 * @shared
 */
export function adamwEach(steps: readonly ListedStep<AdamWStepOptions>[]): void {
  runSteps("adamw", steps, adamwNumbers, adamwArgs);
}

/** Returns the options of a step of AdamW, with numbers rounded to f32. */
function adamwNumbers(options: AdamWStepOptions) {
  const { step, decoupled = true, ...numbers } = checkAdamWStep("adamw", options);
  const { learningRate, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weightDecay = 0 } = numbers;
  return {
    learningRate: Math.fround(learningRate),
    beta1: Math.fround(beta1),
    beta2: Math.fround(beta2),
    eps: Math.fround(eps),
    weightDecay: Math.fround(weightDecay),
    correction1: correction(Math.fround(beta1), step),
    correction2: correction(Math.fround(beta2), step),
    decoupled,
  };
}

function adamwArgs(
  { tensors, m, v }: ListedStep<unknown>,
  numbers: ReturnType<typeof adamwNumbers>,
): OpArgs["adamw"] {
  if (!m || !v) throw new ArgumentError("adamw: it needs the buffers m and v");
  const { parameter, copy, gradScale, noop } = tensors;
  const { learningRate, beta1, beta2, eps, weightDecay, correction1, correction2, decoupled } = numbers;
  const grad = tensors.grad as Tensor<WideDType>;
  requireStep("adamw", tensors, m, v);
  return {
    parameter,
    grad,
    copy,
    gradScale,
    noop,
    m,
    v,
    learningRate,
    beta1,
    beta2,
    eps,
    weightDecay,
    correction1,
    correction2,
    decoupled,
  };
}

/** @shared Returns a copy of options of AdamW. Throws `ArgumentError` for an invalid one. */
export function requireAdamWOptions(
  user: string,
  options: Omit<AdamWStepOptions, "step">,
): Omit<AdamWStepOptions, "step"> {
  return checkAdamWOptions(user, options);
}

/** The copy and the buffers with which a parameter was checked last. The dtype and the shape of a tensor do not change. */
const checkedTensors = new WeakMap<Tensor, readonly (Tensor | undefined)[]>();

function addToList(
  { parameter, grad, copy, gradScale, noop }: StepInputs,
  m: Tensor | undefined,
  v: Tensor | undefined,
): void {
  listMemory.addOutput(parameter);
  if (copy) listMemory.addOutput(copy);
  if (m) listMemory.addOutput(m);
  if (v) listMemory.addOutput(v);
  listMemory.addInput(grad);
  if (gradScale) listMemory.addInput(gradScale);
  if (noop) listMemory.addInput(noop);
}

/** Checks the tensors of a step. `m` and `v` are the optimizer's buffers. */
function requireStep(op: string, inputs: StepInputs, m: Tensor | undefined, v: Tensor | undefined): void {
  const { parameter, grad, copy, gradScale, noop } = inputs;
  const { shape } = parameter;
  requireShape(op, "grad", requireWide(op, "grad", grad), shape);
  requireBackendOf(op, parameter, grad);
  if (gradScale) requireBackendOf(op, parameter, gradScale);
  if (noop) requireBackendOf(op, parameter, noop);
  const last = checkedTensors.get(parameter);
  const isChecked = last !== undefined && last[0] === copy && last[1] === m && last[2] === v;
  if (isChecked && !copy?.disposed && !m?.disposed && !v?.disposed) return;
  requireF32(op, "parameter", parameter);
  if (copy) requireShape(op, "copy", requireHalf(op, "copy", copy), shape);
  if (m) requireShape(op, "m", requireF32(op, "m", m), shape);
  if (v) requireShape(op, "v", requireF32(op, "v", v), shape);
  commonBackend(op, parameter, copy, m, v);
  checkedTensors.set(parameter, [copy, m, v]);
}

/**
 * Returns 1 - beta^step, rounded to f32. The power is computed in f64 by repeated squaring, from the lowest bit of `step` up.
 */
function correction(beta: number, step: number): number {
  let power = 1;
  let square = beta;
  for (let rest = step; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) power *= square;
    square *= square;
  }
  return Math.fround(1 - power);
}
