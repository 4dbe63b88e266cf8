/** Recipes with one scale per tensor. */
import { ArgumentError } from "../errors.js";
import { atLeastZero, boolean, callable, type Domain, describe, integer, optionsOf } from "../options.js";
import { environment } from "./environment.js";
import { RECIPE_OPTIONS, type RecipeOptions, StandardRecipe } from "./recipe.js";
import type { QParams, Role } from "./table.js";

/** Chooses the amax to scale by from a tensor's history, whose element 0 is the newest; the others go from oldest to newest. */
export type AmaxAlgorithm = "max" | "mostRecent" | ((history: Float32Array) => number);

/** Computes the new scale of a tensor from its amax and its current scale. */
export type ScaleAlgorithm = (
  amax: number,
  scale: number,
  formatMax: number,
  recipe: DelayedScaling,
) => number;

/** The maximum length of an amax history, in steps. */
const MAX_HISTORY = 2 ** 20;

/** Up to this margin, maximum * 2^-margin is a normal f32 for each format. */
const MAX_MARGIN = 100;

/** What `DelayedScaling` takes; every field may be left out. */
export interface DelayedScalingOptions extends RecipeOptions {
  /** Binades of headroom below the format's maximum. Default 0. */
  readonly margin?: number | undefined;
  /** Default 1024. */
  readonly amaxHistoryLen?: number | undefined;
  /** Default `max`. A function runs on the host, which waits for the device. */
  readonly amaxComputeAlgo?: AmaxAlgorithm | undefined;
  /** Default: fl(maximum of the format * 2^-margin) / amax, as in `updateScales`. A function runs on the host. */
  readonly scalingFactorComputeAlgo?: ScaleAlgorithm | undefined;
  /** Whether amaxes are reduced over autocast's group. Default true. */
  readonly reduceAmax?: boolean | undefined;
}

const amaxAlgorithm: Domain = (user, name, value) => {
  if (value === "max" || value === "mostRecent" || typeof value === "function") return;
  throw new ArgumentError(`${user}: ${name} is ${describe(value)}; it must be max, mostRecent or a function`);
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
 * Per-tensor FP8 whose scales come from the amaxes of earlier steps (numerics.md §2.2).
 *
 * @throws `ArgumentError` for an option outside its domain.
 */
export class DelayedScaling extends StandardRecipe {
  /** Binades of headroom below the format's maximum. */
  readonly margin: number;
  /** The length of the amax history, in steps. */
  readonly amaxHistoryLen: number;
  /** How the amax to scale by is chosen from a history. */
  readonly amaxComputeAlgo: AmaxAlgorithm;
  /** How a scale is computed from an amax. Undefined: as in numerics.md §2.2, on the device. */
  readonly scalingFactorComputeAlgo: ScaleAlgorithm | undefined;
  /** Whether amaxes are reduced over autocast's group. */
  readonly reduceAmax: boolean;

  constructor(options: DelayedScalingOptions = {}) {
    super("delayed", checkDelayed("DelayedScaling", options));
    this.margin = options.margin ?? 0;
    this.amaxHistoryLen = options.amaxHistoryLen ?? 1024;
    this.amaxComputeAlgo = options.amaxComputeAlgo ?? "max";
    this.scalingFactorComputeAlgo = options.scalingFactorComputeAlgo;
    this.reduceAmax = options.reduceAmax ?? true;
  }
}

/** What `Float8CurrentScaling` takes; every field may be left out. */
export interface Float8CurrentScalingOptions extends RecipeOptions {
  /** Default: whether NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES is 1. */
  readonly pow2Scales?: boolean | undefined;
  /** Default 0. */
  readonly amaxEpsilon?: number | undefined;
}

const checkCurrent = optionsOf<Float8CurrentScalingOptions>({
  ...RECIPE_OPTIONS,
  pow2Scales: boolean,
  amaxEpsilon: atLeastZero,
});

/**
 * Per-tensor FP8 scaled by the tensor's own amax (numerics.md §2.3).
 *
 * @throws `ArgumentError` for an option outside its domain.
 */
export class Float8CurrentScaling extends StandardRecipe {
  /** Whether scales are rounded down to powers of two. */
  readonly pow2Scales: boolean;
  /** Lower bound of a tensor's amax. */
  readonly amaxEpsilon: number;

  constructor(options: Float8CurrentScalingOptions = {}) {
    super("current", checkCurrent("Float8CurrentScaling", options));
    this.pow2Scales = options.pow2Scales ?? environment("NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES");
    this.amaxEpsilon = options.amaxEpsilon ?? 0;
  }

  /** How the tensor of that role is quantized. Throws `ArgumentError` for anything but a role. */
  override qparams(role: Role): QParams {
    return { ...super.qparams(role), pow2Scales: this.pow2Scales, amaxEpsilon: this.amaxEpsilon };
  }
}
