/** LayerNorm and RMSNorm as modules, and the parts from which other modules build a norm. */

import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import type { ProcessGroup } from "../collectives/group.js";
import { groupOf, SEQUENCE_PARALLEL_OPTIONS, type SequenceParallelOptions } from "../functional/ranks.js";
import { castTo } from "../ops/cast/cast.js";
import {
  layerNorm,
  type NormParameters,
  type NormResult,
  type NormStatistics,
  normBackward,
  rmsNorm,
} from "../ops/rows/norm.js";
import { atLeastZero, boolean, type OptionTable, oneOf, optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { transientValue } from "../tape/uses.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { type Owned, orDispose } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { MODULE_OPTIONS, Module, type ModuleOptions, requireSizes } from "./module.js";
import { constantInit, type InitMethod, type Parameter } from "./parameter.js";
import { sumOverRanks } from "./tensor-parallel/tensor-parallel.js";

/** The kind of norm that a layer begins with. */
export type Normalization = "LayerNorm" | "RMSNorm";

/** Options of `LayerNorm` and `RMSNorm`. All fields are optional. */
export interface NormModuleOptions extends ModuleOptions, SequenceParallelOptions {
  /** A constant added to the variance (LayerNorm) or to the mean square (RMSNorm). Default 1e-5. */
  readonly eps?: number | undefined;
  /** Whether the parameter holds gamma - 1 instead of gamma, so that weight decay pulls gamma towards 1. Default false. */
  readonly zeroCenteredGamma?: boolean | undefined;
}

/** Checks the fields of `NormModuleOptions`. */
export const NORM_OPTIONS: OptionTable<NormModuleOptions> = {
  ...MODULE_OPTIONS,
  ...SEQUENCE_PARALLEL_OPTIONS,
  eps: atLeastZero,
  zeroCenteredGamma: boolean,
};
export const normalizationName = oneOf(["LayerNorm", "RMSNorm"]);

const checkOptions = optionsOf(NORM_OPTIONS);

/** The parameters and constants of a norm. RMSNorm has no beta. */
export interface NormParts {
  readonly gamma: Parameter;
  readonly beta?: Parameter | undefined;
  readonly eps: number;
  readonly zeroCenteredGamma: boolean;
  /** The ranks that have other rows of x. The gradients of the norm's parameters are summed over them. */
  readonly group: ProcessGroup | undefined;
}

/** The kind and constants of a norm whose parameters are not created yet. */
interface NormForm extends Pick<NormParts, "eps" | "zeroCenteredGamma" | "group"> {
  readonly normalization: Normalization;
}

/** Returns the kind and constants of a norm, with defaults for missing options. */
export function normForm(
  normalization: Normalization,
  { eps = 1e-5, zeroCenteredGamma = false }: NormModuleOptions,
): NormForm {
  return { normalization, eps, zeroCenteredGamma, group: undefined };
}

/** Creates gamma and beta of a norm by calling `make`, and adds them to `created`. */
export function normParts(
  { normalization, eps, zeroCenteredGamma, group }: NormForm,
  make: (name: "gamma" | "beta", init: InitMethod) => Parameter,
  created: Owned[],
): NormParts {
  const gamma = make("gamma", constantInit(zeroCenteredGamma ? 0 : 1));
  created.push(gamma);
  const beta = normalization === "LayerNorm" ? make("beta", constantInit(0)) : undefined;
  if (beta) created.push(beta);
  return { gamma, beta, eps, zeroCenteredGamma, group };
}

/** Returns gamma and, if present, beta. `normGradients` returns their gradients in the same order. */
export function normParameters({ gamma, beta }: NormParts): readonly Parameter[] {
  return beta ? [gamma, beta] : [gamma];
}

/** Returns the arguments that the norm operations take. */
export function normArguments({ gamma, beta, eps, zeroCenteredGamma }: NormParts): NormParameters {
  const wide = (parameter: Parameter): Tensor<WideDType> =>
    wideOf("the parameter of a norm", transientValue(parameter));
  return { gamma: wide(gamma), beta: beta && wide(beta), eps, zeroCenteredGamma };
}

/** Computes the norm of the rows of x, in the dtype of x. */
export function normForward(norm: NormParts, x: Tensor): NormResult {
  const { gamma, beta, ...options } = normArguments(norm);
  return beta ? layerNorm(x, gamma, beta, options) : rmsNorm(x, gamma, options);
}

/** Computes the gradients of x, gamma and, if present, beta, in this order. */
export function normGradients(
  { gamma, beta, zeroCenteredGamma, group }: NormParts,
  x: Tensor,
  { mean, rstd }: NormStatistics,
  grad: Tensor,
): readonly Tensor<WideDType>[] {
  const statistics = mean ? { mean, rstd } : { rstd };
  const scale = wideOf("the parameter of a norm", transientValue(gamma));
  const { dx, dgamma, dbeta } = normBackward({
    grad,
    x,
    // sums over ranks must be f32; the parameters' gradients have the dtype of gamma, so gamma is converted
    gamma: group ? castTo(scale, "f32") : scale,
    zeroCenteredGamma,
    ...statistics,
  });
  if (group) {
    const reduce = (grad: Tensor<WideDType>): Tensor<WideDType> =>
      castTo(sumOverRanks(group, grad), scale.dtype);
    return beta && dbeta ? [dx, reduce(dgamma), reduce(dbeta)] : [dx, reduce(dgamma)];
  }
  return beta && dbeta ? [dx, dgamma, dbeta] : [dx, dgamma];
}

/** The base of `LayerNorm` and `RMSNorm`. Its parameters are `weight` [features] and, for LayerNorm, `bias` [features]. */
export abstract class NormModule extends Module {
  static {
    guardReceivers(this);
  }

  /** gamma, [K]. With `zeroCenteredGamma` it holds gamma - 1. */
  readonly weight: Parameter;
  /** beta, [K]. Undefined for RMSNorm. */
  readonly bias: Parameter | undefined;
  readonly #parts: NormParts;

  constructor(
    backend: Backend,
    normalization: Normalization,
    /** K, the last dimension of the input. */
    readonly features: number,
    options: NormModuleOptions,
  ) {
    const ownOptions = checkOptions(normalization, options);
    super(backend, ownOptions);
    requireSizes(normalization, { features });
    const form = normForm(normalization, ownOptions);
    const ranks = groupOf(normalization, backend, ownOptions);
    const group = ownOptions.sequenceParallel ? ranks : undefined;
    const names = { gamma: "weight", beta: "bias" };
    const make = (name: keyof typeof names, init: InitMethod) =>
      this.parameter(names[name], [features], init);
    this.#parts = orDispose((created) => normParts({ ...form, group }, make, created));
    this.weight = this.#parts.gamma;
    this.bias = this.#parts.beta;
  }

  /**
   * Returns the norm of x [..., features] over its last dimension, in the dtype of x.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the module, `ArgumentError` for an argument that is not
   * a tensor or is on another backend, `DisposedError` for a disposed tensor.
   */
  forward(input: VariableLike): Variable {
    const x = variableOf(this.constructor.name, "input", input);
    return differentiableOne([x, ...normParameters(this.#parts)], () => {
      const source = wideOf("the input of a norm", x.value);
      const result = normForward(this.#parts, source);
      return {
        result: result.out,
        saved: [result.mean, result.rstd],
        backward: (grad) =>
          normGradients(this.#parts, source, result, wideOf("the gradient of a norm", grad)),
      };
    });
  }
}

/**
 * Computes (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension. See the operation `layerNorm`.
 *
 * @throws `ArgumentError` for an unknown option, an invalid option value, or a size that is not a positive integer,
 * `DTypeError` for a parameter dtype other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class LayerNorm extends NormModule {
  constructor(backend: Backend, features: number, options: NormModuleOptions = {}) {
    super(backend, "LayerNorm", features, options);
  }
}

/**
 * Computes x / sqrt(mean(x^2) + eps) * weight over the last dimension. See the operation `rmsNorm`.
 *
 * @throws `ArgumentError` for an unknown option, an invalid option value, or a size that is not a positive integer,
 * `DTypeError` for a parameter dtype other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class RMSNorm extends NormModule {
  constructor(backend: Backend, features: number, options: NormModuleOptions = {}) {
    super(backend, "RMSNorm", features, options);
  }
}
