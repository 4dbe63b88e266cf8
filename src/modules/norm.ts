/** LayerNorm and RMSNorm as modules, and as the first operation of other modules. */
import type { Backend } from "../backends/backend.js";
import {
  layerNorm,
  type NormParameters,
  type NormResult,
  type NormStatistics,
  normBackward,
  rmsNorm,
} from "../ops/rows/norm.js";
import { atLeastZero, boolean, type OptionTable, oneOf, optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variable } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { MODULE_OPTIONS, Module, type ModuleOptions, requireSizes } from "./module.js";
import { constantInit, type InitMethod, type Parameter } from "./parameter.js";

/** The norm that a layer begins with. */
export type Normalization = "LayerNorm" | "RMSNorm";

/** What `LayerNorm` and `RMSNorm` take; every field may be left out. */
export interface NormModuleOptions extends ModuleOptions {
  /** Added to the variance, or to the mean square. Default 1e-5. */
  readonly eps?: number | undefined;
  /** gamma is stored minus 1, so that weight decay pulls it towards 1. Default false. */
  readonly zeroCenteredGamma?: boolean | undefined;
}

/** The rows of `NormModuleOptions`. */
export const NORM_OPTIONS: OptionTable<NormModuleOptions> = {
  ...MODULE_OPTIONS,
  eps: atLeastZero,
  zeroCenteredGamma: boolean,
};
export const normalizationName = oneOf(["LayerNorm", "RMSNorm"]);

const checkOptions = optionsOf(NORM_OPTIONS);

/** The parameters of a norm; RMSNorm has no beta. */
export interface NormParts {
  readonly gamma: Parameter;
  readonly beta?: Parameter | undefined;
  readonly eps: number;
  readonly zeroCenteredGamma: boolean;
}

/** A norm without its parameters. */
interface NormForm extends Pick<NormParts, "eps" | "zeroCenteredGamma"> {
  readonly normalization: Normalization;
}

/** Reads the form of a norm from its options. */
export function normForm(
  normalization: Normalization,
  { eps = 1e-5, zeroCenteredGamma = false }: NormModuleOptions,
): NormForm {
  return { normalization, eps, zeroCenteredGamma };
}

/** Makes gamma and beta of a norm by `make`. */
export function normParts(
  { normalization, eps, zeroCenteredGamma }: NormForm,
  make: (name: "gamma" | "beta", init: InitMethod) => Parameter,
): NormParts {
  const gamma = make("gamma", constantInit(zeroCenteredGamma ? 0 : 1));
  const beta = normalization === "LayerNorm" ? make("beta", constantInit(0)) : undefined;
  return { gamma, beta, eps, zeroCenteredGamma };
}

/** gamma and, if present, beta: the order of their gradients. */
export function normParameters({ gamma, beta }: NormParts): readonly Parameter[] {
  return beta ? [gamma, beta] : [gamma];
}

/** The arguments of norm operations. */
export function normArguments({ gamma, beta, eps, zeroCenteredGamma }: NormParts): NormParameters {
  return { gamma: gamma.tensor, beta: beta?.tensor, eps, zeroCenteredGamma };
}

/** The norm of the rows of x, in its type. */
export function normForward(parts: NormParts, x: Tensor): NormResult {
  const { gamma, beta, ...options } = normArguments(parts);
  return beta ? layerNorm(x, gamma, beta, options) : rmsNorm(x, gamma, options);
}

/** The gradients of x, gamma and, if present, beta. */
export function normGradients(
  { gamma, beta, zeroCenteredGamma }: NormParts,
  x: Tensor,
  { mean, rstd }: NormStatistics,
  grad: Tensor,
): readonly Tensor<WideDType>[] {
  const statistics = mean ? { mean, rstd } : { rstd };
  const { dx, dgamma, dbeta } = normBackward({
    grad,
    x,
    gamma: gamma.tensor,
    zeroCenteredGamma,
    ...statistics,
  });
  return beta && dbeta ? [dx, dgamma, dbeta] : [dx, dgamma];
}

/** LayerNorm or RMSNorm with its parameters: `weight` [features] and, in LayerNorm, `bias` [features]. */
export abstract class NormModule extends Module {
  /** gamma, [K]; gamma minus 1 where it is zero-centred. */
  readonly weight: Parameter;
  /** beta, [K]. Undefined in RMSNorm. */
  readonly bias: Parameter | undefined;
  readonly #parts: NormParts;

  constructor(
    backend: Backend,
    normalization: Normalization,
    /** K, the last dimension of the input. */
    readonly features: number,
    options: NormModuleOptions,
  ) {
    super(backend, checkOptions(normalization, options));
    requireSizes(normalization, { features });
    const names = { gamma: "weight", beta: "bias" };
    this.#parts = normParts(normForm(normalization, options), (name, init) =>
      this.parameter(names[name], [features], init),
    );
    this.weight = this.#parts.gamma;
    this.bias = this.#parts.beta;
  }

  /**
   * The norm over the last dimension of x [..., features], in the type of x.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the module, `ArgumentError` for anything but a tensor
   * on the module's backend, `DisposedError` for a tensor that was disposed of.
   */
  forward(input: VariableLike): Variable {
    const x = variable(input);
    return differentiableOne([x, ...normParameters(this.#parts)], () => {
      const source = wideOf("the input of a norm", x.value);
      const made = normForward(this.#parts, source);
      return {
        result: made.out,
        saved: [made.mean, made.rstd],
        backward: (grad) => normGradients(this.#parts, source, made, wideOf("the gradient of a norm", grad)),
      };
    });
  }
}

/**
 * (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension; see `layerNorm`.
 *
 * @throws `ArgumentError` for an unknown option or one outside its domain, and for sizes that are not whole numbers from 1,
 * `DTypeError` for a type that parameters cannot have, `DisposedError` for a backend that was disposed of.
 */
export class LayerNorm extends NormModule {
  constructor(backend: Backend, features: number, options: NormModuleOptions = {}) {
    super(backend, "LayerNorm", features, options);
  }
}

/**
 * x / sqrt(mean(x^2) + eps) * weight over the last dimension; see `rmsNorm`.
 *
 * @throws `ArgumentError` for an unknown option or one outside its domain, and for sizes that are not whole numbers from 1,
 * `DTypeError` for a type that parameters cannot have, `DisposedError` for a backend that was disposed of.
 */
export class RMSNorm extends NormModule {
  constructor(backend: Backend, features: number, options: NormModuleOptions = {}) {
    super(backend, "RMSNorm", features, options);
  }
}
