/** The base of all modules: named parameters and submodules, and the state of their quantizers. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import { describe, integer, type OptionTable, optionsOf, u64 } from "../options.js";
import { RandomState, randomState } from "../quantizers/quantizer.js";
import { dtypeOf } from "../tensor/require.js";
import { type Shape, WIDE_DTYPES, type WideDType } from "../tensor/shape.js";
import { type InitMethod, newParameter, Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";

/** Options of every module that has parameters. */
export interface ModuleOptions {
  /** The type of parameters. Default bf16. */
  readonly dtype?: WideDType | undefined;
  /**
   * The source of random bits for initial parameters and stochastic rounding, drawn in program order. Default: the backend's.
   */
  readonly random?: RandomState | undefined;
}

/** The rows of `ModuleOptions` in the tables of modules' options. */
export const MODULE_OPTIONS: OptionTable<ModuleOptions> = {
  dtype: dtypeOf(WIDE_DTYPES),
  random: randomState,
};
const checkOwn = optionsOf(MODULE_OPTIONS);

const defaults = new WeakMap<Backend, RandomState>();

/**
 * The random state shared by modules on `backend` that were not given one; its seed is 0 until `manualSeed`.
 *
 * @throws `ArgumentError` for anything but a backend, `DisposedError` for a backend that was disposed of.
 */
export function defaultRandom(backend: Backend): RandomState {
  requireBackend("defaultRandom", backend);
  const known = defaults.get(backend) ?? new RandomState(0n);
  defaults.set(backend, known);
  return known;
}

/**
 * Resets the backend's default random state to `seed`.
 *
 * @throws `ArgumentError` for anything but a backend and an unsigned 64-bit integer, `DisposedError` for a backend that was
 * disposed of.
 */
export function manualSeed(backend: Backend, seed: bigint): void {
  requireBackend("manualSeed", backend);
  u64("manualSeed", "seed", seed);
  const state = defaultRandom(backend);
  state.seed = seed;
  state.offset = 0n;
}

/** A tree of parameters and submodules, named by path: `layers.0.weight`. */
export abstract class Module {
  readonly #parameters = new Map<string, Parameter>();
  readonly #modules = new Map<string, Module>();
  /** The type of its parameters. */
  readonly dtype: WideDType;
  /** The source of random bits for initial parameters and stochastic rounding. */
  protected readonly random: RandomState;

  constructor(
    /** The backend of its parameters and computations. */
    readonly backend: Backend,
    /** Only the fields of `ModuleOptions` are read; subclasses check theirs. */
    options: ModuleOptions = {},
  ) {
    requireBackend(new.target.name, backend);
    const { dtype = "bf16", random = defaultRandom(backend) } = options;
    checkOwn(new.target.name, { dtype, random });
    this.dtype = dtype;
    this.random = random;
  }

  /** Makes and registers a parameter. */
  protected parameter(name: string, shape: Shape, init: InitMethod): Parameter {
    this.#requireFree(name);
    const { backend, dtype, random } = this;
    return this.addParameter(name, newParameter(backend, shape, init, { dtype, random }));
  }

  /**
   * Registers a parameter under `name`, which may not contain dots. Throws `ArgumentError` for a name in use, and for anything
   * but a parameter.
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
   * Registers a submodule under `name`, which may not contain dots; it is disposed of with this module. Throws `ArgumentError`
   * for a name in use, and for anything but a module.
   */
  protected addModule<M extends Module>(name: string, module: M): M {
    this.#requireFree(name);
    if (!((module as unknown) instanceof Module))
      throw new ArgumentError(
        `${this.constructor.name}: ${name} is ${describe(module)}; it must be a Module`,
      );
    this.#modules.set(name, module);
    return module;
  }

  #requireFree(name: string): void {
    const { name: own } = this.constructor;
    if (typeof name !== "string" || name === "" || name.includes("."))
      throw new ArgumentError(
        `${own}: ${describe(name)} cannot be a name; dots separate names; give one without`,
      );
    if (this.#parameters.has(name) || this.#modules.has(name))
      throw new ArgumentError(`${own}: the name "${name}" is in use; give another one`);
  }

  /** All parameters of this module and its submodules, each under its first name, in registration order. */
  namedParameters(): ReadonlyMap<string, Parameter> {
    return this.#named((module) => module.#parameters);
  }

  /** As `namedParameters`, without the names. */
  parameters(): readonly Parameter[] {
    return [...this.namedParameters().values()];
  }

  /** The quantization of each linear product of this module and its submodules, each under its first name. */
  namedQuantizations(): ReadonlyMap<string, QuantizationState> {
    return this.#named((module) => module.quantizations());
  }

  /** Collects `own` over this module and its submodules; an object that appears several times is listed once. */
  #named<T>(own: (module: Module) => ReadonlyMap<string, T>): ReadonlyMap<string, T> {
    const names = new Map<T, string>();
    const visit = (module: Module, prefix: string): void => {
      for (const [name, each] of own(module)) if (!names.has(each)) names.set(each, prefix + name);
      for (const [name, inner] of module.#modules) visit(inner, `${prefix}${name}.`);
    };
    visit(this, "");
    return new Map([...names].map(([each, name]) => [name, each]));
  }

  /** The quantizations of this module itself, by name. */
  protected quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map();
  }

  /** Frees parameters, gradients and states, those of submodules included. */
  dispose(): void {
    for (const parameter of this.#parameters.values()) parameter.dispose();
    for (const each of this.quantizations().values()) each.dispose();
    for (const module of this.#modules.values()) module.dispose();
  }

  /** As `dispose`, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

const features = integer(1);

/** Throws `ArgumentError` unless each of these is a number of features. */
export function requireSizes(module: string, sizes: Readonly<Record<string, number>>): void {
  for (const [name, size] of Object.entries(sizes)) features(module, name, size);
}
