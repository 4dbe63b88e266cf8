/** The recipes: which quantizer each tensor of a linear layer goes through, as data (docs/training.md has it as a table). */

import type { BlockFormatName, Tile } from "../formats/block.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { oneOf } from "../options.js";
import type { FourOverSix } from "../tensor/quantized.js";

/**
 * The tensors of a linear layer that may be quantized, by the pass that makes them. `output` and `gradInput` are so only when
 * asked for.
 */
export const ROLES = {
  forward: ["input", "weight", "output"],
  backward: ["gradOutput", "gradInput"],
} as const;

/** The pass of training that makes a tensor. */
export type Pass = keyof typeof ROLES;
/** A tensor that the forward pass of a linear layer quantizes. */
export type ForwardRole = (typeof ROLES.forward)[number];
/** A tensor that the backward pass of a linear layer quantizes. */
export type BackwardRole = (typeof ROLES.backward)[number];
/** A tensor that a linear layer quantizes, by its part in a product. */
export type Role = ForwardRole | BackwardRole;

const roleName = oneOf([...ROLES.forward, ...ROLES.backward]);

/** The pass that makes that tensor. Throws `ArgumentError` for what is no role. */
export function passOf(role: Role): Pass {
  roleName("passOf", "role", role);
  return (ROLES.backward as readonly Role[]).includes(role) ? "backward" : "forward";
}

/** The matrix products of a linear layer: its result, and the gradients of its input and of its weight. */
export const PRODUCTS = ["fprop", "dgrad", "wgrad"] as const;
/** One of the three matrix products of a linear layer. */
export type Product = (typeof PRODUCTS)[number];

/** The element formats of each pass's tensors. */
export const FORMATS = {
  E4M3: { forward: "e4m3", backward: "e4m3" },
  E5M2: { forward: "e5m2", backward: "e5m2" },
  HYBRID: { forward: "e4m3", backward: "e5m2" },
  E2M1: { forward: "e2m1", backward: "e2m1" },
} as const satisfies Record<string, Readonly<Record<Pass, ScalarFormat>>>;

/** Why no recipe takes a format. */
export const UNSUPPORTED_FORMATS: ReadonlyMap<unknown, string> = new Map<Format, string>([
  ["E5M2", "pure E5M2 training loses too many digits to be supported"],
]);

/** TransformerEngine's `Format`. */
export type Format = keyof typeof FORMATS;

/** How one matrix product of a layer accumulates. */
export interface MMParams {
  /** FP8 partial sums leave the tensor core every 128 k's: TransformerEngine's use_split_accumulator. */
  readonly useSplitAccumulator: boolean;
}

/** What of a quantizer a recipe decides for one tensor. Fields that its format does not have are off. */
export interface QParams {
  /** f32 scales are cut to powers of two. */
  readonly pow2Scales: boolean;
  /** Lower bound of an amax that f32 scales are made from. */
  readonly amaxEpsilon: number;
  /** Columnwise data pass through the random Hadamard transform. */
  readonly rht: boolean;
  /** Elements are rounded stochastically. */
  readonly stochastic: boolean;
  /** The region that shares a scale. */
  readonly tile: Tile;
  /** How 4over6 weighs the two candidate scales of a block, or `none`. */
  readonly fourOverSix: FourOverSix;
  /** The largest block scale of NVFP4. */
  readonly e4m3Max: 448 | 256;
}

/** A standard recipe by its row in `RECIPES`. */
export type RecipeKind = "delayed" | "current" | "block" | "mxfp8" | "nvfp4";

/** One row of the table: what a recipe is before options. */
export interface RecipeRow {
  /** The quantizer of every tensor. */
  readonly quantizer: BlockFormatName;
  /** The element formats unless others are asked for. */
  readonly format: Format;
  /** The formats it can be given. */
  readonly formats: readonly Format[];
  /** The regions that share a scale: of weights, and of everything else. */
  readonly tile: Tile;
  /** As `tile`, of weights. */
  readonly weightTile: Tile;
  /** Products whose partial sums are split off. */
  readonly useSplitAccumulator: Readonly<Record<Product, boolean>>;
  /** Tensors that pass through the Hadamard transform for the product along their rows, and that round stochastically. */
  readonly rht: readonly Role[];
  /** Tensors that are rounded stochastically. */
  readonly stochastic: readonly Role[];
  /**
   * The gradient of an activation that is quantized as it is computed: of one that is not gated; and of any where no bias
   * needs it as a tensor.
   */
  readonly gradientSteps: { readonly ungated: boolean; readonly alone: boolean };
}

const FAST_FORWARD = { fprop: false, dgrad: true, wgrad: true } as const;

/** What each recipe is before options, by its kind. */
export const RECIPES: Readonly<Record<RecipeKind, RecipeRow>> = {
  delayed: {
    quantizer: "fp8-delayed",
    format: "HYBRID",
    formats: ["E4M3", "HYBRID"],
    tile: "tensor",
    weightTile: "tensor",
    useSplitAccumulator: FAST_FORWARD,
    rht: [],
    stochastic: [],
    gradientSteps: { ungated: true, alone: false },
  },
  current: {
    quantizer: "fp8-current",
    format: "HYBRID",
    formats: ["E4M3", "HYBRID"],
    tile: "tensor",
    weightTile: "tensor",
    useSplitAccumulator: FAST_FORWARD,
    rht: [],
    stochastic: [],
    gradientSteps: { ungated: false, alone: false },
  },
  block: {
    quantizer: "fp8-block",
    format: "E4M3",
    formats: ["E4M3", "HYBRID"],
    tile: "1x128",
    weightTile: "128x128",
    useSplitAccumulator: { fprop: true, dgrad: true, wgrad: true },
    rht: [],
    stochastic: [],
    gradientSteps: { ungated: false, alone: true },
  },
  mxfp8: {
    quantizer: "mxfp8",
    format: "E4M3",
    formats: ["E4M3", "HYBRID"],
    tile: "1x32",
    weightTile: "1x32",
    useSplitAccumulator: FAST_FORWARD,
    rht: [],
    stochastic: [],
    gradientSteps: { ungated: true, alone: true },
  },
  nvfp4: {
    quantizer: "nvfp4",
    format: "E2M1",
    formats: ["E2M1"],
    tile: "1x16",
    weightTile: "16x16",
    useSplitAccumulator: FAST_FORWARD,
    rht: ["input", "output", "gradOutput", "gradInput"],
    stochastic: ["gradOutput", "gradInput"],
    gradientSteps: { ungated: false, alone: false },
  },
};
