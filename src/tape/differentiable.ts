/** Differentiable operations: functions of variables that record how to compute their gradients. */
import { unwrapHint } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { callable, describe, isArray, ownList } from "../options.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { Tensor } from "../tensor/tensor.js";
import { captures, gradEnabled, gradTracked } from "./grad-mode.js";
import { HOOKS } from "./hooks.js";
import { type Backward, type BackwardPass, GRAD_FN, type QuantizedGradients } from "./node.js";
import { announceNode } from "./recorded-nodes.js";
import { FORWARD_RUN, runOperation } from "./uses.js";
import type { Gradient, Value } from "./value.js";
import { Variable } from "./variable.js";

let nodeCount = 0;

/** A variable, or a tensor, which counts as a constant. */
export type VariableLike = Variable | Value;

/**
 * Returns the argument `name` of the function `caller` as a variable. A tensor becomes a constant. Throws `ArgumentError` for
 * anything else.
 */
export function variableOf(caller: string, name: string, x: VariableLike): Variable {
  if (x instanceof Variable) return x;
  if (x instanceof Tensor || x instanceof QuantizedTensor) return new Variable(x);
  throw new ArgumentError(
    `${caller}: ${name} is ${describe(x)}, which is of type ${typeof x}; it must be a tensor or a variable${[Variable, Tensor, QuantizedTensor].map((type) => unwrapHint(type, x)).find(Boolean) ?? ""}`,
  );
}

/** Returns `x` as a variable, as `variableOf` does. */
export function variable(x: VariableLike): Variable {
  return variableOf("variable", "x", x);
}

/** The return value of the function `forward` of a differentiable operation. */
export interface Computed<R extends readonly Value[] = readonly Value[]> {
  /** The results, in order. Each becomes a variable. */
  readonly results: R;
  /** Computes the gradients of the inputs from the gradients of the results. */
  readonly backward: Backward;
  /** Tensors that only `backward` needs. They are disposed of after it has run, or at once if nothing is recorded. */
  readonly saved?: readonly (Value | undefined)[];
  /** @internal Which gradients may be quantized. */
  readonly quantized?: QuantizedGradients;
  /** Whether the results require a gradient while gradients are enabled. Default: whether any input requires one. */
  readonly requiresGrad?: boolean;
  /** @internal Further inputs of the node. `backward` accumulates their gradients itself. */
  readonly captured?: Iterable<Variable>;
}

/**
 * Runs a custom differentiable operation, like PyTorch's `autograd.Function`, and returns its results as variables.
 *
 * `forward` computes the results from the values of the inputs and returns them with a function `backward`. Its argument says
 * whether a backward pass may follow. `backward` receives the gradient of each result, or undefined if there is none. It
 * returns the gradients of the inputs, in their order. Each gradient is an f32, bf16 or f16 tensor with the shape and backend
 * of its input, or undefined for none; the list may be shorter than the inputs. Tensors that `forward` or `backward` creates
 * are disposed of, unless they are returned or listed in `saved`. Nothing is recorded inside `noGrad`, or if no input has
 * `requiresGrad`. A tensor among the inputs counts as a constant.
 *
 * @throws `ArgumentError` for an invalid argument, or an invalid return value of `forward`. Later, `Variable.backward` throws
 * `ArgumentError`, `DTypeError` or `ShapeError` for invalid gradients.
 */
export function differentiable<const R extends readonly Value[]>(
  inputs: readonly VariableLike[],
  forward: (grad: boolean) => Computed<R>,
): { readonly [K in keyof R]: Variable };
/** @internal As the public form. If `record` is given, it decides whether a node is recorded. */
export function differentiable(
  inputs: readonly Variable[],
  forward: (grad: boolean) => Computed,
  record: boolean | undefined,
): readonly Variable[];
export function differentiable(
  inputs: readonly VariableLike[],
  forward: (grad: boolean) => Computed,
  recordNode?: boolean,
): readonly Variable[] {
  const variables = variablesOf(inputs);
  callable("differentiable", "forward", forward);
  const record = recordNode ?? (gradEnabled() && variables.some(({ requiresGrad }) => requiresGrad));
  using scope = new Scope();
  for (const each of variables) capture(each);
  const {
    result: computed,
    retained,
    operation,
  } = runOperation(variables, FORWARD_RUN, () => requireComputed(forward(record)));
  const { results: values, backward, saved = [], quantized = {}, captured = [] } = computed;
  const needsGrad = computed.requiresGrad ?? variables.some((each) => each.requiresGrad);
  const requiresGrad = needsGrad && gradTracked();
  const results = values.map((value) => new Variable(scope.keep(value), requiresGrad));
  if (!record || !requiresGrad) return results;
  for (const each of saved) if (each) scope.keep(each);
  const node = {
    sequence: ++nodeCount,
    inputs: [...variables, ...captured],
    directInputs: variables,
    retained,
    operation,
    results,
    backward,
    saved,
    quantized,
  };
  for (const result of results) result[GRAD_FN] = node;
  announceNode(node);
  return results;
}

/** Returns the inputs as variables. Throws `ArgumentError` unless `inputs` is an array of variables and tensors. */
function variablesOf(inputs: readonly VariableLike[]): readonly Variable[] {
  if (!isArray(inputs))
    throw new ArgumentError(
      `differentiable: inputs is ${describe(inputs)}; it must be an array of variables and tensors`,
    );
  return ownList("differentiable", "inputs", inputs, (each) => variable(each as VariableLike));
}

/** Copies and checks the return value of `forward`. Throws `ArgumentError` unless it has an array of results and a `backward`. */
function requireComputed(computed: Computed): Computed {
  const { results, backward, saved, ...others } = (computed ?? {}) as Partial<Computed>;
  if (!isArray(results))
    throw new ArgumentError(
      `differentiable: forward returned ${describe(computed)}; it must return { results: [tensors], backward }, and not be async`,
    );
  callable("differentiable", "backward", backward);
  if (saved !== undefined && !isArray(saved))
    throw new ArgumentError(`differentiable: saved is ${describe(saved)}; it must be an array of tensors`);
  const listed = <T>(name: string, list: readonly T[]): readonly T[] =>
    ownList("differentiable", name, list, (each) => each as T);
  return {
    ...others,
    results: listed("results", results),
    backward: backward as Computed["backward"],
    ...(saved && { saved: listed("saved", saved) }),
  };
}

/**
 * Records that the active recomputed region, if there is one, uses `x`. Leaves without hooks are not recorded. Returns `x`.
 */
export function capture(x: Variable): Variable {
  if (x[GRAD_FN] || x[HOOKS]) captures()?.add(x);
  return x;
}

/** As `differentiable`, for a function with one result. `backward` runs only if the result has a gradient. */
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
