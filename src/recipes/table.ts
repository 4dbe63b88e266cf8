/** The recipes as data: the quantizer of each tensor of a linear layer (docs/training.md shows the table). */

import type { BlockFormatName, Tile } from "../formats/block.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { oneOf } from "../options.js";
import type { FourOverSix } from "../tensor/quantized.js";

/**
 * The tensors of a linear layer that may be quantized, by the pass that computes them. `output` and `gradInput` are quantized
 * only on request.
 */
export const ROLES = {
  forward: ["input", "weight", "output"],
  backward: ["gradOutput", "gradInput"],
} as const;

/** The pass that computes a tensor. */
export type Pass = keyof typeof ROLES;
/** A tensor that the forward pass of a linear layer quantizes. */
export type ForwardRole = (typeof ROLES.forward)[number];
/** A tensor that the backward pass of a linear layer quantizes. */
export type BackwardRole = (typeof ROLES.backward)[number];
/** A tensor that a linear layer quantizes, by its role in a product. */
export type Role = ForwardRole | BackwardRole;

const roleName = oneOf([...ROLES.forward, ...ROLES.backward]);

/** The pass that computes the tensor of that role. Throws `ArgumentError` for anything but a role. */
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

/** The formats that no recipe takes, and why. */
export const UNSUPPORTED_FORMATS: ReadonlyMap<unknown, string> = new Map<Format, string>([
  ["E5M2", "pure E5M2 training loses too many digits to be supported"],
]);

/** TransformerEngine's `Format`. */
export type Format = keyof typeof FORMATS;

/** How one matrix product of a layer accumulates. */
export interface MMParams {
  /** Whether FP8 partial sums are promoted to f32 every 128 elements of K: TransformerEngine's use_split_accumulator. */
  readonly useSplitAccumulator: boolean;
}

/** The settings of a quantizer that a recipe chooses for one tensor. Settings that its format does not have are off. */
export interface QParams {
  /** Whether f32 scales are rounded down to powers of two. */
  readonly pow2Scales: boolean;
  /** Lower bound of the amax from which an f32 scale is computed. */
  readonly amaxEpsilon: number;
  /** Whether columnwise data pass through the random Hadamard transform. */
  readonly rht: boolean;
  /** Whether elements are rounded stochastically. */
  readonly stochastic: boolean;
  /** The region that shares a scale. */
  readonly tile: Tile;
  /** The error by which 4over6 chooses between two block scales, or `none`. */
  readonly fourOverSix: FourOverSix;
  /** The maximum block scale of NVFP4. */
  readonly e4m3Max: 448 | 256;
}

/** A standard recipe by its row in `RECIPES`. */
export type RecipeKind = "delayed" | "current" | "block" | "mxfp8" | "nvfp4";

/** One row of the table: a recipe before options. */
export interface RecipeRow {
  /** The quantizer of every tensor. */
  readonly quantizer: BlockFormatName;
  /** The default element formats. */
  readonly format: Format;
  /** The element formats that it supports. */
  readonly formats: readonly Format[];
  /** The region that shares a scale, except in weights. */
  readonly tile: Tile;
  /** As `tile`, for weights. */
  readonly weightTile: Tile;
  /** The products that use the split accumulator. */
  readonly useSplitAccumulator: Readonly<Record<Product, boolean>>;
  /** Tensors whose columnwise copy passes through the random Hadamard transform. */
  readonly rht: readonly Role[];
  /** Tensors that are rounded stochastically. */
  readonly stochastic: readonly Role[];
  /**
   * @internal Whether the gradient of an activation is fused with its quantization: `ungated`, for ungated activations; `alone`,
   * for any activation if no bias gradient needs the tensor.
   */
  readonly gradientSteps: { readonly ungated: boolean; readonly alone: boolean };
}

const FAST_FORWARD = { fprop: false, dgrad: true, wgrad: true } as const;

/** Each recipe before options, by its kind. */
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
