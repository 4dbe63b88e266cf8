/** Steps of optimizers: master parameters of f32, updated in place. */
import { ArgumentError, DTypeError } from "../errors.js";
import { hasType, type Tensor } from "../tensor/tensor.js";
import { commonBackend, execute, requireF32, requireScalar, requireShape, requireWide } from "./execute.js";

/** The tensors of a step. All but the scalars have the shape of `parameter`. */
interface StepInputs {
  /** The master parameters, updated. */
  readonly parameter: Tensor<"f32">;
  /** f32, bf16 or f16. */
  readonly grad: Tensor;
  /** Takes the new parameters, rounded to nearest even; overflow gives infinity. */
  readonly copy?: Tensor<"bf16" | "f16">;
  /** Multiplies the gradient, [1]: clips it, or takes the scale of a loss out. Read on the device. */
  readonly gradScale?: Tensor<"f32">;
  /** Where this holds exactly 1, nothing is written, [1]. Read on the device. */
  readonly noop?: Tensor<"f32">;
}

export interface SgdInputs extends StepInputs {
  /** The momentum buffer, updated; needed with momentum, left alone without. */
  readonly m?: Tensor<"f32">;
}

export interface AdamwInputs extends StepInputs {
  /** The running means of the gradient and of its square, zeros to begin with; updated. */
  readonly m: Tensor<"f32">;
  readonly v: Tensor<"f32">;
}

/** Numbers are rounded to f32. */
export interface SgdOptions {
  readonly learningRate: number;
  /** Default 0. */
  readonly momentum?: number;
  /** Part of the gradient kept out of the buffer. Default 0. */
  readonly dampening?: number;
  /** Added to the gradient times the parameter. Default 0. */
  readonly weightDecay?: number;
  /** Looks one step ahead; needs momentum, and dampening 0. Default false. */
  readonly nesterov?: boolean;
  /** The buffer is not read but becomes the gradient. Default false. */
  readonly first?: boolean;
}

/** Numbers are rounded to f32. */
export interface AdamwOptions {
  readonly learningRate: number;
  /** The number of this step, from 1. */
  readonly step: number;
  /** Default 0.9. */
  readonly beta1?: number;
  /** Default 0.999. */
  readonly beta2?: number;
  /** Default 1e-8. */
  readonly epsilon?: number;
  /** Default 0. */
  readonly weightDecay?: number;
  /** Weight decay acts on the parameter; otherwise it is added to the gradient, as in Adam. Default true. */
  readonly decoupled?: boolean;
}

/**
 * One step of stochastic gradient descent, torch.optim.SGD's formulas rounded operation by operation in f32
 * (numerics.md §9.1). NaN and infinity go where the formulas take them; nothing happens to empty tensors.
 * Throws `ArgumentError` for options outside their domain and for tensors of several backends, `ShapeError` and
 * `DTypeError` for a tensor of another shape or type than it must have.
 */
export function sgd(inputs: SgdInputs, options: SgdOptions): void {
  const { nesterov = false, first = false } = options;
  const { momentum, ...others } = sgdNumbers(options);
  const m = momentum === 0 ? undefined : inputs.m;
  if (momentum !== 0 && !m) throw new ArgumentError(`sgd: momentum is ${momentum}; it needs a buffer, m`);
  const backend = commonBackend("sgd", ...tensorsOf(inputs), m);
  const tensors = { ...stepTensors("sgd", inputs), m: m && stateOf("sgd", "m", m, inputs) };
  execute(backend, "sgd", { ...tensors, ...others, momentum, nesterov, first });
}

/** The numbers of a step of SGD, in f32. Throws `ArgumentError` for options outside their domain. */
export function sgdNumbers(options: Omit<SgdOptions, "first">) {
  const { dampening = 0, nesterov = false } = options;
  const learningRate = numberOf("sgd", "learningRate", options.learningRate);
  const momentum = numberOf("sgd", "momentum", options.momentum ?? 0);
  const weightDecay = numberOf("sgd", "weightDecay", options.weightDecay ?? 0);
  const undamped = numberOf("sgd", "1 - dampening", 1 - dampening);
  if (nesterov && (momentum === 0 || undamped !== 1)) {
    throw new ArgumentError(
      `sgd: nesterov needs momentum and no dampening; momentum is ${momentum}, dampening ${dampening}`,
    );
  }
  return { learningRate, momentum, undamped, weightDecay };
}

/**
 * One step of AdamW, or of Adam with `decoupled: false`: the formulas of TransformerEngine's FusedAdam, rounded
 * operation by operation in f32 (numerics.md §9.2). NaN and infinity go where the formulas take them; nothing
 * happens to empty tensors. Throws as `sgd` does.
 */
export function adamw(inputs: AdamwInputs, options: AdamwOptions): void {
  const { step, decoupled = true } = options;
  const numbers = adamwNumbers(options);
  if (!Number.isSafeInteger(step) || step < 1)
    throw new ArgumentError(`adamw: step is ${step}; steps are counted from 1`);
  const { m, v } = inputs;
  const backend = commonBackend("adamw", ...tensorsOf(inputs), m, v);
  const states = { m: stateOf("adamw", "m", m, inputs), v: stateOf("adamw", "v", v, inputs) };
  const tensors = { ...stepTensors("adamw", inputs), ...states };
  const { beta1, beta2 } = numbers;
  const corrections = { correction1: correction(beta1, step), correction2: correction(beta2, step) };
  execute(backend, "adamw", { ...tensors, ...numbers, ...corrections, decoupled });
}

/** The numbers of a step of AdamW, in f32. Throws `ArgumentError` for options outside their domain. */
export function adamwNumbers(options: Omit<AdamwOptions, "step">) {
  return {
    learningRate: numberOf("adamw", "learningRate", options.learningRate),
    beta1: decayRate("beta1", options.beta1 ?? 0.9),
    beta2: decayRate("beta2", options.beta2 ?? 0.999),
    epsilon: numberOf("adamw", "epsilon", options.epsilon ?? 1e-8),
    weightDecay: numberOf("adamw", "weightDecay", options.weightDecay ?? 0),
  };
}

function tensorsOf({ parameter, grad, copy, gradScale, noop }: StepInputs): (Tensor | undefined)[] {
  return [parameter, grad, copy, gradScale, noop];
}

/** The tensors of a step, checked. */
function stepTensors(op: string, inputs: StepInputs) {
  const { copy, gradScale, noop } = inputs;
  const parameter = requireF32(op, "parameter", inputs.parameter);
  const grad = requireWide(op, "grad", inputs.grad);
  requireShape(op, "grad", grad, parameter.shape);
  if (copy) requireShape(op, "copy", copy, parameter.shape);
  if (copy && !hasType(copy, "bf16", "f16"))
    throw new DTypeError(`${op}: copy is not bf16 or f16; parameter is the f32`);
  requireScalar(op, "gradScale", gradScale);
  requireScalar(op, "noop", noop);
  return { parameter, grad, copy, gradScale, noop };
}

/** A tensor that the optimizer keeps for each parameter, checked. */
function stateOf(op: string, name: string, x: Tensor, { parameter }: StepInputs): Tensor<"f32"> {
  requireShape(op, name, x, parameter.shape);
  return requireF32(op, name, x);
}

/** An option as f32. */
function numberOf(op: string, name: string, value: number): number {
  const number = Math.fround(value);
  if (number >= 0 && number < Number.POSITIVE_INFINITY) return number;
  throw new ArgumentError(`${op}: ${name} is ${value}; it must be finite and at least 0`);
}

function decayRate(name: string, value: number): number {
  const rate = numberOf("adamw", name, value);
  if (rate < 1) return rate;
  throw new ArgumentError(`adamw: ${name} is ${value}, as f32 ${rate}; it must be below 1`);
}

/** 1 - beta^step: squares and products in f64 from the lowest bit of `step` up, the result rounded to f32. */
function correction(beta: number, step: number): number {
  let power = 1;
  let square = beta;
  for (let rest = step; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) power *= square;
    square *= square;
  }
  return Math.fround(1 - power);
}
