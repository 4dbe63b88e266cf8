/** Variables, differentiable operations on them, and the backward pass through the graph that these build. */
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

/** What a backward pass hands to the `backward` of each node. */
export interface BackwardPass {
  /** @internal Delayed scales of gradients, updated when the pass ends. */
  readonly updates: ScaleUpdates;
  /** @internal Gradients accumulated so far; only those of leaves are left at the end. */
  readonly gradients: Gradients;
  /** Keeps a gradient alive until the pass ends. */
  readonly keep: (grad: Gradient) => void;
}

/** Maps the gradients of a function's results to those of its inputs; undefined stands for no gradient. */
export type Backward = (
  grads: readonly (Gradient | undefined)[],
  pass: BackwardPass,
) => readonly (Gradient | undefined)[];

/** One recorded operation, PyTorch's autograd `Node`. */
interface Node {
  /** The number of nodes made before it: the backward pass runs nodes in descending order, which is topological. */
  readonly sequence: number;
  readonly inputs: readonly Variable[];
  readonly results: readonly Variable[];
  readonly backward: Backward;
  /** What it saved for `backward`. The node owns these and disposes of them. */
  readonly saved: readonly (Value | undefined)[];
  readonly quantized: QuantizedGradients;
}

/** Which gradients of a node may be quantized. Default: none. */
interface QuantizedGradients {
  /** Its `backward` accepts a quantized gradient of the first result. */
  readonly gradOutput?: boolean;
  /** Its `backward` returns a quantized gradient of the first input. */
  readonly gradInput?: boolean;
}

/** The key of a variable's node. It is a field because a map of nodes would cost more than the variables do. */
const GRAD_FN = Symbol("gradFn");

let nodesMade = 0;

/**
 * A value that gradients can flow to.
 *
 * @throws `ArgumentError` for anything but a tensor, `DTypeError` for one that requires a gradient and is not wide,
 * `DisposedError` for a tensor that was disposed of.
 */
export class Variable {
  /** The gradient, accumulated over `backward()` calls as in PyTorch. */
  grad: Tensor<WideDType> | undefined;
  /** @internal The node that computed it; "freed" after a backward pass, which disposes of what the node saved. */
  [GRAD_FN]: Node | "freed" | undefined;

  /**
   * `requiresGrad` of a leaf may be changed later: subsequent passes then accumulate its gradient, or leave a frozen parameter
   * alone.
   */
  constructor(
    /** Its tensor, plain or quantized. */
    readonly value: Value,
    /** Whether gradients are computed for it. May be set on a leaf. */
    public requiresGrad = false,
  ) {
    if (value instanceof QuantizedTensor) requireQuantized("Variable", "value", value);
    else requireTensor("Variable", "value", value);
    boolean("Variable", "requiresGrad", requiresGrad);
  }

  /** The shape of the value. */
  get shape(): Shape {
    return this.value.shape;
  }

  /** The value as a wide tensor. Throws `DTypeError` if it is quantized. */
  get tensor(): Tensor<WideDType> {
    return wideOf("this value", this.value);
  }

  /**
   * Computes the gradients of all leaves with `requiresGrad` that this value was computed from, and adds each to the leaf's
   * `grad`. `grad` is the gradient of this value; it may be left out for a value of one element, where it is 1. The graph is
   * freed: what the forward pass saved is disposed of, so a second pass needs a second forward pass. At the end, delayed
   * scaling updates the scales of gradients.
   *
   * @throws `ArgumentError` for a value without a graph, or one whose graph an earlier pass has freed.
   * @throws `DTypeError` or `ShapeError` for a gradient of another type or shape than the value, `DisposedError` for a tensor
   * that was disposed of.
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

  /** The value, and whether it requires a gradient, as text. See `Tensor.toString`. */
  toString(): string {
    return `Variable(${this.requiresGrad ? "requires grad, " : ""}${this.value})`;
  }

  /** Makes `console.log` of Node print `toString()`. */
  [INSPECT](): string {
    return this.toString();
  }

  /** Disposes of the gradient. */
  zeroGrad(): void {
    this.grad?.dispose();
    this.grad = undefined;
  }

  /** The same value without its graph. */
  detach(): Variable {
    return new Variable(this.value);
  }
}

function membersOf(value: Value): readonly Tensor[] {
  return value instanceof QuantizedTensor ? value.members : [value];
}

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

/**
 * Runs the graph of `root` in reverse topological order as part of `pass`, and leaves the gradients of leaves in
 * `pass.gradients`. Variables in `boundary` count as leaves: an outer backward pass continues from them. Throws `DTypeError`,
 * before anything is computed, if a node would quantize a gradient that is needed wide.
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

/** Throws `DTypeError` unless the gradient of the first input is used once, by a node that accepts it quantized. */
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

/** Runs the node's `backward` and checks the gradients it returns. Every other tensor made meanwhile is disposed of. */
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

/** Throws `DTypeError`, `ShapeError` or `ArgumentError` unless `grad` can be the gradient of that input. */
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
 * The nodes that `root` was computed by, in reverse topological order. Throws `ArgumentError` if one of them is already freed.
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

/** Adds `grad` to the leaf's gradient. No scope owns the result: it lives until the leaf disposes of it. */
function accumulate(leaf: Variable, grad: Tensor<WideDType>): void {
  const before = leaf.grad;
  // a new handle, because several leaves may share one gradient
  const after = before ? add(before, grad) : grad.reshape(grad.shape);
  before?.dispose();
  disown(after);
  leaf.grad = after;
}

/** Transfers ownership of `value` to `scope`. */
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
