/** The base of optimizers: f32 master parameters, and the inputs of each parameter's step. */
import { ArgumentError } from "../errors.js";
import { Module } from "../modules/module.js";
import { Parameter, persistent } from "../modules/parameter.js";
import { castTo } from "../ops/cast/cast.js";
import { tensor, zeros } from "../ops/create.js";
import { add } from "../ops/elementwise/add.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { type GradNorm, gradNorm } from "../ops/update/grad-norm.js";
import { atLeastZero, describe, optionsOf } from "../options.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { requireScalar } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import { hasType, Tensor } from "../tensor/tensor.js";

/** The parameters to optimize: a module, or parameters by the names that checkpoints use. */
export type Optimized = Module | ReadonlyMap<string, Parameter>;

/** Options of `step()`; both tensors are read on the device. */
export interface StepOptions {
  /** Multiplies every gradient, f32 [1], read on the device: the factor of `clipGradNorm`. */
  readonly gradScale?: Tensor<"f32"> | undefined;
  /** If exactly 1, f32 [1], no tensor changes; the host, which cannot see that, still counts the step. */
  readonly noop?: Tensor<"f32"> | undefined;
}

const checkStep = optionsOf<StepOptions>({ gradScale: requireScalar, noop: requireScalar });

/** The state of one parameter: its master and buffers. */
export interface OptimizerSlot {
  /** The parameter to update. */
  readonly parameter: Parameter;
  /** The f32 master; the parameter itself if that is f32. */
  readonly master: Tensor<"f32">;
  /** Running means of gradients, by their names in `sgd` and `adamw`, in the parameter's shape. */
  readonly buffers: ReadonlyMap<string, Tensor<"f32">>;
  /** The number of updates so far. */
  steps: number;
}

/** The tensors of one parameter's step, for `sgd` and `adamw`. */
export interface StepTensors extends StepOptions {
  /** The master, updated in place. */
  readonly parameter: Tensor<"f32">;
  /** The gradient, in the parameter's shape. */
  readonly grad: Tensor<WideDType>;
  /** The 16-bit parameter, which receives the new values rounded. Absent if there is none. */
  readonly copy?: Tensor<"bf16" | "f16">;
}

/**
 * Updates parameters from their gradients, the sum of `mainGrad` and `grad`; parameters without a gradient are skipped. 16-bit
 * and quantized parameters have f32 masters: steps update the master and then write the parameter.
 */
export abstract class Optimizer {
  /** The state of each parameter, by the parameter's name. */
  readonly slots: ReadonlyMap<string, OptimizerSlot>;

  protected constructor(
    optimized: Optimized,
    /** The names of the buffers of each parameter. */
    buffers: readonly string[],
  ) {
    const named = parametersOf(optimized);
    if (named.size === 0) throw new ArgumentError("an optimizer needs at least one parameter");
    this.slots = new Map([...named].map(([name, parameter]) => [name, slotOf(parameter, buffers)]));
  }

  /**
   * One update of all parameters.
   *
   * @throws `DTypeError` or `ShapeError` for a factor or a flag that is not f32 [1], `ArgumentError` for an unknown option
   * or one that lives on another backend, `DisposedError` for a tensor that was disposed of.
   */
  step(options: StepOptions = {}): void {
    const { noop } = checkStep("step", options);
    for (const slot of this.slots.values()) {
      using _ = new Scope();
      const { parameter, master } = slot;
      const grad = parameter.requiresGrad ? gradientOf(parameter) : undefined;
      if (!grad) continue;
      const { value } = parameter;
      const copy = value instanceof Tensor && hasType(value, "bf16", "f16") ? { copy: value } : {};
      this.update({ parameter: master, grad, ...copy, ...options }, slot, slot.steps + 1);
      slot.steps++;
      if (value instanceof QuantizedTensor) value.quantize_(master, noop ? { noop } : {});
    }
  }

  /** Update number `step` of one parameter. */
  protected abstract update(tensors: StepTensors, slot: OptimizerSlot, step: number): void;

  /** Releases all gradients and sets main gradients to zero. */
  zeroGrad(): void {
    for (const { parameter } of this.slots.values()) parameter.clearGrads();
  }

  /** Frees masters and buffers, but not the parameters. */
  dispose(): void {
    for (const { parameter, master, buffers } of this.slots.values()) {
      if (master !== parameter.value) master.dispose();
      for (const buffer of buffers.values()) buffer.dispose();
    }
  }

  /** As `dispose`, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/**
 * The 2-norm of all gradients, and the factor that reduces it to `maxNorm`, for `step({ gradScale: factor })`. Both stay on the
 * device; dispose of both, or use a scope. Throws `ArgumentError` if no parameter has a gradient.
 */
export function clipGradNorm(optimized: Optimized | Optimizer, maxNorm: number): GradNorm {
  atLeastZero("clipGradNorm", "maxNorm", maxNorm);
  const parameters =
    optimized instanceof Optimizer
      ? [...optimized.slots.values()].map(({ parameter }) => parameter)
      : [...parametersOf(optimized).values()];
  using scope = new Scope();
  const grads = parameters.flatMap((parameter) => gradientOf(parameter) ?? []);
  if (grads.length === 0)
    throw new ArgumentError("clipGradNorm: no parameter has a gradient; call backward() first");
  const made = gradNorm(grads, { maxNorm });
  for (const each of [made.norm, made.factor]) scope.keep(each);
  return made;
}

/** The sum of the gradient accumulated by fused products and that of other uses of the parameter, such as an embedding. */
function gradientOf({ mainGrad, grad }: Parameter): Tensor<WideDType> | undefined {
  return mainGrad && grad ? add(mainGrad, grad, { outDtype: "f32" }) : (mainGrad ?? grad);
}

/** The parameters by name. Throws `ArgumentError` for a list of them, which has no names. */
function parametersOf(optimized: Optimized): ReadonlyMap<string, Parameter> {
  if (optimized instanceof Module) return optimized.namedParameters();
  if (optimized instanceof Map) {
    for (const [name, parameter] of optimized) {
      if (typeof name !== "string" || !(parameter instanceof Parameter))
        throw new ArgumentError(
          `what is optimized maps ${describe(name)} to ${describe(parameter)}; it must map names to parameters`,
        );
    }
    return optimized;
  }
  throw new ArgumentError(
    "what is optimized is neither a module nor a map from names to parameters; give the module itself",
  );
}

function slotOf(parameter: Parameter, names: readonly string[]): OptimizerSlot {
  const master = masterOf(parameter);
  const buffers = names.map((name) => {
    return [name, persistent(zeros(master.backend, "f32", master.shape))] as const;
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
