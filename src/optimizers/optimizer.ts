/** The base class of optimizers. It owns the f32 masters and prepares the update of each parameter. */
import { guardReceivers, inherits, isObject } from "../brand.js";
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError } from "../errors.js";
import { Module } from "../modules/module.js";
import { Parameter, persistent } from "../modules/parameter.js";
import { castTo } from "../ops/cast/cast.js";
import { tensor } from "../ops/create.js";
import { add } from "../ops/elementwise/operators.gen.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { describe, entriesOfMap, optionsOf } from "../options.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { requireScalar, requireTensor } from "../tensor/require.js";
import { type Owned, orDispose, Scope } from "../tensor/scope.js";
import { sameShape, type WideDType } from "../tensor/shape.js";
import { hasType, isTensor, type Tensor } from "../tensor/tensor.js";
import {
  type MasterDType,
  type MasterOptions,
  type MomentDType,
  readState,
  type State,
  storeState,
  zeroState,
} from "./state.js";

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
  /**
   * The master parameter. If the parameter is f32, it is the parameter's tensor. If f16, `buffers` has its scale. If u16, it is
   * the lower 16 bits, and the parameter has the upper 16 (numerics.md §9.7).
   */
  readonly master: Tensor<MasterDType | "u16">;
  /**
   * Moving averages of the gradient (momentum, Adam moments), by their argument names in `sgd` and `adamw`, in the parameter's
   * shape. A tensor of f16 or e4m3 holds codes, and `m.scale`, `v.scale` or `master.scale`, f32 [1], is the factor of their
   * values (numerics.md §9.6).
   */
  readonly buffers: ReadonlyMap<string, Tensor<MomentDType>>;
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
  readonly copy?: Tensor<"bf16" | "f16"> | undefined;
}

/** One update of one parameter. */
export interface SlotStep {
  /** The tensors of the step, without buffers. */
  readonly tensors: StepTensors;
  /** The optimizer state of the parameter. */
  readonly slot: OptimizerSlot;
  /** The moving averages of the slot as f32 tensors, updated in place. A name is missing if the slot has no such buffer. */
  readonly moments: { readonly [name: string]: Tensor<"f32"> };
  /** The number of the update, counted from 1. */
  readonly step: number;
}

/** The dtypes of the states that an optimizer creates. */
export interface StateDTypes {
  /** The dtypes of the buffers of a parameter, by their names. */
  readonly moments: (name: string) => { readonly [buffer: string]: MomentDType };
  /** The masters. Default: all are f32 tensors. */
  readonly masters?: MasterOptions | undefined;
}

/**
 * Updates parameters from their gradients. The gradient is the sum of `mainGrad` and `grad`; a parameter without a gradient is
 * skipped. A 16-bit or quantized parameter has a master: a step updates the master and then writes the parameter. A step is
 * computed in f32, and states of other dtypes are stored after it.
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

  protected constructor(optimized: Optimized, dtypes: StateDTypes) {
    const parameters = parametersOf(optimized);
    if (parameters.size === 0)
      throw new ArgumentError("optimizer: the module or map has no parameters; give at least one");
    this.slots = orDispose(
      (created) =>
        new Map(
          [...parameters].map(([name, parameter]) => [name, createSlot(name, parameter, dtypes, created)]),
        ),
    );
  }

  /**
   * Updates all parameters that have a gradient, once. If it throws, some of them may be updated.
   *
   * @throws `DTypeError` or `ShapeError` for a `gradScale` or `noop` that is not f32 [1], `ArgumentError` for an unknown option,
   * for an option on another backend, and if `noSync` of `fullyShard` has left a main gradient unreduced, `DisposedError` for a
   * disposed tensor.
   */
  step(options: StepOptions = {}): void {
    const ownOptions = checkStep("step", options);
    for (const { parameter } of this.slots.values()) requireReduced("step", parameter);
    const steps: SlotStep[] = [];
    // a backward pass completes the gradients of the last parameters first; their reductions on the side stream end first
    for (const slot of [...this.slots.values()].reverse()) {
      const { parameter } = slot;
      if (!parameter.requiresGrad || !(parameter.mainGrad ?? parameter.grad)) continue;
      parameter.sharding?.discardPrefetched();
      const step = stepInPlace(slot, ownOptions);
      if (step) steps.push(step);
      else this.#stepWithTemporaries(slot, ownOptions);
    }
    if (steps.length === 0) return;
    this.update(steps);
    for (const { slot } of steps) slot.steps++;
  }

  /**
   * Updates a parameter whose step needs temporary tensors. It is not in one list with others, because the temporary tensors of
   * all parameters would take as much memory as f32 states.
   */
  #stepWithTemporaries(slot: OptimizerSlot, options: StepOptions): void {
    using _ = new Scope();
    const { parameter } = slot;
    const { noop } = options;
    const { value } = parameter;
    const states = namedStates(slot).map(([name, state]) => ({ name, state, values: readState(state) }));
    const { master, ...moments } = Object.fromEntries(states.map(({ name, values }) => [name, values]));
    const grad = gradientOf(parameter) as Tensor<WideDType>;
    const tensors = { parameter: master as Tensor<"f32">, grad, copy: roundedCopy(slot), ...options };
    this.update([{ tensors, slot, moments, step: slot.steps + 1 }]);
    slot.steps++;
    if (value instanceof QuantizedTensor) value.quantize_(tensors.parameter, noop ? { noop } : {});
    const groups = reductionGroups(parameter);
    for (const { state, values } of states) storeState(state, values, { groups, noop });
  }

  /** Updates several parameters. */
  protected abstract update(steps: readonly SlotStep[]): void;

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

/** Throws `ArgumentError` if a gradient of a sharded parameter is not reduced, for example because of `noSync`. */
export function requireReduced(user: string, parameter: Parameter): void {
  const { sharding, grad } = parameter;
  if (!sharding) return;
  if (!sharding.hasFullMainGrad && (!grad || sameShape(grad.shape, sharding.localValue.shape))) return;
  throw new ArgumentError(
    `${user}: a gradient is not reduced over ranks; run the last backward pass, and the last call of backwardDw that computes a gradient, outside of noSync`,
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
function createSlot(
  name: string,
  parameter: Parameter,
  dtypes: StateDTypes,
  created: Owned[],
): OptimizerSlot {
  const master = createMaster(parameter, dtypes.masters, created);
  const { backend, shape } = master.codes;
  const moments = Object.entries(dtypes.moments(name)).map(
    ([buffer, dtype]) => [buffer, zeroState(backend, dtype, shape, created)] as const,
  );
  const buffers = [...moments, [MASTER, master] as const].flatMap(([buffer, { codes, scale }]) => [
    ...(buffer === MASTER ? [] : [[buffer, codes as Tensor<MomentDType>] as const]),
    ...(scale ? [[buffer + SCALE, scale] as const] : []),
  ]);
  return { parameter, master: master.codes, buffers: new Map(buffers), steps: 0 };
}

const MASTER = "master";
/** The end of the names of scales in `buffers`. */
const SCALE = ".scale";

/** Whether the tensor of this name in `buffers` is the scale of a state. */
export function isStateScale(name: string): boolean {
  return name.endsWith(SCALE);
}

/** Returns the states of a slot by their names: the master and the moments. */
function namedStates({ parameter, master, buffers }: OptimizerSlot): readonly (readonly [string, State])[] {
  const codes = [[MASTER, master] as const, ...buffers].filter(([name]) => !isStateScale(name));
  return codes.map(([name, codes]) => [
    name,
    {
      codes,
      scale: buffers.get(name + SCALE) as Tensor<"f32"> | undefined,
      upper: hasType(codes, "u16") ? (parameter.value as Tensor<"bf16">) : undefined,
    },
  ]);
}

/** Returns the groups of ranks that have parts of a parameter. */
function reductionGroups({ sharding, ranks }: Parameter): readonly ProcessGroup[] {
  return [sharding?.group, ranks?.group].flatMap((group) => (group && group.size > 1 ? [group] : []));
}

/** The bf16 or f16 parameter that receives its rounded master. Undefined if its bits are a part of the master. */
function roundedCopy({ parameter: { value }, master }: OptimizerSlot): Tensor<"bf16" | "f16"> | undefined {
  const isRounded = isTensor(value) && hasType(value, "bf16", "f16") && !hasType(master, "u16");
  return isRounded ? value : undefined;
}

/**
 * Returns the step of a slot whose tensors the step reads and writes in place: one gradient, and states of f32. Returns undefined
 * for other slots.
 */
function stepInPlace(slot: OptimizerSlot, options: StepOptions): SlotStep | undefined {
  const { parameter, master, buffers, steps } = slot;
  const { mainGrad, value } = parameter;
  const grad = mainGrad ?? parameter.grad;
  if (!grad || (mainGrad && parameter.grad) || !isTensor(value) || master.dtype !== "f32") return undefined;
  const moments: Record<string, Tensor<"f32">> = {};
  for (const [name, buffer] of buffers) {
    if (buffer.dtype !== "f32") return undefined;
    moments[name] = buffer as Tensor<"f32">;
  }
  const { gradScale, noop } = options;
  const tensors = { parameter: master as Tensor<"f32">, grad, copy: roundedCopy(slot), gradScale, noop };
  return { tensors, slot, moments, step: steps + 1 };
}

type MasterState = State & { readonly codes: Tensor<MasterDType | "u16"> };

/** Returns the master of a parameter, whose new tensors are added to `created`. */
function createMaster(
  parameter: Parameter,
  { masterWeightDtype: dtype = "f32", storeParamRemainders = false }: MasterOptions = {},
  created: Owned[],
): MasterState {
  using scope = new Scope();
  const { value } = parameter;
  if (hasType(value as Tensor, "f32")) return { codes: value as Tensor<"f32">, scale: undefined };
  if (storeParamRemainders && hasType(value as Tensor, "bf16")) {
    const { backend, shape } = requireTensor("optimizer", "a parameter", value);
    return zeroState(backend, "u16", shape, created) as MasterState;
  }
  const values = masterValues(parameter);
  if (dtype === "f32") {
    created.push(persistent(scope.keep(values)));
    return { codes: values, scale: undefined };
  }
  const state = zeroState(values.backend, dtype, values.shape, created);
  storeState(state, values, { groups: reductionGroups(parameter) });
  return state as MasterState;
}

/** Returns the values of a parameter that is not f32 as a new f32 tensor. */
function masterValues({ value, highPrecisionInitVal }: Parameter): Tensor<"f32"> {
  if (!(value instanceof QuantizedTensor)) return castTo(value as Tensor<WideDType>, "f32") as Tensor<"f32">;
  if (highPrecisionInitVal) return tensor(value.backend, highPrecisionInitVal, value.shape);
  return dequantize(value, "f32") as Tensor<"f32">;
}
