/** Differentiable operations: functions of variables that record how to compute their gradients. */
import { ArgumentError } from "../errors.js";
import { callable, describe } from "../options.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { Tensor } from "../tensor/tensor.js";
import { captures, gradEnabled, gradTracked } from "./grad-mode.js";
import { type Backward, type BackwardPass, GRAD_FN, type QuantizedGradients } from "./node.js";
import type { Gradient, Value } from "./value.js";
import { Variable } from "./variable.js";

let nodesMade = 0;

/** A variable, or a tensor, which is a constant. */
export type VariableLike = Variable | Value;

/** `x` as a variable; a tensor is a constant. Throws `ArgumentError` for anything else. */
export function variable(x: VariableLike): Variable {
  if (x instanceof Variable) return x;
  if (x instanceof Tensor || x instanceof QuantizedTensor) return new Variable(x);
  throw new ArgumentError(
    `a tensor or a variable is needed; ${describe(x)} was given, which is of type ${typeof x}`,
  );
}

/** What the `forward` of a differentiable function returns. */
export interface Computed<R extends readonly Value[] = readonly Value[]> {
  /** Its results, in order; each becomes a variable. */
  readonly results: R;
  /** Maps the gradients of the results to those of the inputs. */
  readonly backward: Backward;
  /** Tensors made for the backward pass alone. They are disposed of after it, or at once where nothing is recorded. */
  readonly saved?: readonly (Value | undefined)[];
  /** @internal */
  readonly quantized?: QuantizedGradients;
  /** Whether the results require a gradient while gradients are enabled. Default: whether any input does. */
  readonly requiresGrad?: boolean;
  /** @internal Further inputs, which `backward` accumulates gradients for itself. */
  readonly captured?: Iterable<Variable>;
}

/**
 * A custom differentiable operation, PyTorch's `autograd.Function`: runs `forward` and records the `backward` that it returns.
 * `forward` computes with the values of the inputs; its argument says whether a backward pass may follow. `backward` receives
 * the gradient of each result, undefined where none arrived. It returns the gradients of the inputs in their order: wide, in
 * the shape and on the backend of the input, or undefined for none; the list may be shorter than the inputs. Tensors that
 * `forward` and `backward` make are disposed of unless they return them or list them in `saved`. Nothing is recorded if no
 * input has `requiresGrad`, or inside `noGrad`. A tensor among the inputs is a constant.
 *
 * @throws `ArgumentError` for an argument, a return value of `forward` or a result of another kind than described.
 * `Variable.backward` throws `ArgumentError`, `DTypeError` or `ShapeError` for gradients that do not fit this description.
 */
export function differentiable<const R extends readonly Value[]>(
  inputs: readonly VariableLike[],
  forward: (grad: boolean) => Computed<R>,
): { readonly [K in keyof R]: Variable };
/** @internal As above; `record` decides whether a node is recorded. */
export function differentiable(
  inputs: readonly Variable[],
  forward: (grad: boolean) => Computed,
  record: boolean | undefined,
): readonly Variable[];
export function differentiable(
  given: readonly VariableLike[],
  forward: (grad: boolean) => Computed,
  recorded?: boolean,
): readonly Variable[] {
  const inputs = variablesOf(given);
  callable("differentiable", "forward", forward);
  const record = recorded ?? (gradEnabled() && inputs.some((input) => input.requiresGrad));
  using scope = new Scope();
  for (const input of inputs) capture(input);
  const computed = requireComputed(forward(record));
  const { results: values, backward, saved = [], quantized = {}, captured = [] } = computed;
  const required = computed.requiresGrad ?? inputs.some((input) => input.requiresGrad);
  const requiresGrad = required && gradTracked();
  const results = values.map((value) => new Variable(scope.keep(value), requiresGrad));
  if (!record || !requiresGrad) return results;
  for (const each of saved) if (each) scope.keep(each);
  const node = {
    sequence: ++nodesMade,
    inputs: [...inputs, ...captured],
    results,
    backward,
    saved,
    quantized,
  };
  for (const result of results) result[GRAD_FN] = node;
  return results;
}

/**
 * Inputs as variables; the list itself if all are variables. Throws `ArgumentError` unless it is a list of variables and
 * tensors.
 */
function variablesOf(given: readonly VariableLike[]): readonly Variable[] {
  if (!Array.isArray(given))
    throw new ArgumentError(
      `differentiable: inputs is ${describe(given)}; it must be an array of variables and tensors`,
    );
  const isVariable = (each: VariableLike): each is Variable => each instanceof Variable;
  // `every` skips the holes of a sparse array; `includes` and `Array.from` read them as undefined
  return given.every(isVariable) && !given.includes(undefined as never) ? given : Array.from(given, variable);
}

/** Checks what `forward` returned. Throws `ArgumentError` if there is no list of results, or no `backward`. */
function requireComputed(computed: Computed): Computed {
  const { results, backward, saved } = (computed ?? {}) as Partial<Computed>;
  if (!Array.isArray(results))
    throw new ArgumentError(
      `differentiable: forward gave ${describe(computed)}; it must return { results: [tensors], backward }, and not be async`,
    );
  callable("differentiable", "backward", backward);
  if (saved !== undefined && !Array.isArray(saved))
    throw new ArgumentError(`differentiable: saved is ${describe(saved)}; it must be an array of tensors`);
  return computed;
}

/** Registers a non-leaf that a recomputed region uses but did not compute, if such a region is active. */
export function capture(from: Variable): Variable {
  if (from[GRAD_FN]) captures()?.add(from);
  return from;
}

/** As `differentiable`, for a function of one result; `backward` runs only if that has a gradient. */
export function differentiableOne(
  inputs: readonly Variable[],
  forward: (grad: boolean) => {
    readonly result: Value;
    readonly backward: (grad: Gradient, pass: BackwardPass) => readonly (Gradient | undefined)[];
    readonly saved?: NonNullable<Computed["saved"]>;
    readonly quantized?: QuantizedGradients;
  },
): Variable {
  const [result] = differentiable(inputs, (record) => {
    const { result, backward, ...rest } = forward(record);
    return { ...rest, results: [result], backward: ([grad], pass) => (grad ? backward(grad, pass) : []) };
  });
  return result as Variable;
}
