/**
 * Variables, differentiable operations, and the backward pass. The operations on variables build a graph; the backward pass
 * runs through it in reverse.
 */
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { tensor } from "../ops/create.js";
import { add } from "../ops/elementwise/add.js";
import { commonBackend, requireShape } from "../ops/execute.js";
import { boolean, callable, describe } from "../options.js";
import { QuantizedTensor, requireQuantized } from "../tensor/quantized.js";
import { requireTensor, requireWide } from "../tensor/require.js";
import { disown, Scope } from "../tensor/scope.js";
import { type Shape, sameShape, type WideDType } from "../tensor/shape.js";
import { INSPECT } from "../tensor/show.js";
import { Tensor } from "../tensor/tensor.js";
import { captures, gradEnabled, gradTracked } from "./grad-mode.js";
import { Gradients } from "./gradients.js";
import { ScaleUpdates } from "./scale-updates.js";
import { type Gradient, type Value, wideOf } from "./value.js";

/** The backward pass that a node's `backward` function takes part in. */
export interface BackwardPass {
  /** @internal The updates of the delayed scales of gradients. They run when the pass ends. */
  readonly updates: ScaleUpdates;
  /** @internal The gradients accumulated so far. At the end only those of leaves are left. */
  readonly gradients: Gradients;
  /** Keeps a gradient alive until the pass ends. */
  readonly keep: (grad: Gradient) => void;
}

/** Computes the gradients of a function's inputs from the gradients of its results. undefined means no gradient. */
export type Backward = (
  grads: readonly (Gradient | undefined)[],
  pass: BackwardPass,
) => readonly (Gradient | undefined)[];

/** A recorded operation. PyTorch calls it an autograd `Node`. */
interface Node {
  /**
   * The number of nodes that were created before this one. Descending order is a reverse topological order, in which the
   * backward pass runs the nodes.
   */
  readonly sequence: number;
  readonly inputs: readonly Variable[];
  readonly results: readonly Variable[];
  readonly backward: Backward;
  /** The tensors that the node saved for `backward`. The node owns them and disposes of them. */
  readonly saved: readonly (Value | undefined)[];
  readonly quantized: QuantizedGradients;
}

/** Which gradients of a node may be quantized. Default: none. */
interface QuantizedGradients {
  /** Whether the node's `backward` accepts a quantized gradient of its first result. */
  readonly gradOutput?: boolean;
  /** Whether the node's `backward` returns a quantized gradient of its first input. */
  readonly gradInput?: boolean;
}

/** The key under which a variable stores its node. A field is cheaper than a map from variables to nodes. */
const GRAD_FN = Symbol("gradFn");

let nodesMade = 0;

/**
 * A tensor, quantized or not, that can take part in a backward pass.
 *
 * @throws `ArgumentError` for a value that is not a tensor, `DTypeError` for a value that requires a gradient and is not f32,
 * bf16, f16 or quantized, `DisposedError` for a disposed tensor.
 */
export class Variable {
  /** The gradient, accumulated over `backward()` calls as in PyTorch. Undefined until the first one. */
  grad: Tensor<WideDType> | undefined;
  /**
   * @internal The node that computed this variable, or "freed" after a backward pass has disposed of what the node saved.
   * Undefined for a leaf.
   */
  [GRAD_FN]: Node | "freed" | undefined;

  /** `requiresGrad` of a leaf may be changed later. Later backward passes then accumulate its gradient, or do not. */
  constructor(
    /** The tensor, quantized or not. */
    readonly value: Value,
    /** Whether a gradient is computed for this variable. May be assigned on a leaf. */
    public requiresGrad = false,
  ) {
    if (value instanceof QuantizedTensor) requireQuantized("Variable", "value", value);
    else requireTensor("Variable", "value", value);
    boolean("Variable", "requiresGrad", requiresGrad);
  }

  /** The shape of the tensor. */
  get shape(): Shape {
    return this.value.shape;
  }

  /** The value as an f32, bf16 or f16 tensor. Throws `DTypeError` if it is quantized or of another dtype. */
  get tensor(): Tensor<WideDType> {
    return wideOf("this value", this.value);
  }

  /**
   * Runs the backward pass from this variable: computes the gradient of every leaf with `requiresGrad` that this value was
   * computed from, and adds it to the leaf's `grad`.
   *
   * `grad` is the gradient of this value. It may be left out if this value has one element; it is then 1. The pass frees the
   * graph: it disposes of what the forward pass saved, so another backward pass needs another forward pass. At the end, delayed
   * scaling updates the scales of gradients.
   *
   * @throws `ArgumentError` if the value has no graph, or if an earlier pass has freed it.
   * @throws `DTypeError` or `ShapeError` for a gradient of another dtype or shape than the value, `DisposedError` for a
   * disposed tensor.
   */
  backward(grad?: Tensor): void {
    if (!gradFnOf(this)) {
      throw new ArgumentError(
        this[GRAD_FN] === "freed"
          ? "backward: the graph of this value is already freed by an earlier backward pass; compute the value again"
          : "backward: this value was not computed from anything that requires a gradient, or was computed inside noGrad; set requiresGrad on an input and compute it outside of noGrad",
      );
    }
    using scope = new Scope();
    if (grad !== undefined) requireWide("backward", "grad", grad);
    const own = wideOf("grad", grad ?? onesLike(this));
    commonBackend("backward", own, ...membersOf(this.value));
    requireShape("backward", "grad", own, this.shape);
    if (own.dtype !== this.value.dtype)
      throw new DTypeError(
        `backward: grad is ${own.dtype}; it must be ${this.value.dtype}, as this value is`,
      );
    const keep = (made: Gradient): void => {
      if (made !== own) moveTo(scope, made);
    };
    const pass = { updates: new ScaleUpdates(), gradients: new Gradients(), keep };
    runBackward(this, own, pass);
    for (const [leaf, value] of pass.gradients) accumulate(leaf, wideOf("a gradient", value));
    pass.updates.run();
  }

  /** Returns a readable description: the value, and whether it requires a gradient. See `Tensor.toString`. */
  toString(): string {
    return `Variable(${this.requiresGrad ? "requires grad, " : ""}${this.value})`;
  }

  /** Returns `toString()`, which `console.log` prints in Node. */
  [INSPECT](): string {
    return this.toString();
  }

  /** Disposes of the gradient and clears it. */
  zeroGrad(): void {
    this.grad?.dispose();
    this.grad = undefined;
  }

  /** Returns a new variable with the same value and no graph. */
  detach(): Variable {
    return new Variable(this.value);
  }
}

function membersOf(value: Value): readonly Tensor[] {
  return value instanceof QuantizedTensor ? value.members : [value];
}

/** A variable, or a tensor, which counts as a constant. */
export type VariableLike = Variable | Value;

/** Returns `x` as a variable. A tensor becomes a constant. Throws `ArgumentError` for anything else. */
export function variable(x: VariableLike): Variable {
  if (x instanceof Variable) return x;
  if (x instanceof Tensor || x instanceof QuantizedTensor) return new Variable(x);
  throw new ArgumentError(
    `a tensor or a variable is needed; ${describe(x)} was given, which is of type ${typeof x}`,
  );
}

/** The return value of the function `forward` of a differentiable operation. */
export interface Computed<R extends readonly Value[] = readonly Value[]> {
  /** The results, in order. Each becomes a variable. */
  readonly results: R;
  /** Computes the gradients of the inputs from the gradients of the results. */
  readonly backward: Backward;
  /** Tensors that only `backward` needs. They are disposed of after it has run, or at once if nothing is recorded. */
  readonly saved?: readonly (Value | undefined)[];
  /** @internal */
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
/** @internal Does the same; `record` decides whether a node is recorded. */
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
 * Returns the inputs as variables, or `given` itself if all of them are variables. Throws `ArgumentError` unless it is an array
 * of variables and tensors.
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

/** Returns what `forward` returned. Throws `ArgumentError` unless it has an array of results and a function `backward`. */
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

/**
 * Adds `from` to the variables that the active recomputed region has captured, if there is such a region and `from` is not a
 * leaf. Returns `from`.
 */
export function capture(from: Variable): Variable {
  if (from[GRAD_FN]) captures()?.add(from);
  return from;
}

/** Does the same as `differentiable` for a function with one result. `backward` runs only if the result has a gradient. */
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

/**
 * Runs the graph of `root` in reverse topological order as part of `pass`. The gradients of leaves are left in
 * `pass.gradients`. Variables in `boundary` count as leaves, because an outer backward pass continues from them. Throws
 * `DTypeError`, before anything is computed, if a node would return a quantized gradient that is needed unquantized.
 */
export function runBackward(
  root: Variable,
  grad: Gradient,
  pass: BackwardPass,
  boundary?: ReadonlySet<Variable>,
): void {
  const { gradients } = pass;
  const arrive = (at: Variable, incoming: Gradient): void => {
    const before = gradients.get(at);
    const after = before ? sum(before, incoming) : incoming;
    if (!gradFnOf(at) || boundary?.has(at)) pass.keep(after);
    gradients.set(at, after);
  };
  const nodes = topologicalOrder(root, boundary);
  for (const node of nodes) if (node.quantized.gradInput) requireQuantizedUse(node, nodes, boundary);
  if (root.requiresGrad) arrive(root, grad);
  for (const node of nodes) {
    const grads = node.results.map((result) => gradients.get(result));
    const inputGrads = inputGradsOf(node, grads, pass);
    node.inputs.forEach((input, i) => {
      const inputGrad = inputGrads[i];
      if (input.requiresGrad && inputGrad) arrive(input, inputGrad);
    });
    for (const each of node.saved) each?.dispose();
    for (const result of node.results) {
      result[GRAD_FN] = "freed";
      gradients.take(result);
    }
    for (const used of grads) if (used && used !== grad && !gradients.has(used)) used.dispose();
  }
}

/** Throws `DTypeError` unless the gradient of the first input is used exactly once, by a node that accepts it quantized. */
function requireQuantizedUse(
  { inputs }: Node,
  nodes: readonly Node[],
  boundary: ReadonlySet<Variable> | undefined,
): void {
  const [x] = inputs;
  if (!x?.requiresGrad) return;
  const gradFn = gradFnOf(x);
  const accepted = gradFn
    ? gradFn.quantized.gradOutput === true && gradFn.results[0] === x && !boundary?.has(x)
    : boundary !== undefined;
  const uses = nodes.reduce((count, node) => count + node.inputs.filter((input) => input === x).length, 0);
  if (accepted && uses === 1) return;
  throw new DTypeError(
    "backward: fp8Grad quantizes a gradient that is needed in f32, bf16 or f16; only a layer whose input is the result of a Linear can use it; leave it out elsewhere",
  );
}

/** Runs the node's `backward`, checks the gradients that it returns, and disposes of all other tensors that it created. */
function inputGradsOf(
  node: Node,
  grads: readonly (Gradient | undefined)[],
  pass: BackwardPass,
): readonly (Gradient | undefined)[] {
  using scope = new Scope();
  const inputGrads = node.backward(grads, pass);
  if (!Array.isArray(inputGrads))
    throw new ArgumentError(
      `backward: the backward of a custom operation returned ${describe(inputGrads)}; it must return an array with the gradient of each input`,
    );
  inputGrads.forEach((inputGrad, i) => {
    const input = node.inputs[i];
    if (!inputGrad) return;
    if (input) requireGradientOf(input, inputGrad);
    scope.keep(inputGrad);
  });
  return inputGrads;
}

/** Throws `DTypeError`, `ShapeError` or `ArgumentError` unless `grad` is a valid gradient of that input. */
function requireGradientOf({ value, shape }: Variable, grad: Gradient): void {
  if (grad instanceof QuantizedTensor) requireQuantized("backward", "a gradient", grad);
  else requireWide("backward", "a gradient", grad);
  if (!sameShape(grad.shape, shape))
    throw new ShapeError(
      `backward: the backward of a custom operation returned a gradient of shape [${grad.shape}] for an input of shape [${shape}]; the shapes must be equal`,
    );
  if (grad.backend !== value.backend)
    throw new ArgumentError(
      "backward: a gradient lives on another backend than its input; compute it on the backend of the input",
    );
}

/**
 * Returns the nodes by which `root` was computed, in reverse topological order. Throws `ArgumentError` if one of them is
 * already freed.
 */
function topologicalOrder(root: Variable, boundary?: ReadonlySet<Variable>): readonly Node[] {
  const seen = new Set<Node>();
  const open = [root];
  for (let next = open.pop(); next; next = open.pop()) {
    if (boundary?.has(next)) continue;
    if (next[GRAD_FN] === "freed") {
      throw new ArgumentError(
        "backward: part of the graph is already freed by an earlier backward pass; compute it again, or add the results up and call backward once",
      );
    }
    const node = gradFnOf(next);
    if (!node || seen.has(node)) continue;
    seen.add(node);
    open.push(...node.inputs);
  }
  return [...seen].sort((a, b) => b.sequence - a.sequence);
}

function gradFnOf({ [GRAD_FN]: gradFn }: Variable): Node | undefined {
  return gradFn === "freed" ? undefined : gradFn;
}

/** Adds `grad` to the leaf's gradient. No scope owns the result; it lives until the leaf disposes of it. */
function accumulate(leaf: Variable, grad: Tensor<WideDType>): void {
  const before = leaf.grad;
  // a new handle, because several leaves may share one gradient
  const after = before ? add(before, grad) : grad.reshape(grad.shape);
  before?.dispose();
  disown(after);
  leaf.grad = after;
}

/** Makes `scope` the owner of `value`. */
function moveTo(scope: Scope, value: Value): void {
  for (const member of value instanceof QuantizedTensor ? value.members : [value]) {
    disown(member);
    scope.own(member);
  }
}

function sum(x: Gradient, y: Gradient): Gradient {
  return add(wideOf("a gradient", x), wideOf("a gradient", y));
}

function onesLike({ value }: Variable): Tensor {
  const x = wideOf("backward", value);
  if (x.size !== 1)
    throw new ArgumentError(
      `backward: this value is [${x.shape}]; give the gradient of its ${x.size} elements`,
    );
  const bits = { f32: Float32Array.of(1), bf16: Uint16Array.of(0x3f80), f16: Uint16Array.of(0x3c00) }[
    x.dtype
  ];
  return tensor(x.backend, bits, x.shape, x.dtype);
}
