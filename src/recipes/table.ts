/** The recipes as data: how each tensor of a linear layer is quantized. docs/training.md shows the same table. */

import type { BlockFormatName, Tile } from "../formats/block.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { oneOf } from "../options.js";
import type { FourOverSix } from "../tensor/quantized.js";

/**
 * The roles of tensors in a linear layer that may be quantized, by the pass that computes them. `output` and `gradInput` are
 * quantized only on request.
 */
export const ROLES = {
  forward: ["input", "weight", "output"],
  backward: ["gradOutput", "gradInput"],
} as const;

/** A pass of training, forward or backward. */
export type Pass = keyof typeof ROLES;
/** A tensor that the forward pass of a linear layer quantizes. */
export type ForwardRole = (typeof ROLES.forward)[number];
/** A tensor that the backward pass of a linear layer quantizes. */
export type BackwardRole = (typeof ROLES.backward)[number];
/** The role of a tensor that a linear layer quantizes. */
export type Role = ForwardRole | BackwardRole;

const roleName = oneOf([...ROLES.forward, ...ROLES.backward]);

/** Returns the pass that computes the tensor of that role. Throws `ArgumentError` for an unknown role. */
export function passOf(role: Role): Pass {
  roleName("passOf", "role", role);
  return (ROLES.backward as readonly Role[]).includes(role) ? "backward" : "forward";
}

/**
 * The tensors that FP8 attention quantizes, by the pass that computes them (numerics.md §10.9): the queries, keys and values
 * together (`qkv`), the result (`o`), the probabilities (`s`), and the gradients of these; `dp` is the gradient of the scores, as
 * TransformerEngine names it.
 */
export const ATTENTION_TENSORS = {
  forward: ["qkv", "o", "s"],
  backward: ["dqkv", "do", "dp"],
} as const satisfies Record<Pass, readonly string[]>;

/** A tensor that the forward or backward pass of FP8 attention quantizes. */
export type AttentionTensor = (typeof ATTENTION_TENSORS)[Pass][number];

/**
 * The matrix products of a linear layer: `fprop` computes the result, `dgrad` the gradient of the input, `wgrad` the gradient
 * of the weight.
 */
export const PRODUCTS = ["fprop", "dgrad", "wgrad"] as const;
/** One of the three matrix products of a linear layer. */
export type Product = (typeof PRODUCTS)[number];

/**
 * In which precision linear layers compute the gradients of a forward pass under a recipe: `none`: by the recipe;
 * `highPrecision`: in the dtype of the activations, from the original input and weight; `dequantized`: in that dtype, from the
 * values of the quantized input and weight. TransformerEngine's `backward_override`.
 */
export const BACKWARD_OVERRIDES = ["none", "highPrecision", "dequantized"] as const;
/** One of `BACKWARD_OVERRIDES`. */
export type BackwardOverride = (typeof BACKWARD_OVERRIDES)[number];

/** The element formats of the tensors of each pass. */
export const FORMATS = {
  E4M3: { forward: "e4m3", backward: "e4m3" },
  E5M2: { forward: "e5m2", backward: "e5m2" },
  HYBRID: { forward: "e4m3", backward: "e5m2" },
  E2M1: { forward: "e2m1", backward: "e2m1" },
} as const satisfies Record<string, Readonly<Record<Pass, ScalarFormat>>>;

/** The formats that no recipe supports, and the reason. */
export const UNSUPPORTED_FORMATS: ReadonlyMap<unknown, string> = new Map<Format, string>([
  ["E5M2", "pure E5M2 training loses too many digits to be supported"],
]);

/** A choice of element formats for both passes. TransformerEngine's `Format`. */
export type Format = keyof typeof FORMATS;

/** How one matrix product of a layer accumulates. */
export interface MMParams {
  /** Whether FP8 partial sums are added to an f32 total every 128 elements of K. TransformerEngine's use_split_accumulator. */
  readonly useSplitAccumulator: boolean;
}

/**
 * The quantizer settings that a recipe chooses for one tensor. A setting that the quantizer does not have has its off value.
 */
export interface QParams {
  /** Whether f32 scales are rounded down to powers of two. */
  readonly pow2Scales: boolean;
  /** A lower bound of the amax from which an f32 scale is computed. */
  readonly amaxEpsilon: number;
  /** Whether columnwise data pass through the random Hadamard transform. */
  readonly rht: boolean;
  /** Whether elements are rounded stochastically. */
  readonly stochastic: boolean;
  /** The region of elements that share a scale. */
  readonly tile: Tile;
  /** The error measure by which 4over6 chooses between two scales for each block, or `none`. */
  readonly fourOverSix: FourOverSix;
  /** The maximum of the block scales of NVFP4. */
  readonly e4m3Max: 448 | 256;
  /** Whether amaxes are per row instead of per tensor (NVFP4). */
  readonly rowScaled: boolean;
}

/** The key of a standard recipe's row in `RECIPES`. */
export type RecipeKind = "delayed" | "current" | "block" | "mxfp8" | "nvfp4";

/** One row of the table: a recipe with default options. */
export interface RecipeRow {
  /** The quantizer of all tensors. */
  readonly quantizer: BlockFormatName;
  /** The default element formats. */
  readonly format: Format;
  /** The element formats that it supports. */
  readonly formats: readonly Format[];
  /** The region of elements that share a scale, in all tensors but the weight. */
  readonly tile: Tile;
  /** The region of elements that share a scale in the weight. */
  readonly weightTile: Tile;
  /** Whether each product uses the split accumulator. */
  readonly useSplitAccumulator: Readonly<Record<Product, boolean>>;
  /** The roles whose columnwise data pass through the random Hadamard transform. */
  readonly rht: readonly Role[];
  /** The roles whose elements are rounded stochastically. */
  readonly stochastic: readonly Role[];
  /**
   * When the gradient of an activation is fused with its quantization. `ungated`: for ungated activations. `alone`: for all
   * activations, if no bias gradient needs the unquantized gradient.
   */
  readonly gradientSteps: { readonly ungated: boolean; readonly alone: boolean };
  /** How attention quantizes with `fp8Mha`. Undefined if attention stays in high precision. */
  readonly attention: AttentionTraits | undefined;
}

/** How FP8 attention quantizes under a recipe. */
export interface AttentionTraits {
  /** Whether the probabilities and the gradient of the scores are quantized. Otherwise they are rounded to the dtype of q. */
  readonly probabilities: boolean;
  /** Whether attention reads quantized results of projections, and returns quantized gradients to them. */
  readonly input: boolean;
  /** Whether the quantized result is the input of the projection behind attention, which does not quantize it again. */
  readonly output: boolean;
  /** Whether that projection returns a quantized gradient of its input. */
  readonly gradOutput: boolean;
}

const FAST_FORWARD = { fprop: false, dgrad: true, wgrad: true } as const;

/** The standard recipes with default options, by kind. */
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
    attention: { probabilities: true, input: true, output: true, gradOutput: true },
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
    attention: { probabilities: true, input: false, output: true, gradOutput: false },
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
    attention: undefined,
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
    attention: { probabilities: false, input: false, output: false, gradOutput: false },
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
    attention: undefined,
  },
};
