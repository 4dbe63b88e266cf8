/** The base class of optimizers. It owns the f32 masters and prepares the update of each parameter. */
import { guardReceivers, inherits, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { Module } from "../modules/module.js";
import { Parameter, persistent } from "../modules/parameter.js";
import { castTo } from "../ops/cast/cast.js";
import { tensor, zeros } from "../ops/create.js";
import { add } from "../ops/elementwise/operators.gen.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { describe, entriesOfMap, optionsOf } from "../options.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { requireScalar } from "../tensor/require.js";
import { type Owned, orDispose, Scope } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import { hasType, Tensor } from "../tensor/tensor.js";

/** The parameters to optimize: a module, or a map from checkpoint names to parameters. */
export type Optimized = Module | ReadonlyMap<string, Parameter>;

/** Options of `step()`. All fields are optional. */
export interface StepOptions {
  /** An f32 [1] factor, read on the device, that multiplies every gradient: the `factor` of `clipGradNorm`. */
  readonly gradScale?: Tensor<"f32"> | undefined;
  /**
   * An f32 [1] flag, read on the device. If it is exactly 1, no tensor changes. The step counter on the host is incremented all
   * the same.
   */
  readonly noop?: Tensor<"f32"> | undefined;
}

const checkStep = optionsOf<StepOptions>({ gradScale: requireScalar, noop: requireScalar });

/** The optimizer state of one parameter. */
export interface OptimizerSlot {
  /** The parameter to update. */
  readonly parameter: Parameter;
  /** The f32 master parameter. If the parameter is f32, it is the parameter's tensor. */
  readonly master: Tensor<"f32">;
  /**
   * Moving averages of the gradient (momentum, Adam moments), by their argument names in `sgd` and `adamw`, in the parameter's
   * shape.
   */
  readonly buffers: ReadonlyMap<string, Tensor<"f32">>;
  /** The number of updates so far. */
  steps: number;
}

/** The tensors of one parameter's step, as `sgd` and `adamw` take them. */
export interface StepTensors extends StepOptions {
  /** The f32 master parameter, updated in place. */
  readonly parameter: Tensor<"f32">;
  /** The gradient, in the parameter's shape. */
  readonly grad: Tensor<WideDType>;
  /** The bf16 or f16 parameter, which receives the new values rounded. Absent if the parameter has another type. */
  readonly copy?: Tensor<"bf16" | "f16">;
}

/**
 * Updates parameters from their gradients. The gradient is the sum of `mainGrad` and `grad`; a parameter without a gradient is
 * skipped. A 16-bit or quantized parameter has an f32 master: a step updates the master and then writes the parameter.
 */
export abstract class Optimizer {
  static {
    guardReceivers(this);
  }

  /** The optimizer state of each parameter, by the parameter's name. */
  readonly slots: ReadonlyMap<string, OptimizerSlot>;

  /** The private field by which `Symbol.hasInstance` recognizes an optimizer. */
  readonly #isOptimizer = true;

  /** @internal Whether `x` is an optimizer, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #isOptimizer in x && inherits(this, x);
  }

  protected constructor(
    optimized: Optimized,
    /** The names of the buffers that each parameter gets, or a function that returns them for the name of a parameter. */
    buffers: readonly string[] | ((name: string) => readonly string[]),
  ) {
    const named = parametersOf(optimized);
    if (named.size === 0)
      throw new ArgumentError("optimizer: the module or map has no parameters; give at least one");
    this.slots = orDispose(
      (created) =>
        new Map(
          [...named].map(([name, parameter]) => {
            const names = typeof buffers === "function" ? buffers(name) : buffers;
            return [name, slotOf(parameter, names, created)];
          }),
        ),
    );
  }

  /**
   * Updates all parameters that have a gradient, once.
   *
   * @throws `DTypeError` or `ShapeError` for a `gradScale` or `noop` that is not f32 [1], `ArgumentError` for an unknown option,
   * for an option on another backend, and if `noSync` of `fullyShard` has left a main gradient unreduced, `DisposedError` for a
   * disposed tensor.
   */
  step(options: StepOptions = {}): void {
    const ownOptions = checkStep("step", options);
    const { noop } = ownOptions;
    for (const { parameter } of this.slots.values()) requireReduced("step", parameter);
    // a backward pass completes the gradients of the last parameters first; their reductions on the side stream end first
    for (const slot of [...this.slots.values()].reverse()) {
      using _ = new Scope();
      const { parameter, master } = slot;
      const grad = parameter.requiresGrad ? gradientOf(parameter) : undefined;
      if (!grad) continue;
      parameter.sharding?.discardPrefetched();
      const { value } = parameter;
      const copy = value instanceof Tensor && hasType(value, "bf16", "f16") ? { copy: value } : {};
      this.update({ parameter: master, grad, ...copy, ...ownOptions }, slot, slot.steps + 1);
      slot.steps++;
      if (value instanceof QuantizedTensor) value.quantize_(master, noop ? { noop } : {});
    }
  }

  /** Runs update number `step`, counted from 1, of one parameter. */
  protected abstract update(tensors: StepTensors, slot: OptimizerSlot, step: number): void;

  /** Releases all gradients (`grad`) and sets all `mainGrad` to zero. */
  zeroGrad(): void {
    for (const { parameter } of this.slots.values()) parameter.clearGrads();
  }

  /** Frees the masters and buffers. The parameters are not freed. */
  dispose(): void {
    for (const { parameter, master, buffers } of this.slots.values()) {
      if (master !== parameter.value) master.dispose();
      for (const buffer of buffers.values()) buffer.dispose();
    }
  }

  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Throws `ArgumentError` if `noSync` has left a gradient for the `mainGrad` of a sharded parameter unreduced. */
export function requireReduced(user: string, parameter: Parameter): void {
  if (parameter.sharding?.hasFullMainGrad)
    throw new ArgumentError(
      `${user}: a gradient is not reduced over ranks; run the last backward pass outside of noSync`,
    );
}

/**
 * Returns the gradient of a parameter: the sum of `mainGrad` (from fused products) and `grad` (from other uses, such as an
 * embedding), in f32 as `mainGrad` is.
 */
export function gradientOf({ mainGrad, grad }: Parameter): Tensor<WideDType> | undefined {
  return mainGrad && grad ? add(mainGrad, grad) : (mainGrad ?? grad);
}

/** Returns the parameters by name. Throws `ArgumentError` for a list of parameters, which has no names. */
export function parametersOf(optimized: Optimized): ReadonlyMap<string, Parameter> {
  if (optimized instanceof Module) return optimized.namedParameters();
  const entries = entriesOfMap(optimized);
  if (entries) {
    for (const [name, parameter] of entries) {
      if (typeof name !== "string" || !(parameter instanceof Parameter))
        throw new ArgumentError(
          `optimizer: the map has ${describe(parameter)} under ${describe(name)}; it must map names to parameters`,
        );
    }
    return new Map(entries as [string, Parameter][]);
  }
  throw new ArgumentError(
    `optimizer: optimized is ${describe(optimized)}; give the module, or a map from names to parameters`,
  );
}

/** Creates the state of a parameter. New tensors are added to `created`. */
function slotOf(parameter: Parameter, names: readonly string[], created: Owned[]): OptimizerSlot {
  const master = masterOf(parameter);
  if (master !== parameter.value) created.push(master);
  const buffers = names.map((name) => {
    const buffer = persistent(zeros(master.backend, "f32", master.shape));
    created.push(buffer);
    return [name, buffer] as const;
  });
  return { parameter, master, buffers: new Map(buffers), steps: 0 };
}

function masterOf({ value, highPrecisionInitVal }: Parameter): Tensor<"f32"> {
  using scope = new Scope();
  if (value instanceof QuantizedTensor) {
    const wide = highPrecisionInitVal
      ? tensor(value.backend, highPrecisionInitVal, value.shape)
      : (dequantize(value, "f32") as Tensor<"f32">);
    return persistent(scope.keep(wide));
  }
  if (hasType(value, "f32")) return value;
  return persistent(scope.keep(castTo(value as Tensor<WideDType>, "f32") as Tensor<"f32">));
}
