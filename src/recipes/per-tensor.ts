/** Recipes with one scale a tensor. */
import { ArgumentError } from "../errors.js";
import { environment } from "./environment.js";
import { type RecipeOptions, requireEpsilon, StandardRecipe } from "./recipe.js";
import type { QParams, Role } from "./table.js";

/** From the amaxes of one tensor, newest in [0], then oldest to newest: the one to scale by. */
export type AmaxAlgorithm = "max" | "most_recent" | ((history: Float32Array) => number);

/** The new scale of a tensor, given its amax and its scale until now. */
export type ScaleAlgorithm = (
  amax: number,
  scale: number,
  formatMax: number,
  recipe: DelayedScaling,
) => number;

/** Within it the largest value of each format, times 2^-margin, is a normal f32. */
const MOST_MARGIN = 100;

export interface DelayedScalingOptions extends RecipeOptions {
  /** Powers of two left unused below the largest value. Default 0. */
  readonly margin?: number;
  /** Default 1024. */
  readonly amaxHistoryLen?: number;
  /** Default `max`. A function runs on the host, which waits for the device. */
  readonly amaxComputeAlgo?: AmaxAlgorithm;
  /** Default: the largest value of the format over amax, over 2^margin. Runs on the host. */
  readonly scalingFactorComputeAlgo?: ScaleAlgorithm;
  /** Whether amaxes are reduced over autocast's group. Default true. */
  readonly reduceAmax?: boolean;
}

/** Per-tensor FP8 whose scales come from the amaxes of earlier steps (numerics.md §2.2). */
export class DelayedScaling extends StandardRecipe {
  readonly margin: number;
  readonly amaxHistoryLen: number;
  readonly amaxComputeAlgo: AmaxAlgorithm;
  readonly scalingFactorComputeAlgo: ScaleAlgorithm | undefined;
  readonly reduceAmax: boolean;

  constructor(options: DelayedScalingOptions = {}) {
    super("delayed", options);
    this.margin = options.margin ?? 0;
    this.amaxHistoryLen = options.amaxHistoryLen ?? 1024;
    this.amaxComputeAlgo = options.amaxComputeAlgo ?? "max";
    this.scalingFactorComputeAlgo = options.scalingFactorComputeAlgo;
    this.reduceAmax = options.reduceAmax ?? true;
    if (!Number.isInteger(this.amaxHistoryLen) || this.amaxHistoryLen < 1) {
      throw new ArgumentError(
        `DelayedScaling: amaxHistoryLen is ${this.amaxHistoryLen}; it is a whole number from 1`,
      );
    }
    if (!(Number.isInteger(this.margin) && Math.abs(this.margin) <= MOST_MARGIN)) {
      throw new ArgumentError(
        `DelayedScaling: margin is ${this.margin}; it is a whole number of powers of two, at most ${MOST_MARGIN} either way`,
      );
    }
    const { amaxComputeAlgo, scalingFactorComputeAlgo } = this;
    if (scalingFactorComputeAlgo !== undefined && typeof scalingFactorComputeAlgo !== "function")
      throw new ArgumentError("DelayedScaling: scalingFactorComputeAlgo is not a function; leave it out");
    if (
      !["max", "most_recent"].includes(amaxComputeAlgo as string) &&
      typeof amaxComputeAlgo !== "function"
    ) {
      throw new ArgumentError(
        `DelayedScaling: amaxComputeAlgo ${String(amaxComputeAlgo)} is neither max, most_recent nor a function`,
      );
    }
  }
}

export interface Float8CurrentScalingOptions extends RecipeOptions {
  /** Default: NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES is 1. */
  readonly usePower2Scales?: boolean;
  /** Default 0. */
  readonly amaxEpsilon?: number;
}

/** Per-tensor FP8 with the scale of the tensor itself (numerics.md §2.3). */
export class Float8CurrentScaling extends StandardRecipe {
  readonly usePower2Scales: boolean;
  readonly amaxEpsilon: number;

  constructor(options: Float8CurrentScalingOptions = {}) {
    super("current", options);
    this.usePower2Scales = options.usePower2Scales ?? environment("NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES");
    this.amaxEpsilon = options.amaxEpsilon ?? 0;
    requireEpsilon("Float8CurrentScaling", this.amaxEpsilon);
  }

  override qparams(role: Role): QParams {
    return { ...super.qparams(role), power2Scale: this.usePower2Scales, amaxEpsilon: this.amaxEpsilon };
  }
}
