/** The description of a module in a row of the table of modules. */
import type { Backend } from "../../../../src/backends/backend.js";
import type { LayerNormMLPOptions } from "../../../../src/modules/layer-norm-mlp.js";
import type { LinearCall, LinearOptions } from "../../../../src/modules/linear/parts.js";
import type { Module } from "../../../../src/modules/module.js";
import type { Variable } from "../../../../src/tape/variable.js";
import type { Shape } from "../../../../src/tensor/shape.js";

/** The sizes of a module and its input. A module of one width has the width `from`. */
export interface ModuleSizes {
  /** The number of rows of the input, with all leading dimensions flattened. */
  readonly rows: number;
  /** The last dimension of the input. */
  readonly from: number;
  /** The last dimension of the result, or the size of a vocabulary. */
  readonly to: number;
  /** The last dimension between two products. */
  readonly middle: number;
}

/** Options that several modules have. */
export type ModuleSettings = LinearOptions & LayerNormMLPOptions;
export type SettingName = keyof ModuleSettings;

export const SETTING_NAMES = [
  ...["dtype", "random", "initMethod", "outputLayerInitMethod", "bias", "fuseWgradAccumulation"],
  ...["saveOriginalInput", "delayWgradCompute", "parametersSplit", "group", "sequenceParallel", "overlap"],
  ...["parallelMode", "pieces", "normalization", "zeroCenteredGamma", "eps", "activation"],
] as readonly SettingName[];

/** An input: a tensor in the dtype of the parameters, or i32 numbers below `ids`. */
export interface ModuleInput {
  readonly shape: Shape;
  readonly ids?: number;
}

/** One product of a module that has few of them. The input of the module has the name "". */
export interface Product {
  readonly weight: string;
  readonly bias: string;
  /** All parameters that precede the product in the graph, and the input. */
  readonly predecessors: readonly string[];
  readonly from: number;
  readonly to: number;
}

/** The results of a method that returns separately the bias of the last product (one for each expert) and the norm. */
export interface WithBias {
  readonly out: Variable;
  readonly biases: readonly Variable[];
  readonly norm?: Variable | undefined;
}

/** A class of modules, whose constructor may be private. */
interface Class<M extends Module> {
  readonly name: string;
  readonly prototype: M;
}

/** The properties of a module that the laws depend on. */
interface Traits {
  /** The settings that the constructor takes. `build` leaves out the others. */
  readonly takes: readonly SettingName[];
  /** The options of a call that have an effect. `run` leaves out the others. A module refuses the others. */
  readonly call: readonly (keyof LinearCall)[];
  /** Whether a recipe quantizes its products. */
  readonly quantizes: boolean;
  /** Whether it has no parameters. Default false. */
  readonly hasNoParameters?: boolean;
  /** Whether the module computes attention, for which the datapath `exact` has no rule. Default false. */
  readonly attends?: boolean;
  /** Whether its input is numbers. Default false. */
  readonly takesNumbers?: boolean;
  /** Whether all leading dimensions of the input are rows. Rows are independent unless they share a scale. */
  readonly rowwise: boolean;
  /** The size arguments of the constructor: the argument's name, and the size that it takes. */
  readonly sizes: Readonly<Record<string, "from" | "to" | "middle">>;
  /**
   * The reason why a call may change the state of an inner layer before a later layer refuses it. Absent if a refused call
   * changes nothing.
   */
  readonly composed?: string;
  /**
   * The module whose operations this module runs. Short runs of long laws test a sample of the cases. Absent if it has operations
   * of its own.
   */
  readonly operationsOf?: string;
  /**
   * The reason why inner products may draw random bits in another order. Absent if each product waits for the next one's
   * gradient.
   */
  readonly branches?: string;
  /** Whether results of inner layers belong to the caller's scope. */
  readonly leavesResults?: boolean;
  /** The reason why a call reads results on the host, which a captured graph cannot do. */
  readonly readsHost?: string;
  /** Whether the result has kinks, or jumps between them. */
  readonly edges?: boolean;
  /** The standard deviation of initial weights. Default 0.023. */
  readonly std?: number;
  /** The names of the biases that the last products add, one for each expert. */
  readonly lastBiases?: readonly string[];
  /** The shapes of its parameters by their names, if it has no inner modules. */
  readonly parameters?: (sizes: ModuleSizes, settings: ModuleSettings) => Readonly<Record<string, Shape>>;
  /** The weights of the router, which are multiplied in high precision and ignore the options of the other products. */
  readonly routerWeights?: readonly string[];
  /** Its products, if it has few. */
  readonly products?: (sizes: ModuleSizes) => readonly Product[];
}

interface ModuleDescription<M extends Module> extends Traits {
  /** Creates a module. */
  readonly make: (backend: Backend, sizes: ModuleSizes, settings: ModuleSettings) => M;
  /** The inputs of a module, with `rows` rows. */
  readonly inputs: (module: M, rows: number) => readonly ModuleInput[];
  /** Runs the module forward. The last result depends on all layers. */
  readonly run: (module: M, inputs: readonly Variable[], call: LinearCall) => readonly Variable[];
  /** Runs the module forward without the bias of its last product. */
  readonly withBias?: (module: M, inputs: readonly Variable[], call: LinearCall) => WithBias;
}

/** A module with its inputs. `dispose` disposes of the module. */
export interface BuiltModule extends Disposable {
  readonly module: Module;
  readonly inputs: (rows: number) => readonly ModuleInput[];
  readonly run: (inputs: readonly Variable[], call?: LinearCall) => readonly Variable[];
  /** Runs the module with all options of the call. */
  readonly runUnfiltered: (inputs: readonly Variable[], call: LinearCall) => readonly Variable[];
  readonly withBias: ((inputs: readonly Variable[], call?: LinearCall) => WithBias) | undefined;
}

export interface ModuleRow extends Traits {
  readonly type: Class<Module>;
  readonly hasBiasMethod: boolean;
  /** Creates a module with those settings that the constructor takes, or with all of them, unfiltered. */
  readonly build: (backend: Backend, sizes: ModuleSizes, settings?: ModuleSettings) => BuiltModule;
  readonly buildUnfiltered: (backend: Backend, sizes: ModuleSizes, settings: ModuleSettings) => Module;
  /** Wraps a module of this class that was created elsewhere. */
  readonly wrap: (module: Module) => BuiltModule | undefined;
}

function pickFields<T extends object>(source: T, names: readonly (keyof T)[]): T {
  return Object.fromEntries(Object.entries(source).filter(([name]) => names.includes(name as keyof T))) as T;
}

/** Creates a row from the class and its description. */
export function row<M extends Module>(type: Class<M>, description: ModuleDescription<M>): ModuleRow {
  const { make, inputs, run, withBias, ...traits } = description;
  const buildModule = (module: M): BuiltModule => ({
    module,
    [Symbol.dispose]: () => module.dispose(),
    inputs: (rows) => inputs(module, rows),
    run: (variables, call = {}) => run(module, variables, pickFields(call, traits.call)),
    runUnfiltered: (variables, call) => run(module, variables, call),
    withBias:
      withBias && ((variables, call = {}) => withBias(module, variables, pickFields(call, traits.call))),
  });
  return {
    ...traits,
    type,
    hasBiasMethod: withBias !== undefined,
    build: (backend, sizes, settings = {}) =>
      buildModule(make(backend, sizes, pickFields(settings, traits.takes))),
    buildUnfiltered: make,
    wrap: (module) =>
      Object.prototype.isPrototypeOf.call(type.prototype, module) ? buildModule(module as M) : undefined,
  };
}
