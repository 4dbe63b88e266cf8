/** Variables: values that gradients can flow to. */
import { guardReceivers, inherits, isObject } from "../brand.js";
import { ArgumentError, DTypeError } from "../errors.js";
import { tensor } from "../ops/create.js";
import { add } from "../ops/elementwise/operators.gen.js";
import { commonBackend, requireShape } from "../ops/execute.js";
import { boolean, callable } from "../options.js";
import { QuantizedTensor, requireQuantized } from "../tensor/quantized.js";
import { requireTensor, requireWide } from "../tensor/require.js";
import { disown, Scope } from "../tensor/scope.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import { INSPECT } from "../tensor/show.js";
import { isTensor, type Tensor } from "../tensor/tensor.js";
import { runBackward } from "./backward.js";
import { Gradients } from "./gradients.js";
import { GradHooks, HOOKS, type HookedPass, type HookHandle, type PostAccumulateGradHook } from "./hooks.js";
import { type BackwardPass, GRAD_FN, gradFnOf, type Node } from "./node.js";
import { ScaleUpdates } from "./scale-updates.js";
import { runPass, USE_HOOKS, type UseHooks } from "./uses.js";
import { type Gradient, membersOf, type Value, wideOf } from "./value.js";

/**
 * A tensor, quantized or not, that can take part in a backward pass.
 *
 * @throws `ArgumentError` for a value that is not a tensor, `DTypeError` for a value that requires a gradient and is not f32,
 * bf16, f16 or quantized, `DisposedError` for a disposed tensor.
 */
export class Variable {
  static {
    guardReceivers(this);
  }

  /** The gradient, accumulated over `backward()` calls as in PyTorch. Undefined until the first call. */
  grad: Tensor<WideDType> | undefined;
  /**
   * @internal The node that computed this variable, or "freed" after a backward pass has disposed of the node's saved tensors.
   * Undefined for a leaf.
   */
  [GRAD_FN]: Node | "freed" | undefined;
  /** @internal The hooks of a leaf. Undefined if none was registered. */
  [HOOKS]: GradHooks | undefined;
  /** @internal The functions called before and after each operation that uses this leaf. Undefined for most leaves. */
  [USE_HOOKS]: UseHooks | undefined;
  readonly #value: Value;

  /** @internal Whether `x` is a variable, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #value in x && inherits(this, x);
  }

  /** `requiresGrad` of a leaf may be changed later. The new value applies to the backward passes that follow. */
  constructor(
    value: Value,
    /** Whether a gradient is computed for this variable. May be assigned on a leaf. */
    public requiresGrad = false,
  ) {
    if (value instanceof QuantizedTensor) requireQuantized("Variable", "value", value);
    else if (!isTensor(value) || !value.isMeta) requireTensor("Variable", "value", value);
    boolean("Variable", "requiresGrad", requiresGrad);
    this.#value = value;
  }

  /** @internal Whether the function that computes the gradient after the backward pass calls the hooks. */
  get hooksAfterPass(): boolean {
    return false;
  }

  /** The tensor, quantized or not. */
  get value(): Value {
    return this.#value;
  }

  /** The backend of the tensor. */
  get backend(): Tensor["backend"] {
    return this.value.backend;
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
   * graph: it disposes of the tensors that the forward pass saved, so another backward pass needs another forward pass. At the
   * end, delayed scaling updates the scales of gradients.
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
    const rootGrad = wideOf("grad", grad ?? onesLike(this));
    commonBackend("backward", rootGrad, ...membersOf(this.value));
    requireShape("backward", "grad", rootGrad, this.shape);
    if (rootGrad.dtype !== this.value.dtype)
      throw new DTypeError(
        `backward: grad is ${rootGrad.dtype}; it must be ${this.value.dtype}, the dtype of this value`,
      );
    const keep = (gradient: Gradient): void => {
      if (gradient !== rootGrad) moveTo(scope, gradient);
    };
    const pass = { updates: new ScaleUpdates(), gradients: new Gradients(), keep };
    const ends: (() => void)[] = [];
    const hookedPass = { atEnd: (callback: () => void) => void ends.push(callback) };
    const onLeafComplete = (leaf: Variable): void => runHooks(leaf, pass, hookedPass, rootGrad);
    runPass(pass, () => runBackward(this, rootGrad, pass, { onLeafComplete }));
    for (const [leaf, value] of pass.gradients) accumulate(leaf, wideOf("a gradient", value));
    pass.updates.run();
    for (const callback of ends) callback();
  }

  /**
   * Registers a hook, which every backward pass that reaches this leaf calls as soon as it has completed the leaf's `grad` (or
   * the `mainGrad` that a layer adds to instead). The pass may still be computing the gradients of other leaves. Corresponds to
   * PyTorch's `register_post_accumulate_grad_hook`.
   *
   * @throws `ArgumentError` for a variable that was computed by an operation, and for a hook that is not a function.
   */
  registerPostAccumulateGradHook(hook: PostAccumulateGradHook): HookHandle {
    callable("registerPostAccumulateGradHook", "hook", hook);
    if (this[GRAD_FN])
      throw new ArgumentError(
        "registerPostAccumulateGradHook: this value was computed by an operation, so it accumulates no gradient; register the hook on a leaf",
      );
    this[HOOKS] ??= new GradHooks();
    return this[HOOKS].add(hook);
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

/**
 * Accumulates the gradient of a leaf before the pass has ended, and calls the leaf's hooks. The pass releases the gradient before
 * the hooks run, so that they can free its memory. `rootGrad` belongs to the caller of `backward` and is not released.
 */
function runHooks(
  leaf: Variable,
  { gradients }: BackwardPass,
  pass: HookedPass,
  rootGrad: Tensor<WideDType>,
): void {
  const grad = gradients.take(leaf);
  if (grad) accumulate(leaf, wideOf("a gradient", grad));
  if (grad && grad !== rootGrad && !gradients.has(grad)) grad.dispose();
  leaf[HOOKS]?.run(leaf, pass);
}

/**
 * Computes gradients of leaves after the backward pass, adds each to its leaf and calls the leaf's hooks, unless the leaf
 * requires no gradient any more. `gradOf` returns undefined for a gradient that it has added to a `mainGrad`.
 */
export function accumulateAfterPass<L extends Variable>(
  leaves: readonly L[],
  gradOf: (leaf: L) => Tensor<WideDType> | undefined,
): void {
  const ends: (() => void)[] = [];
  const pass = {
    atEnd: (callback: () => void) => void ends.push(callback),
    delayedLeaves: leaves.filter(({ requiresGrad }) => requiresGrad),
  };
  for (const leaf of leaves) {
    const grad = gradOf(leaf);
    if (grad && leaf.requiresGrad) accumulate(leaf, grad);
    grad?.dispose();
    if (leaf.requiresGrad) leaf[HOOKS]?.run(leaf, pass);
  }
  for (const callback of ends) callback();
}

/** Adds `grad` to the leaf's gradient. No scope owns the result; it lives until the leaf disposes of it. */
function accumulate(leaf: Variable, grad: Tensor<WideDType>): void {
  leaf[USE_HOOKS]?.beforeAccumulate();
  const earlier = leaf.grad;
  // a new handle, because several leaves may share one gradient
  const total = earlier ? add(earlier, grad) : grad.reshape(grad.shape);
  earlier?.dispose();
  disown(total);
  leaf.grad = total;
}

/** Makes `scope` the owner of `value`. */
function moveTo(scope: Scope, value: Value): void {
  for (const member of membersOf(value)) {
    disown(member);
    scope.own(member);
  }
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
