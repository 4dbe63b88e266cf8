/** Values that remember how they were computed, and the way back through them. */
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

/** What a backward pass gives the functions it calls. */
export interface BackwardPass {
  /** @internal Delayed scales of gradients, updated when the pass ends. */
  readonly updates: ScaleUpdates;
  /** @internal Added up in the order they are found; at the end, those of what was not computed itself are left. */
  readonly gradients: Gradients;
  /** Lets a gradient live until the pass ends. */
  readonly keep: (grad: Gradient) => void;
}

/** From the gradients of a function's results to those of its inputs; undefined where there is none. */
export type Backward = (
  grads: readonly (Gradient | undefined)[],
  pass: BackwardPass,
) => readonly (Gradient | undefined)[];

/** One function that was computed. */
interface Step {
  /** Steps are gone back through in the opposite order of their making. */
  readonly order: number;
  readonly inputs: readonly Variable[];
  readonly results: readonly Variable[];
  readonly backward: Backward;
  /** What it kept for that, its own to dispose of. */
  readonly saved: readonly (Value | undefined)[];
  readonly quantized: QuantizedGradients;
}

/** Where a function's gradients may be quantized. Default: nowhere. */
interface QuantizedGradients {
  /** Its way back takes the gradient of its first result so. */
  readonly taken?: boolean;
  /** Its way back gives that of its first input so. */
  readonly given?: boolean;
}

/** Where a variable says how it was computed; a field, for the reason that an owner is one. */
const ORIGIN = Symbol("origin");

let steps = 0;

/**
 * A value that gradients can flow to.
 *
 * @throws `ArgumentError` for what is no tensor, `DTypeError` for one that requires a gradient and is not wide,
 * `DisposedError` for a tensor that was disposed of.
 */
export class Variable {
  /** The gradient that `backward()` has found, added up over several passes. */
  grad: Tensor<WideDType> | undefined;
  /** @internal How it was computed; spent once a backward pass has gone through that, which keeps nothing for another. */
  [ORIGIN]: Step | "spent" | undefined;

  /** `requiresGrad` of a leaf may be set: passes from then on give it a gradient, or none where a parameter is frozen. */
  constructor(
    /** The tensor that it stands for, quantized or not. */
    readonly value: Value,
    /** Whether backward passes give it a gradient, or go on through it. May be set where it was not computed. */
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

  /** The value as a wide tensor; a quantized one is not. Throws `DTypeError`. */
  get tensor(): Tensor<WideDType> {
    return wideOf("this value", this.value);
  }

  /**
   * Adds the gradient of this value to `grad` of every variable it was computed from that has `requiresGrad` and was not
   * computed itself. `grad` is that of this value; where it has one element, default 1. What the forward pass saved is
   * disposed of on the way, so that a second pass needs a second forward pass. Then the scales of gradients under delayed
   * scaling are updated.
   *
   * @throws `ArgumentError` for a value that nothing leads back from, or for one that another pass has gone through.
   * @throws `DTypeError` or `ShapeError` for a gradient of another type or shape than the value, `DisposedError` for a
   * tensor that was disposed of.
   */
  backward(grad?: Tensor): void {
    if (!stepOf(this)) {
      throw new ArgumentError(
        this[ORIGIN] === "spent"
          ? "backward: this value has been gone back through already; compute it again"
          : "backward: this value was not computed from anything that requires a gradient, or inside noGrad",
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
    goBackFrom(this, own, pass);
    for (const [leaf, value] of pass.gradients) accumulate(leaf, wideOf("a gradient", value));
    pass.updates.run();
  }

  /** The value, and whether it requires a gradient, for people; as `Tensor.toString`. */
  toString(): string {
    return `Variable(${this.requiresGrad ? "requires grad, " : ""}${this.value})`;
  }

  /** What `console.log` prints in Node; as `toString`. */
  [INSPECT](): string {
    return this.toString();
  }

  /** Lets go of the gradient. */
  zeroGrad(): void {
    this.grad?.dispose();
    this.grad = undefined;
  }

  /** The same value, which nothing leads back from. */
  detach(): Variable {
    return new Variable(this.value);
  }
}

function membersOf(value: Value): readonly Tensor[] {
  return value instanceof QuantizedTensor ? value.members : [value];
}

/** What may be given where a value is computed with. */
export type VariableLike = Variable | Value;

/** `x` as a variable; a tensor is a constant. Throws `ArgumentError` for anything else. */
export function variable(x: VariableLike): Variable {
  if (x instanceof Variable) return x;
  if (x instanceof Tensor || x instanceof QuantizedTensor) return new Variable(x);
  throw new ArgumentError(
    `a tensor or a variable is needed; ${describe(x)} was given, which is of type ${typeof x}`,
  );
}

/** A function that was computed: its results, and the way back. */
export interface Computed<R extends readonly Value[] = readonly Value[]> {
  /** What the function gives, in order; each becomes a variable. */
  readonly results: R;
  /** From gradients of the results to those of the inputs. */
  readonly backward: Backward;
  /** What was made for the backward pass alone: disposed of after it, or at once where nothing is recorded. */
  readonly saved?: readonly (Value | undefined)[];
  /** @internal */
  readonly quantized?: QuantizedGradients;
  /** Whether the results require a gradient, where recording is on. Default: where an input does. */
  readonly requiresGrad?: boolean;
  /** @internal What else it was computed from; its gradients are found as the way back is taken. */
  readonly captured?: Iterable<Variable>;
}

/**
 * A custom operation on the tape, PyTorch's `autograd.Function`: the results of `forward`, from which gradients flow back to
 * `inputs` by the `backward` that it returns. `forward` computes with the values of the inputs and is told whether a backward
 * pass may come. `backward` gets the gradient of each result, undefined where none arrived, and gives the gradient of each
 * input in its order and shape, wide, on the same backend; undefined, or a list that ends early, where there is none. Tensors
 * that `forward` and `backward` make and do not return, or list in `saved`, are disposed of. Inputs without `requiresGrad`, and
 * calls inside `noGrad`, record nothing. A tensor among the inputs is a constant.
 *
 * @throws ArgumentError where an argument, what `forward` returns, or one of its results is of another kind. On
 * `Variable.backward`: ArgumentError, DTypeError or ShapeError for gradients that are not as said here.
 */
export function differentiable<const R extends readonly Value[]>(
  inputs: readonly VariableLike[],
  forward: (grad: boolean) => Computed<R>,
): { readonly [K in keyof R]: Variable };
/** @internal As above; `record` decides whether the call goes on the tape. */
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
  const step = { order: ++steps, inputs: [...inputs, ...captured], results, backward, saved, quantized };
  for (const result of results) result[ORIGIN] = step;
  return results;
}

/** Inputs as variables: themselves, where all are. Throws `ArgumentError` for what is no list of variables and tensors. */
function variablesOf(given: readonly VariableLike[]): readonly Variable[] {
  if (!Array.isArray(given))
    throw new ArgumentError(
      `differentiable: inputs is ${describe(given)}; it must be an array of variables and tensors`,
    );
  const isVariable = (each: VariableLike): each is Variable => each instanceof Variable;
  // a hole in the list is no variable: `every` passes over it, `includes` and `Array.from` do not
  return given.every(isVariable) && !given.includes(undefined as never) ? given : Array.from(given, variable);
}

/** What a forward function returned. Throws `ArgumentError` where it has no list of results, or no backward. */
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

/** Notes a variable that was computed before the part that is recorded as a whole, if one is around. */
export function capture(from: Variable): Variable {
  if (from[ORIGIN]) captures()?.add(from);
  return from;
}

/** As `differentiable`, for a function of one result; the way back is taken where that has a gradient. */
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
 * Finds the gradients of all leaves behind `root`, as part of a pass; `outside`: another variable's way back goes on from the
 * leaves, and from these, behind which this one does not go. Throws `DTypeError` before anything is computed where a step
 * quantizes a gradient that is needed wide.
 */
export function goBackFrom(
  root: Variable,
  grad: Gradient,
  pass: BackwardPass,
  outside?: ReadonlySet<Variable>,
): void {
  const { gradients } = pass;
  const arrive = (at: Variable, part: Gradient): void => {
    const before = gradients.get(at);
    const after = before ? sum(before, part) : part;
    if (!stepOf(at) || outside?.has(at)) pass.keep(after);
    gradients.set(at, after);
  };
  const behind = stepsBehind(root, outside);
  for (const step of behind) if (step.quantized.given) requireQuantizedTaken(step, behind, outside);
  if (root.requiresGrad) arrive(root, grad);
  for (const step of behind) {
    const grads = step.results.map((result) => gradients.get(result));
    const parts = goBack(step, grads, pass);
    step.inputs.forEach((input, i) => {
      const part = parts[i];
      if (input.requiresGrad && part) arrive(input, part);
    });
    for (const each of step.saved) each?.dispose();
    for (const result of step.results) {
      result[ORIGIN] = "spent";
      gradients.take(result);
    }
    for (const spent of grads) if (spent && spent !== grad && !gradients.has(spent)) spent.dispose();
  }
}

/** Whether the first input's gradient goes to nothing but a step that takes it quantized. */
function requireQuantizedTaken(
  { inputs }: Step,
  steps: readonly Step[],
  outside: ReadonlySet<Variable> | undefined,
): void {
  const [x] = inputs;
  if (!x?.requiresGrad) return;
  const origin = stepOf(x);
  const taken = origin
    ? origin.quantized.taken === true && origin.results[0] === x && !outside?.has(x)
    : outside !== undefined;
  const uses = steps.reduce((sum, step) => sum + step.inputs.filter((input) => input === x).length, 0);
  if (taken && uses === 1) return;
  throw new DTypeError(
    "backward: fp8Grad quantizes a gradient that is needed in f32, bf16 or f16; it is for a layer whose input is the result of a Linear, and of no use elsewhere; leave it out",
  );
}

/** The gradients of a step's inputs; what else is made on the way is disposed of. */
function goBack(
  step: Step,
  grads: readonly (Gradient | undefined)[],
  pass: BackwardPass,
): readonly (Gradient | undefined)[] {
  using scope = new Scope();
  const parts = step.backward(grads, pass);
  if (!Array.isArray(parts))
    throw new ArgumentError(
      `backward: a custom operation gave ${describe(parts)}; it must give an array, the gradient of each input`,
    );
  parts.forEach((part, i) => {
    const input = step.inputs[i];
    if (!part) return;
    if (input) requireGradientOf(input, part);
    scope.keep(part);
  });
  return parts;
}

/** Throws `DTypeError`, `ShapeError` or `ArgumentError` unless `part` can be the gradient of that input. */
function requireGradientOf({ value, shape }: Variable, part: Gradient): void {
  if (part instanceof QuantizedTensor) requireQuantized("backward", "a gradient", part);
  else requireWide("backward", "a gradient", part);
  if (!sameShape(part.shape, shape))
    throw new ShapeError(
      `backward: a custom operation gave a gradient of [${part.shape}]; its input is [${shape}], and so must be its gradient`,
    );
  if (part.backend !== value.backend)
    throw new ArgumentError(
      "backward: a gradient lives on another backend than its input; compute it on the backend of the input",
    );
}

/** Every step that leads to `root`, the last one first. Throws `ArgumentError` where one of them is spent. */
function stepsBehind(root: Variable, outside?: ReadonlySet<Variable>): readonly Step[] {
  const seen = new Set<Step>();
  const open = [root];
  for (let next = open.pop(); next; next = open.pop()) {
    if (outside?.has(next)) continue;
    if (next[ORIGIN] === "spent") {
      throw new ArgumentError(
        "backward: a value in between has been gone back through already; compute it again, or sum up and go back once",
      );
    }
    const step = stepOf(next);
    if (!step || seen.has(step)) continue;
    seen.add(step);
    open.push(...step.inputs);
  }
  return [...seen].sort((a, b) => b.order - a.order);
}

function stepOf({ [ORIGIN]: origin }: Variable): Step | undefined {
  return origin === "spent" ? undefined : origin;
}

/** Adds to what a leaf has. The result lives until the leaf lets go of it, whatever scope is open. */
function accumulate(leaf: Variable, grad: Tensor<WideDType>): void {
  const before = leaf.grad;
  // a handle of its own: one gradient may be that of several leaves
  const after = before ? add(before, grad) : grad.reshape(grad.shape);
  before?.dispose();
  disown(after);
  leaf.grad = after;
}

/** `scope` comes to own `value`, whoever did. */
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
