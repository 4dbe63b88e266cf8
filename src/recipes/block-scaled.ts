/** Recipes with one scale per block of elements. */
import { guardReceivers } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { atLeastZero, boolean, type Domain, oneOf, optionsOf, outside } from "../options.js";
import type { FourOverSix } from "../tensor/quantized.js";
import { environment, environmentText } from "./environment.js";
import { RECIPE_OPTIONS, type RecipeOptions, StandardRecipe } from "./recipe.js";
import { type ForwardRole, PRODUCTS, passOf, type QParams, type Role } from "./table.js";

/** Options of `Float8BlockScaling`. All fields are optional. */
export interface Float8BlockScalingOptions extends RecipeOptions {
  /**
   * Whether scales may be any f32 value. If false, they are powers of two. Default: whether the environment variable
   * NVTE_FP8_BLOCK_SCALING_FP32_SCALES is 1.
   */
  readonly useF32Scales?: boolean | undefined;
  /** A lower bound of the amax from which a block's scale is computed. Default 0. */
  readonly amaxEpsilon?: number | undefined;
  /** The blocks of activations: 1 for 1x128, 2 for 128x128. Default 1. */
  readonly xBlockScalingDim?: BlockScalingDim | undefined;
  /** The blocks of weights: 1 for 1x128, 2 for 128x128. Default 2. */
  readonly wBlockScalingDim?: BlockScalingDim | undefined;
  /** The blocks of gradients: 1 for 1x128, 2 for 128x128. Default 1. */
  readonly gradBlockScalingDim?: BlockScalingDim | undefined;
}

const TILES = { 1: "1x128", 2: "128x128" } as const;

/** The number of dimensions in which a block is 128 long: 1 for 1x128, 2 for 128x128. */
export type BlockScalingDim = keyof typeof TILES;

const DIMS = ["xBlockScalingDim", "wBlockScalingDim", "gradBlockScalingDim"] as const;

const dimension: Domain = (caller, name, value) => {
  if (value === 1 || value === 2) return value;
  throw outside(caller, name, value, "1 or 2");
};
const checkBlock = optionsOf<Float8BlockScalingOptions>({
  ...RECIPE_OPTIONS,
  useF32Scales: boolean,
  amaxEpsilon: atLeastZero,
  xBlockScalingDim: dimension,
  wBlockScalingDim: dimension,
  gradBlockScalingDim: dimension,
});

/**
 * The recipe of block-scaled FP8: one f32 scale per 1x128 elements of activations and gradients, and per 128x128 of weights
 * (numerics.md §3).
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class Float8BlockScaling extends StandardRecipe {
  static {
    guardReceivers(this);
  }

  /** Whether scales may be any f32 value. If false, they are powers of two. */
  readonly useF32Scales: boolean;
  /** A lower bound of the amax from which a block's scale is computed. */
  readonly amaxEpsilon: number;
  /** The blocks of activations: 1 for 1x128, 2 for 128x128. */
  readonly xBlockScalingDim: BlockScalingDim;
  /** The blocks of weights: 1 for 1x128, 2 for 128x128. */
  readonly wBlockScalingDim: BlockScalingDim;
  /** The blocks of gradients: 1 for 1x128, 2 for 128x128. */
  readonly gradBlockScalingDim: BlockScalingDim;

  constructor(options: Float8BlockScalingOptions = {}) {
    const ownOptions = checkBlock("Float8BlockScaling", options);
    super("block", ownOptions);
    this.useF32Scales = ownOptions.useF32Scales ?? environment("NVTE_FP8_BLOCK_SCALING_FP32_SCALES");
    this.amaxEpsilon = ownOptions.amaxEpsilon ?? 0;
    this.xBlockScalingDim = ownOptions.xBlockScalingDim ?? 1;
    this.wBlockScalingDim = ownOptions.wBlockScalingDim ?? 2;
    this.gradBlockScalingDim = ownOptions.gradBlockScalingDim ?? 1;
    this.#requireDims();
    for (const product of PRODUCTS) {
      if (!this[product].useSplitAccumulator)
        throw new ArgumentError(
          `Float8BlockScaling: ${product} needs the split accumulator, as block scales imply it; leave ${product} out`,
        );
    }
  }

  /** Returns the quantizer settings for the tensor of that role. Throws `ArgumentError` for an unknown role. */
  override qparams(role: Role): QParams {
    const tile = TILES[this.#dimOf(role)];
    return { ...super.qparams(role), pow2Scales: !this.useF32Scales, amaxEpsilon: this.amaxEpsilon, tile };
  }

  #dimOf(role: Role): BlockScalingDim {
    if (passOf(role) === "backward") return this.gradBlockScalingDim;
    return role === "weight" ? this.wBlockScalingDim : this.xBlockScalingDim;
  }

  /**
   * Throws unless at most one of the three tensors has 128x128 blocks. Every two of them are multiplied in some product, and no
   * product takes two such operands.
   */
  #requireDims(): void {
    const squares = DIMS.filter((name) => this[name] === 2);
    if (squares.length > 1)
      throw new ArgumentError(
        `Float8BlockScaling: ${squares.join(" and ")} are 2, and no product takes two operands with blocks of 128x128; set at most one to 2`,
      );
  }
}

/** Options of `MXFP8BlockScaling`. All fields are optional. */
export interface MXFP8BlockScalingOptions extends RecipeOptions {
  /**
   * Whether weights have one scale per 32x32 block, so that forward and backward products read the same codes. Default false.
   */
  readonly enable2dQuantization?: boolean | undefined;
}

const checkMx = optionsOf<MXFP8BlockScalingOptions>({ ...RECIPE_OPTIONS, enable2dQuantization: boolean });

/**
 * The recipe of MXFP8: one power-of-two scale per 32 elements (numerics.md §4).
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class MXFP8BlockScaling extends StandardRecipe {
  static {
    guardReceivers(this);
  }

  /** Whether weights have one scale per 32x32 block. */
  readonly enable2dQuantization: boolean;

  constructor(options: MXFP8BlockScalingOptions = {}) {
    const ownOptions = checkMx("MXFP8BlockScaling", options);
    super("mxfp8", ownOptions);
    this.enable2dQuantization = ownOptions.enable2dQuantization ?? false;
  }

  /** Returns the quantizer settings for the tensor of that role. Throws `ArgumentError` for an unknown role. */
  override qparams(role: Role): QParams {
    const qparams = super.qparams(role);
    return role === "weight" && this.enable2dQuantization ? { ...qparams, tile: "32x32" } : qparams;
  }
}

/** The forward tensors that each scope name stands for. */
const SCOPES = {
  none: [],
  weights: ["weight"],
  activations: ["input", "output"],
  all: ["weight", "input", "output"],
} as const satisfies Record<string, readonly ForwardRole[]>;

/** A name for a set of forward tensors to which an option of `NVFP4BlockScaling` applies. */
export type NVFP4Scope = keyof typeof SCOPES;

const ERROR_MODES = ["mae", "mse"] as const satisfies readonly FourOverSix[];

function covers(scope: NVFP4Scope, role: Role): boolean {
  return (SCOPES[scope] as readonly Role[]).includes(role);
}

/**
 * Returns the value of an environment variable, or `fallback` if it is not set. Throws `ArgumentError` if the value is not one
 * of `names`.
 */
function environmentName<T extends string>(
  variable: string,
  names: readonly T[],
  fallback: T,
  text = environmentText(variable),
): T {
  if (text === undefined) return fallback;
  oneOf(names)("NVFP4BlockScaling", variable, text);
  return text as T;
}

/** Options of `NVFP4BlockScaling`. All fields are optional. */
export interface NVFP4BlockScalingOptions extends RecipeOptions {
  /**
   * Whether to leave out the random Hadamard transform. Default: whether the environment variable NVTE_NVFP4_DISABLE_RHT is 1.
   */
  readonly disableRht?: boolean | undefined;
  /**
   * Whether to round gradients to nearest instead of stochastically. Stochastic rounding has 8 random bits for each element, so
   * its mean is too close to zero by less than 1/256 of the distance between two codes. Default: whether the environment variable
   * NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING is 1.
   */
  readonly disableStochasticRounding?: boolean | undefined;
  /**
   * Whether weights have one scale per 1x16 block instead of per 16x16 block. Default: whether the environment variable
   * NVTE_NVFP4_DISABLE_2D_QUANTIZATION is 1.
   */
  readonly disable2dQuantization?: boolean | undefined;
  /**
   * The forward tensors that use 4over6: each block chooses between a maximum element of 6 and of 4, by the smaller error.
   * Scopes with activations require `disableRht`. Gradients never use it. Default: the environment variable NVTE_NVFP4_4OVER6,
   * else `none`.
   */
  readonly fourOverSix?: NVFP4Scope | undefined;
  /**
   * The tensors whose maximum block scale is 256 instead of 448, if they use 4over6. Default: the environment variable
   * NVTE_NVFP4_4OVER6_E4M3_USE_256, else `all`.
   */
  readonly e4m3Use256?: NVFP4Scope | undefined;
  /**
   * The error measure that 4over6 minimizes: `mae` (mean absolute) or `mse` (mean squared). Default: the environment variable
   * NVTE_NVFP4_4OVER6_ERR_MODE, else `mae`.
   */
  readonly fourOverSixErrMode?: (typeof ERROR_MODES)[number] | undefined;
  /**
   * Whether tensors of the forward pass other than weights have one amax per row instead of one per tensor, and in their
   * columnwise copies one per column. It requires `disableRht`. Default: whether the environment variable
   * NVTE_NVFP4_ROW_SCALED_ACTIVATION is 1.
   */
  readonly rowScaledActivation?: boolean | undefined;
}

const SCOPE_NAMES = Object.keys(SCOPES) as readonly NVFP4Scope[];
const scopeName = oneOf(SCOPE_NAMES);
const checkNvfp4 = optionsOf<NVFP4BlockScalingOptions>({
  ...RECIPE_OPTIONS,
  disableRht: boolean,
  disableStochasticRounding: boolean,
  disable2dQuantization: boolean,
  fourOverSix: scopeName,
  e4m3Use256: scopeName,
  fourOverSixErrMode: oneOf(ERROR_MODES),
  rowScaledActivation: boolean,
});

/**
 * The recipe of NVFP4: one E4M3 scale per 16 elements, or per 16x16 of weights, and one f32 factor per tensor (numerics.md §5).
 *
 * @throws `ArgumentError` for an invalid option value or an invalid value of an environment variable.
 */
export class NVFP4BlockScaling extends StandardRecipe {
  static {
    guardReceivers(this);
  }

  /** Whether the random Hadamard transform of columnwise data is left out. */
  readonly disableRht: boolean;
  /** Whether gradients are rounded to nearest instead of stochastically. */
  readonly disableStochasticRounding: boolean;
  /** Whether weights have one scale per 1x16 block instead of per 16x16 block. */
  readonly disable2dQuantization: boolean;
  /** The forward tensors that use 4over6: each block chooses between a maximum element of 6 and of 4, by the smaller error. */
  readonly fourOverSix: NVFP4Scope;
  /** The tensors whose maximum block scale is 256 instead of 448, if they use 4over6. */
  readonly e4m3Use256: NVFP4Scope;
  /** The error measure that 4over6 minimizes: mean absolute or mean squared. */
  readonly fourOverSixErrMode: (typeof ERROR_MODES)[number];
  /** Whether tensors of the forward pass other than weights have one amax per row instead of one per tensor. */
  readonly rowScaledActivation: boolean;

  constructor(options: NVFP4BlockScalingOptions = {}) {
    const ownOptions = checkNvfp4("NVFP4BlockScaling", options);
    super("nvfp4", ownOptions);
    this.disableRht = ownOptions.disableRht ?? environment("NVTE_NVFP4_DISABLE_RHT");
    this.disableStochasticRounding =
      ownOptions.disableStochasticRounding ?? environment("NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING");
    this.disable2dQuantization =
      ownOptions.disable2dQuantization ?? environment("NVTE_NVFP4_DISABLE_2D_QUANTIZATION");
    this.fourOverSix = ownOptions.fourOverSix ?? environmentName("NVTE_NVFP4_4OVER6", SCOPE_NAMES, "none");
    this.e4m3Use256 =
      ownOptions.e4m3Use256 ?? environmentName("NVTE_NVFP4_4OVER6_E4M3_USE_256", SCOPE_NAMES, "all");
    const errorMode = environmentText("NVTE_NVFP4_4OVER6_ERR_MODE")?.toLowerCase();
    this.fourOverSixErrMode =
      ownOptions.fourOverSixErrMode ??
      environmentName("NVTE_NVFP4_4OVER6_ERR_MODE", ERROR_MODES, "mae", errorMode);
    this.rowScaledActivation =
      ownOptions.rowScaledActivation ?? environment("NVTE_NVFP4_ROW_SCALED_ACTIVATION");
    if (!this.disableRht && this.rowScaledActivation)
      throw new ArgumentError(
        "NVFP4BlockScaling: rowScaledActivation does not combine with the Hadamard transform of activations; set disableRht",
      );
    if (!this.disableRht && covers(this.fourOverSix, "input"))
      throw new ArgumentError(
        `NVFP4BlockScaling: fourOverSix ${this.fourOverSix} covers activations, and 4over6 does not combine with their Hadamard transform; set disableRht, or fourOverSix weights`,
      );
  }

  /** Returns the quantizer settings for the tensor of that role. Throws `ArgumentError` for an unknown role. */
  override qparams(role: Role): QParams {
    const qparams = super.qparams(role);
    const chooses = covers(this.fourOverSix, role);
    return {
      ...qparams,
      rht: qparams.rht && !this.disableRht,
      stochastic: qparams.stochastic && !this.disableStochasticRounding,
      tile: this.disable2dQuantization ? "1x16" : qparams.tile,
      fourOverSix: chooses ? this.fourOverSixErrMode : "none",
      e4m3Max: chooses && covers(this.e4m3Use256, role) ? 256 : 448,
      rowScaled: this.rowScaledActivation && covers("activations", role),
    };
  }
}
