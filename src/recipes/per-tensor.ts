/** The recipes with one scale per tensor: delayed and current scaling. */
import { ArgumentError } from "../errors.js";
import { atLeastZero, boolean, callable, type Domain, describe, integer, optionsOf } from "../options.js";
import { environment } from "./environment.js";
import { RECIPE_OPTIONS, type RecipeOptions, StandardRecipe } from "./recipe.js";
import type { QParams, Role } from "./table.js";

/**
 * How the amax is chosen from the history of a tensor. A function receives the history: element 0 is the newest amax, the
 * others are in order from the oldest to the second newest.
 */
export type AmaxAlgorithm = "max" | "mostRecent" | ((history: Float32Array) => number);

/**
 * A function that returns the new scale of a tensor. `amax` is the chosen amax, `scale` the current scale, `formatMax` the
 * maximum of the element format.
 */
export type ScaleAlgorithm = (
  amax: number,
  scale: number,
  formatMax: number,
  recipe: DelayedScaling,
) => number;

/** The maximum length of an amax history, in steps. */
const MAX_HISTORY = 2 ** 20;

/** The maximum of |margin|. Within it, maximum * 2^-margin is a normal f32 for each element format. */
const MAX_MARGIN = 100;

/** Options of `DelayedScaling`. All fields are optional. */
export interface DelayedScalingOptions extends RecipeOptions {
  /**
   * The number of powers of two of headroom: the scale maps the amax to the format's maximum * 2^-margin. An integer. Default
   * 0.
   */
  readonly margin?: number | undefined;
  /** The length of the amax history, in steps. Default 1024. */
  readonly amaxHistoryLen?: number | undefined;
  /** How the amax is chosen from the history. A function runs on the host, which waits for the device. Default `max`. */
  readonly amaxComputeAlgo?: AmaxAlgorithm | undefined;
  /**
   * How a scale is computed from an amax. A function runs on the host, which waits for the device. Default: fl(maximum of the
   * format * 2^-margin) / amax, on the device, as in `updateScales`.
   */
  readonly scalingFactorComputeAlgo?: ScaleAlgorithm | undefined;
  /** Whether amaxes are reduced over the group given to `autocast`. Default true. */
  readonly reduceAmax?: boolean | undefined;
}

const amaxAlgorithm: Domain = (caller, name, value) => {
  if (value === "max" || value === "mostRecent" || typeof value === "function") return value;
  throw new ArgumentError(
    `${caller}: ${name} is ${describe(value)}; it must be max, mostRecent or a function`,
  );
};

const checkDelayed = optionsOf<DelayedScalingOptions>({
  ...RECIPE_OPTIONS,
  margin: integer(-MAX_MARGIN, MAX_MARGIN),
  amaxHistoryLen: integer(1, MAX_HISTORY),
  amaxComputeAlgo: amaxAlgorithm,
  scalingFactorComputeAlgo: callable,
  reduceAmax: boolean,
});

/**
 * The recipe of FP8 with one scale per tensor that is computed from the amaxes of earlier steps (numerics.md §2.2).
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class DelayedScaling extends StandardRecipe {
  /** The number of powers of two of headroom: the scale maps the amax to the format's maximum * 2^-margin. */
  readonly margin: number;
  /** The length of the amax history, in steps. */
  readonly amaxHistoryLen: number;
  /** How the amax is chosen from the history. */
  readonly amaxComputeAlgo: AmaxAlgorithm;
  /** How a scale is computed from an amax. Undefined: as in numerics.md §2.2, on the device. */
  readonly scalingFactorComputeAlgo: ScaleAlgorithm | undefined;
  /** Whether amaxes are reduced over the group given to `autocast`. */
  readonly reduceAmax: boolean;

  constructor(options: DelayedScalingOptions = {}) {
    const ownOptions = checkDelayed("DelayedScaling", options);
    super("delayed", ownOptions);
    this.margin = ownOptions.margin ?? 0;
    this.amaxHistoryLen = ownOptions.amaxHistoryLen ?? 1024;
    this.amaxComputeAlgo = ownOptions.amaxComputeAlgo ?? "max";
    this.scalingFactorComputeAlgo = ownOptions.scalingFactorComputeAlgo;
    this.reduceAmax = ownOptions.reduceAmax ?? true;
  }
}

/** Options of `Float8CurrentScaling`. All fields are optional. */
export interface Float8CurrentScalingOptions extends RecipeOptions {
  /**
   * Whether scales are rounded down to powers of two. Default: whether the environment variable
   * NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES is 1.
   */
  readonly pow2Scales?: boolean | undefined;
  /** A lower bound of the amax from which the scale is computed. Default 0. */
  readonly amaxEpsilon?: number | undefined;
}

const checkCurrent = optionsOf<Float8CurrentScalingOptions>({
  ...RECIPE_OPTIONS,
  pow2Scales: boolean,
  amaxEpsilon: atLeastZero,
});

/**
 * The recipe of FP8 with one scale per tensor that is computed from the amax of the same tensor (numerics.md §2.3).
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class Float8CurrentScaling extends StandardRecipe {
  /** Whether scales are rounded down to powers of two. */
  readonly pow2Scales: boolean;
  /** A lower bound of the amax from which the scale is computed. */
  readonly amaxEpsilon: number;

  constructor(options: Float8CurrentScalingOptions = {}) {
    const ownOptions = checkCurrent("Float8CurrentScaling", options);
    super("current", ownOptions);
    this.pow2Scales = ownOptions.pow2Scales ?? environment("NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES");
    this.amaxEpsilon = ownOptions.amaxEpsilon ?? 0;
  }

  /** Returns the quantizer settings for the tensor of that role. Throws `ArgumentError` for an unknown role. */
  override qparams(role: Role): QParams {
    return { ...super.qparams(role), pow2Scales: this.pow2Scales, amaxEpsilon: this.amaxEpsilon };
  }
}
