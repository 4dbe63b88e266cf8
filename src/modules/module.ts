/** What every module is: parameters and other modules by name, and the state of its quantizers. */
import type { Backend } from "../backends/backend.js";
import { ArgumentError, DTypeError } from "../errors.js";
import { RandomState } from "../quantizers/quantizer.js";
import { isWide, type Shape, type WideDType } from "../tensor/shape.js";
import { type InitMethod, newParameter, type Parameter } from "./parameter.js";
import type { LinearQuantization } from "./quantization.js";

/** Options of every module that has parameters. */
export interface ModuleOptions {
  /** The type of parameters. Default bf16. */
  readonly dtype?: WideDType;
  /** Where initial parameters and stochastic rounding draw from, in program order. Default: the backend's. */
  readonly random?: RandomState;
}

const defaults = new WeakMap<Backend, RandomState>();

/** The random state that modules on `backend` share unless they are given one; seed 0 until `manualSeed`. */
export function defaultRandom(backend: Backend): RandomState {
  const known = defaults.get(backend) ?? new RandomState(0n);
  defaults.set(backend, known);
  return known;
}

/** Begins the backend's default random state anew. */
export function manualSeed(backend: Backend, seed: bigint): void {
  const state = defaultRandom(backend);
  state.seed = seed;
  state.offset = 0n;
}

/** Parameters and modules, named by where they are: `layers.0.weight`. */
export abstract class Module {
  readonly #parameters = new Map<string, Parameter>();
  readonly #modules = new Map<string, Module>();
  readonly dtype: WideDType;
  protected readonly random: RandomState;

  constructor(
    readonly backend: Backend,
    options: ModuleOptions = {},
  ) {
    this.dtype = options.dtype ?? "bf16";
    if (!isWide(this.dtype))
      throw new DTypeError(`parameters cannot be ${this.dtype}; they are f32, bf16 or f16`);
    this.random = options.random ?? defaultRandom(backend);
  }

  /** Makes a parameter under `name`. */
  protected parameter(name: string, shape: Shape, init: InitMethod): Parameter {
    const { backend, dtype, random } = this;
    return this.addParameter(name, newParameter(backend, shape, init, { dtype, random }));
  }

  protected addParameter(name: string, parameter: Parameter): Parameter {
    this.#parameters.set(name, parameter);
    return parameter;
  }

  protected addModule<M extends Module>(name: string, module: M): M {
    if (name.includes("."))
      throw new ArgumentError(`a module cannot be named "${name}"; dots separate names`);
    this.#modules.set(name, module);
    return module;
  }

  /** Every parameter of this module and those in it, by name, in the order of their making. */
  namedParameters(prefix = ""): ReadonlyMap<string, Parameter> {
    const own = [...this.#parameters].map(([name, parameter]) => [prefix + name, parameter] as const);
    const inner = [...this.#modules].flatMap(([name, module]) => [
      ...module.namedParameters(`${prefix}${name}.`),
    ]);
    return new Map([...own, ...inner]);
  }

  parameters(): readonly Parameter[] {
    return [...this.namedParameters().values()];
  }

  /** The quantization of each linear product in this module and those in it, by name. */
  namedQuantizations(prefix = ""): ReadonlyMap<string, LinearQuantization> {
    const own = [...this.quantizations()].map(([name, each]) => [prefix + name, each] as const);
    const inner = [...this.#modules].flatMap(([name, module]) => [
      ...module.namedQuantizations(`${prefix}${name}.`),
    ]);
    return new Map([...own, ...inner]);
  }

  /** This module's own, by name. */
  protected quantizations(): ReadonlyMap<string, LinearQuantization> {
    return new Map();
  }

  /** Frees parameters, gradients and states, of inner modules too. */
  dispose(): void {
    for (const parameter of this.#parameters.values()) parameter.dispose();
    for (const each of this.quantizations().values()) each.dispose();
    for (const module of this.#modules.values()) module.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Throws `ArgumentError` unless each of these is a number of features. */
export function requireSizes(module: string, sizes: Readonly<Record<string, number>>): void {
  for (const [name, size] of Object.entries(sizes)) {
    if (!Number.isSafeInteger(size) || size < 1)
      throw new ArgumentError(`${module}: ${name} is ${size}; it is a whole number from 1`);
  }
}
