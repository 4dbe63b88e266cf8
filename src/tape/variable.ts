/** Values that remember how they were computed, and the way back through them. */

import { ArgumentError, DTypeError } from "../errors.js";
import { add } from "../ops/add.js";
import { tensor } from "../ops/create.js";
import { requireShape } from "../ops/execute.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { disown, Scope } from "../tensor/scope.js";
import { isWide, type Shape, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { gradEnabled } from "./grad-mode.js";
import { ScaleUpdates } from "./scale-updates.js";

/** What layers compute with: wide values, or quantized ones. */
export type Value = Tensor | QuantizedTensor;

/** The gradient of a value: wide, or quantized by a layer that was asked for that. */
export type Gradient = Tensor<WideDType> | QuantizedTensor;

/** What a backward pass gives the functions it calls. */
export interface BackwardPass {
  /** Delayed scales of gradients, updated when the pass ends. */
  readonly updates: ScaleUpdates;
  /** The gradients of what was not computed itself, added up in the order they are found. */
  readonly leaves: Map<Variable, Gradient>;
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
}

let steps = 0;

/** A value that gradients can flow to. */
export class Variable {
  /** The gradient that `backward()` has found, added up over several passes. */
  grad: Tensor<WideDType> | undefined;
  /** How it was computed. */
  step: Step | undefined;
  /** A backward pass has gone through that step, which kept nothing for another. */
  spent = false;

  constructor(
    readonly value: Value,
    readonly requiresGrad = false,
  ) {}

  get shape(): Shape {
    return this.value.shape;
  }

  /** The value as a wide tensor; a quantized one is not. Throws `DTypeError`. */
  get tensor(): Tensor<WideDType> {
    return wideOf("this value", this.value);
  }

  /**
   * Adds the gradient of this value to `grad` of every variable it was computed from that has `requiresGrad` and was
   * not computed itself. `grad` is that of this value; where it has one element, default 1. What the forward pass
   * saved is disposed of on the way, so that a second pass needs a second forward pass. Then the scales of gradients
   * under delayed scaling are updated. Throws `ArgumentError` for a value that nothing leads back from, or
   * for one that another pass has gone through.
   */
  backward(grad?: Tensor): void {
    if (!this.step) {
      throw new ArgumentError(
        "backward: this value was not computed from anything that requires a gradient, or has been gone back through already",
      );
    }
    using scope = new Scope();
    const own = wideOf("grad", grad ?? onesLike(this));
    requireShape("backward", "grad", own, this.shape);
    const keep = (made: Gradient): void => {
      if (made !== own) moveTo(scope, made);
    };
    const pass = { updates: new ScaleUpdates(), leaves: new Map<Variable, Gradient>(), keep };
    goBackFrom(this, own, pass);
    for (const [leaf, value] of pass.leaves) accumulate(leaf, wideOf("a gradient", value));
    pass.updates.run();
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

/** What may be given where a value is computed with. */
export type VariableLike = Variable | Value;

/** `x` as a variable; a tensor is a constant. */
export function variable(x: VariableLike): Variable {
  return x instanceof Variable ? x : new Variable(x);
}

function needsGrad(...inputs: readonly Variable[]): boolean {
  return gradEnabled() && inputs.some((input) => input.requiresGrad);
}

/** A function that was computed: its results, and the way back. */
export interface Computed {
  readonly results: readonly Value[];
  readonly backward: Backward;
  /** What was made for the backward pass alone: disposed of after it, or at once where nothing is recorded. */
  readonly saved?: readonly (Value | undefined)[];
}

/**
 * The results of `forward`, a function of `inputs`, to be gone back through where any of them wants a gradient, which
 * `forward` is told. What else `forward` and the way back make is disposed of.
 */
export function differentiable(
  inputs: readonly Variable[],
  forward: (grad: boolean) => Computed,
  record = needsGrad(...inputs),
): readonly Variable[] {
  using scope = new Scope();
  const { results: values, backward, saved = [] } = forward(record);
  const results = values.map((value) => new Variable(scope.keep(value), record));
  if (!record) return results;
  for (const each of saved) if (each) scope.keep(each);
  const step = { order: ++steps, inputs, results, backward, saved };
  for (const result of results) result.step = step;
  return results;
}

/** As `differentiable`, for a function of one result; the way back is taken where that has a gradient. */
export function differentiableOne(
  inputs: readonly Variable[],
  forward: (grad: boolean) => {
    readonly result: Value;
    readonly backward: (grad: Gradient, pass: BackwardPass) => readonly (Gradient | undefined)[];
    readonly saved?: Computed["saved"];
  },
): Variable {
  const [result] = differentiable(inputs, (record) => {
    const { result, backward, saved } = forward(record);
    const back: Backward = ([grad], pass) => (grad ? backward(grad, pass) : []);
    return saved ? { results: [result], backward: back, saved } : { results: [result], backward: back };
  });
  return result as Variable;
}

/** Finds the gradients of all leaves behind `root`, as part of a pass. */
export function goBackFrom(root: Variable, grad: Gradient, pass: BackwardPass): void {
  const found = new Map<Variable, Gradient>();
  const arrive = (at: Variable, part: Gradient): void => {
    const gradients = at.step ? found : pass.leaves;
    const before = gradients.get(at);
    const after = before ? sum(before, part) : part;
    if (!at.step) pass.keep(after);
    gradients.set(at, after);
  };
  if (root.requiresGrad) arrive(root, grad);
  for (const step of stepsBehind(root)) {
    const grads = step.results.map((result) => found.get(result));
    const parts = goBack(step, grads, pass);
    step.inputs.forEach((input, i) => {
      const part = parts[i];
      if (input.requiresGrad && part) arrive(input, part);
    });
    for (const each of step.saved) each?.dispose();
    for (const result of step.results) {
      result.step = undefined;
      result.spent = true;
      found.delete(result);
    }
    const kept = new Set([...found.values(), ...pass.leaves.values()]);
    for (const spent of grads) if (spent && spent !== grad && !kept.has(spent)) spent.dispose();
  }
}

/** The gradients of a step's inputs; what else is made on the way is disposed of. */
function goBack(
  step: Step,
  grads: readonly (Gradient | undefined)[],
  pass: BackwardPass,
): readonly (Gradient | undefined)[] {
  using scope = new Scope();
  const parts = step.backward(grads, pass);
  for (const part of parts) if (part) scope.keep(part);
  return parts;
}

/** Every step that leads to `root`, the last one first. Throws `ArgumentError` where one of them is spent. */
function stepsBehind(root: Variable): readonly Step[] {
  const seen = new Set<Step>();
  const open = [root];
  for (let next = open.pop(); next; next = open.pop()) {
    if (next.spent) {
      throw new ArgumentError(
        "backward: a value in between has been gone back through already; compute it again, or sum up and go back once",
      );
    }
    if (!next.step || seen.has(next.step)) continue;
    seen.add(next.step);
    open.push(...next.step.inputs);
  }
  return [...seen].sort((a, b) => b.order - a.order);
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

/** `x` as a wide tensor; throws `DTypeError` for a quantized one. */
export function wideOf(name: string, x: Value): Tensor<WideDType> {
  if (x instanceof QuantizedTensor)
    throw new DTypeError(
      `${name} is quantized (${x.spec.quantizer}); it is needed in f32, bf16 or f16; dequantize it`,
    );
  if (isWideTensor(x)) return x;
  throw new DTypeError(`${name} is ${x.dtype}; it is needed in f32, bf16 or f16`);
}

function isWideTensor(x: Tensor): x is Tensor<WideDType> {
  return isWide(x.dtype);
}
