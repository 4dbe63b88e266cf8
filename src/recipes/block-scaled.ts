/** Recipes with a scale for each block of elements. */
import { ArgumentError } from "../errors.js";
import type { FourOverSix } from "../tensor/quantized.js";
import { environment } from "./environment.js";
import { type RecipeOptions, requireEpsilon, StandardRecipe } from "./recipe.js";
import { PRODUCTS, passOf, type QParams, type Role } from "./table.js";

export interface Float8BlockScalingOptions extends RecipeOptions {
  /** Scales that are not cut to powers of two. Default: NVTE_FP8_BLOCK_SCALING_FP32_SCALES is 1. */
  readonly useF32Scales?: boolean;
  /** Default 0. */
  readonly amaxEpsilon?: number;
  /** Whether activations have a scale for 1x128 elements, 1, or for 128x128, 2. Default 1. */
  readonly xBlockScalingDim?: BlockScalingDim;
  /** The same of weights. Default 2. */
  readonly wBlockScalingDim?: BlockScalingDim;
  /** The same of gradients. Default 1. */
  readonly gradBlockScalingDim?: BlockScalingDim;
}

const TILES = { 1: "1x128", 2: "128x128" } as const;

/** The dimensions in which a block of 128 extends. */
export type BlockScalingDim = keyof typeof TILES;

const DIMS = ["xBlockScalingDim", "wBlockScalingDim", "gradBlockScalingDim"] as const;

/** FP8 with a scale for 1x128 elements of activations and gradients, and for 128x128 of weights (numerics.md §3). */
export class Float8BlockScaling extends StandardRecipe {
  readonly useF32Scales: boolean;
  readonly amaxEpsilon: number;
  readonly xBlockScalingDim: BlockScalingDim;
  readonly wBlockScalingDim: BlockScalingDim;
  readonly gradBlockScalingDim: BlockScalingDim;

  constructor(options: Float8BlockScalingOptions = {}) {
    super("block", options);
    this.useF32Scales = options.useF32Scales ?? environment("NVTE_FP8_BLOCK_SCALING_FP32_SCALES");
    this.amaxEpsilon = options.amaxEpsilon ?? 0;
    requireEpsilon("Float8BlockScaling", this.amaxEpsilon);
    this.xBlockScalingDim = options.xBlockScalingDim ?? 1;
    this.wBlockScalingDim = options.wBlockScalingDim ?? 2;
    this.gradBlockScalingDim = options.gradBlockScalingDim ?? 1;
    this.#requireDims();
    for (const product of PRODUCTS) {
      if (!this[product].useSplitAccumulator)
        throw new ArgumentError(
          `Float8BlockScaling: ${product} needs the split accumulator, as block scales imply it; leave ${product} out`,
        );
    }
  }

  override qparams(role: Role): QParams {
    const tile = TILES[this.#dimOf(role)];
    return { ...super.qparams(role), power2Scale: !this.useF32Scales, amaxEpsilon: this.amaxEpsilon, tile };
  }

  #dimOf(role: Role): BlockScalingDim {
    if (passOf(role) === "backward") return this.gradBlockScalingDim;
    return role === "weight" ? this.wBlockScalingDim : this.xBlockScalingDim;
  }

  /** Every two of the three tensors are multiplied, and a product has a rule for one square operand at most. */
  #requireDims(): void {
    const squares = DIMS.filter((name) => {
      if (this[name] !== 1 && this[name] !== 2)
        throw new ArgumentError(`Float8BlockScaling: ${name} is ${this[name]}; it must be 1 or 2`);
      return this[name] === 2;
    });
    if (squares.length > 1)
      throw new ArgumentError(
        `Float8BlockScaling: ${squares.join(" and ")} are 2, and no product has a rule for two operands in squares of 128x128; leave at most one at 2`,
      );
  }
}

export interface MXFP8BlockScalingOptions extends RecipeOptions {
  /** One scale for 32x32 of weights, so that both products read the same codes. Default false. */
  readonly enable2dQuantization?: boolean;
}

/** FP8 with a power of two for each 32 elements (numerics.md §4). */
export class MXFP8BlockScaling extends StandardRecipe {
  readonly enable2dQuantization: boolean;

  constructor(options: MXFP8BlockScalingOptions = {}) {
    super("mxfp8", options);
    this.enable2dQuantization = options.enable2dQuantization ?? false;
  }

  override qparams(role: Role): QParams {
    const qparams = super.qparams(role);
    return role === "weight" && this.enable2dQuantization ? { ...qparams, tile: "32x32" } : qparams;
  }
}

const FOUR_OVER_SIX: readonly FourOverSix[] = ["none", "mae", "mse"];

export interface NVFP4BlockScalingOptions extends RecipeOptions {
  /** Default: NVTE_NVFP4_DISABLE_RHT is 1. */
  readonly disableRht?: boolean;
  /** Default: NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING is 1. */
  readonly disableStochasticRounding?: boolean;
  /** Default: NVTE_NVFP4_DISABLE_2D_QUANTIZATION is 1. */
  readonly disable2dQuantization?: boolean;
  /** Weights choose between a maximum of 6 and of 4 for each block. Default none. */
  readonly weightFourOverSix?: FourOverSix;
}

/** FP4 with an E4M3 scale for each 16 elements, and 16x16 of weights, under one factor a tensor (numerics.md §5). */
export class NVFP4BlockScaling extends StandardRecipe {
  readonly disableRht: boolean;
  readonly disableStochasticRounding: boolean;
  readonly disable2dQuantization: boolean;
  readonly weightFourOverSix: FourOverSix;

  constructor(options: NVFP4BlockScalingOptions = {}) {
    super("nvfp4", options);
    this.disableRht = options.disableRht ?? environment("NVTE_NVFP4_DISABLE_RHT");
    this.disableStochasticRounding =
      options.disableStochasticRounding ?? environment("NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING");
    this.disable2dQuantization =
      options.disable2dQuantization ?? environment("NVTE_NVFP4_DISABLE_2D_QUANTIZATION");
    this.weightFourOverSix = options.weightFourOverSix ?? "none";
    if (!FOUR_OVER_SIX.includes(this.weightFourOverSix)) {
      throw new ArgumentError(
        `NVFP4BlockScaling: weightFourOverSix ${this.weightFourOverSix} is not one of ${FOUR_OVER_SIX.join(", ")}`,
      );
    }
  }

  override qparams(role: Role): QParams {
    const qparams = super.qparams(role);
    return {
      ...qparams,
      randomHadamardTransform: qparams.randomHadamardTransform && !this.disableRht,
      stochasticRounding: qparams.stochasticRounding && !this.disableStochasticRounding,
      tile: this.disable2dQuantization ? "1x16" : qparams.tile,
      fourOverSix: role === "weight" ? this.weightFourOverSix : "none",
    };
  }
}
