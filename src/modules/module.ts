/** The base class of modules: named parameters, named submodules and the state of quantizers. */

import { type Backend, requireBackend } from "../backends/backend.js";
import { guardReceivers, inherits, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { describe, fieldsOf, integer, type OptionTable, optionsOf, u64 } from "../options.js";
import { RandomState, randomState } from "../quantizers/random-state.js";
import { accumulateAfterPass } from "../tape/variable.js";
import { dtypeOf } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import { type Shape, WIDE_DTYPES, type WideDType } from "../tensor/shape.js";
import { type InitMethod, newParameter, Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";

/** Options of every module that has parameters. All fields are optional. */
export interface ModuleOptions {
  /** The dtype of the parameters. Default bf16. */
  readonly dtype?: WideDType | undefined;
  /**
   * The source of random bits for initial parameters and for stochastic rounding. Each use advances it, so results depend on
   * the order of calls. Default: `defaultRandom(backend)`.
   */
  readonly random?: RandomState | undefined;
}

/** Checks the fields of `ModuleOptions`. */
export const MODULE_OPTIONS: OptionTable<ModuleOptions> = {
  dtype: dtypeOf(WIDE_DTYPES),
  random: randomState,
};
const checkOptions = optionsOf(MODULE_OPTIONS);

const defaults = new WeakMap<Backend, RandomState>();

/**
 * Returns the random state shared by all modules on `backend` that were created without the option `random`. Its seed is 0
 * until `manualSeed` sets it.
 *
 * @throws `ArgumentError` for an argument that is not a backend, `DisposedError` for a disposed backend.
 */
export function defaultRandom(backend: Backend): RandomState {
  requireBackend("defaultRandom", backend);
  const state = defaults.get(backend) ?? new RandomState(0n);
  defaults.set(backend, state);
  return state;
}

/**
 * Sets the seed of `defaultRandom(backend)` to `seed` and restarts its sequence.
 *
 * @throws `ArgumentError` for an argument that is not a backend or a seed that is not an unsigned 64-bit integer,
 * `DisposedError` for a disposed backend.
 */
export function manualSeed(backend: Backend, seed: bigint): void {
  requireBackend("manualSeed", backend);
  u64("manualSeed", "seed", seed);
  const state = defaultRandom(backend);
  state.seed = seed;
  state.offset = 0n;
}

/** A tree of parameters and submodules. Each is named by its path, for example `layers.0.weight`. */
export abstract class Module {
  static {
    guardReceivers(this);
  }

  readonly #parameters = new Map<string, Parameter>();
  readonly #modules = new Map<string, Module>();
  /** The first module that has registered this one, and the name it has there. */
  #parent: { readonly module: Module; readonly name: string } | undefined;
  /** The dtype of the parameters. */
  readonly dtype: WideDType;
  /** The source of random bits for initial parameters and for stochastic rounding. */
  protected readonly random: RandomState;

  /** @internal Whether `x` is a module, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #parameters in x && inherits(this, x);
  }

  constructor(
    /** The backend of the parameters and of all computations. */
    readonly backend: Backend,
    /** The constructor reads only the fields of `ModuleOptions`. Subclasses check their own options. */
    options: ModuleOptions = {},
  ) {
    requireBackend(new.target.name, backend);
    const ownOptions = checkOptions(new.target.name, fieldsOf(new.target.name, options, MODULE_OPTIONS));
    const { dtype = "bf16", random = defaultRandom(backend) } = ownOptions;
    this.dtype = dtype;
    this.random = random;
  }

  /** Creates a parameter and registers it under `name`. */
  protected parameter(name: string, shape: Shape, init: InitMethod): Parameter {
    this.#requireFree(name);
    const { backend, dtype, random } = this;
    return this.addParameter(name, newParameter(backend, shape, init, { dtype, random }));
  }

  /**
   * Registers a parameter under `name`, which must not contain dots. Throws `ArgumentError` for a name in use or an object that
   * is not a parameter.
   */
  protected addParameter(name: string, parameter: Parameter): Parameter {
    this.#requireFree(name);
    if (!(parameter instanceof Parameter))
      throw new ArgumentError(
        `${this.constructor.name}: ${name} is ${describe(parameter)}; it must be a Parameter`,
      );
    this.#parameters.set(name, parameter);
    return parameter;
  }

  /**
   * Registers a submodule under `name`, which must not contain dots. `dispose` of this module disposes of the submodule too.
   * Throws `ArgumentError` for a name in use or an object that is not a module.
   */
  protected addModule<M extends Module>(name: string, module: M): M {
    this.#requireFree(name);
    if (!((module as unknown) instanceof Module))
      throw new ArgumentError(
        `${this.constructor.name}: ${name} is ${describe(module)}; it must be a Module`,
      );
    this.#modules.set(name, module);
    (module as Module).#parent ??= { module: this, name };
    return module;
  }

  #requireFree(name: string): void {
    const { name: caller } = this.constructor;
    if (typeof name !== "string" || name === "" || name.includes("."))
      throw new ArgumentError(
        `${caller}: the name is ${describe(name)}; give a string that is not empty and has no dots, because dots separate names`,
      );
    if (this.#parameters.has(name) || this.#modules.has(name))
      throw new ArgumentError(`${caller}: the name "${name}" is in use; give another one`);
  }

  /**
   * Returns all parameters of this module and its submodules, in registration order. A parameter that is registered twice is
   * listed once, under its first name.
   */
  namedParameters(): ReadonlyMap<string, Parameter> {
    return this.#named((module) => module.#parameters);
  }

  /** Returns the parameters of `namedParameters`, without their names. */
  parameters(): readonly Parameter[] {
    return [...this.namedParameters().values()];
  }

  /**
   * Allocates the parameters of this module and its submodules that `onMetaDevice` has created without memory, and computes their
   * initial values in the order of their creation. With the same random state, these values are bitwise equal to the values of a
   * module that is created outside of `onMetaDevice`, and the state advances equally. Parameters that have memory keep their
   * values. If it throws, the parameters that have memory by then keep it, and another call continues.
   *
   * @throws `OutOfMemoryError` if the memory is not available. Errors of an `initMethod` propagate.
   */
  materializeParameters(): void {
    const metaParameters = this.parameters().filter(({ isMeta }) => isMeta);
    for (const parameter of metaParameters.sort((a, b) => a.creation - b.creation)) parameter.materialize();
  }

  /** @internal The result of `parameters`, in one list for each module that has registered parameters itself. */
  parameterGroups(): readonly (readonly Parameter[])[] {
    const visited = new Set<Parameter>();
    const parameterGroups = (module: Module): (readonly Parameter[])[] => {
      const group = [...module.#parameters.values()].filter((parameter) => !visited.has(parameter));
      for (const parameter of group) visited.add(parameter);
      return [group, ...[...module.#modules.values()].flatMap(parameterGroups)];
    };
    return parameterGroups(this).filter(({ length }) => length > 0);
  }

  /**
   * Returns the quantization state of each linear product and of each attention of this module and its submodules, each listed
   * once, under its first name.
   */
  namedQuantizations(): ReadonlyMap<string, QuantizationState> {
    return this.#named((module) => module.quantizations());
  }

  /** @internal This module, under the empty name, and all modules in it, by their paths. */
  namedModules(): ReadonlyMap<string, Module> {
    const modules = new Map<string, Module>();
    const visit = (module: Module, path: string): void => {
      modules.set(path, module);
      for (const [name, inner] of module.#modules) visit(inner, path ? `${path}.${name}` : name);
    };
    visit(this, "");
    return modules;
  }

  /** @internal Returns the path of this module's member `name` from the outermost module that contains this one. */
  pathOf(name: string): string {
    const parent = this.#parent;
    return parent ? parent.module.pathOf(`${parent.name}.${name}`) : name;
  }

  /**
   * Collects the objects that `entriesOf` returns for this module and for its submodules. An object that occurs several times is
   * listed once, under its first name.
   */
  #named<T>(entriesOf: (module: Module) => ReadonlyMap<string, T>): ReadonlyMap<string, T> {
    const names = new Map<T, string>();
    const visit = (module: Module, prefix: string): void => {
      for (const [name, each] of entriesOf(module)) if (!names.has(each)) names.set(each, prefix + name);
      for (const [name, inner] of module.#modules) visit(inner, `${prefix}${name}.`);
    };
    visit(this, "");
    return new Map([...names].map(([each, name]) => [name, each]));
  }

  /** Returns the quantization states of this module itself, by name. Subclasses with linear products override it. */
  protected quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map();
  }

  /**
   * Computes the gradients of weights that layers with `delayWgradCompute` left out of a backward pass, and adds them to `grad`
   * or `mainGrad`, with the same bits as if that pass had computed them. If several passes left out the gradient of a weight, a
   * call computes it for the first of them. Hooks of these weights are called now. Does nothing in a module without such layers.
   *
   * @throws `ArgumentError` if there are such layers and no gradient is left to compute, and for a weight without the `mainGrad`
   * that `fuseWgradAccumulation` needs, `DisposedError` for a `mainGrad` that was disposed of.
   */
  backwardDw(): void {
    const delayedParameters = this.parameters().filter(({ delayedGradients }) => delayedGradients);
    const waitingParameters = delayedParameters.filter(({ delayedGradients }) => delayedGradients?.isWaiting);
    if (waitingParameters.length === 0 && delayedParameters.some(({ requiresGrad }) => requiresGrad))
      throw new ArgumentError(
        `${this.constructor.name}: no gradient of a weight is left to compute; call backwardDw once after each backward pass`,
      );
    using _ = new Scope();
    accumulateAfterPass(waitingParameters, (parameter) => parameter.delayedGradients?.run());
  }

  /** Frees the parameters, gradients and quantization states of this module and its submodules. */
  dispose(): void {
    for (const parameter of this.#parameters.values()) parameter.dispose();
    for (const quantization of this.quantizations().values()) quantization.dispose();
    for (const module of this.#modules.values()) module.dispose();
  }

  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

const features = integer(1);

/** Throws `ArgumentError` unless each of `sizes` is a positive integer. */
export function requireSizes(module: string, sizes: Readonly<Record<string, number>>): void {
  for (const [name, size] of Object.entries(sizes)) features(module, name, size);
}
