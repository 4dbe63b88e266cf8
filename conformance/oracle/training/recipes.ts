/** The recipes as plain data: the quantizer of each tensor of a linear layer (the tables of docs/training.md). */

import type { ErrorMetric } from "../core/scale.js";
import type { QuantizeSpec } from "../quantize/quantize.js";
import type { DelayedModel } from "./delayed-slots.js";

export type RoleModel = "input" | "weight" | "output" | "gradOutput" | "gradInput";
export type ProductModel = "fprop" | "dgrad" | "wgrad";

/** In which precision gradients are computed, and from which values of the input and the weight. */
export type OverrideModel = "none" | "highPrecision" | "dequantized";

/** The options of every recipe. */
interface Products {
  /** The products with a split accumulator. */
  readonly split?: Readonly<Record<ProductModel, boolean>> | undefined;
  /** Default `none`: gradients are computed by the recipe. */
  readonly override?: OverrideModel;
}

interface TwoFormats extends Products {
  readonly format: "E4M3" | "HYBRID";
}

export interface DelayedRecipe extends DelayedModel, Products {}

export interface CurrentRecipe extends TwoFormats {
  readonly kind: "current";
  readonly pow2: boolean;
  readonly amaxEpsilon: number;
}

export interface BlockRecipe extends TwoFormats {
  readonly kind: "block";
  readonly f32Scales: boolean;
  readonly amaxEpsilon: number;
  /** The tensor with 128x128 tiles, if any. */
  readonly square: "x" | "w" | "grad" | "none";
}

export interface MXFP8Recipe extends TwoFormats {
  readonly kind: "mxfp8";
  readonly square: boolean;
}

export interface NVFP4Recipe extends Products {
  readonly kind: "nvfp4";
  readonly rht: boolean;
  readonly stochastic: boolean;
  readonly square: boolean;
  readonly fourOverSix: ErrorMetric | "none";
  /** Whether forward tensors other than the weight have one amax for each row. */
  readonly rowScaled?: boolean;
}

/** The form of one copy: quantized by a spec, or kept in high precision. */
export type CopySpec = QuantizeSpec | "identity";

/** The forms of both copies. The columnwise copy is computed from the tensor, or from the values of the rowwise copy. */
export interface CopiesSpec {
  readonly rowwise: CopySpec;
  readonly columnwise: CopySpec;
  readonly source: "original" | "rowwiseDequantized";
}

/** A custom recipe: one quantizer for each role, or one for each copy. */
export interface CustomRecipeModel extends Products {
  readonly kind: "custom";
  readonly specs: Readonly<Record<RoleModel, CopySpec | CopiesSpec>>;
}

export type StepRecipe =
  | DelayedRecipe
  | CurrentRecipe
  | BlockRecipe
  | MXFP8Recipe
  | NVFP4Recipe
  | CustomRecipeModel;

const isBackward = (role: RoleModel): boolean => role === "gradOutput" || role === "gradInput";

function elementFormat(format: "E4M3" | "HYBRID", role: RoleModel): "e4m3" | "e5m2" {
  return format === "HYBRID" && isBackward(role) ? "e5m2" : "e4m3";
}

/** The quantizer of a role. The scale of delayed scaling, random bits and usage are added elsewhere. */
export function specOf(recipe: StepRecipe, role: RoleModel): QuantizeSpec {
  switch (recipe.kind) {
    case "delayed":
      return { quantizer: "fp8-delayed", format: elementFormat(recipe.format, role) };
    case "current": {
      const { pow2: pow2Scales, amaxEpsilon, format } = recipe;
      return { quantizer: "fp8-current", format: elementFormat(format, role), pow2Scales, amaxEpsilon };
    }
    case "block": {
      const owner = isBackward(role) ? "grad" : role === "weight" ? "w" : "x";
      return {
        quantizer: "fp8-block",
        format: elementFormat(recipe.format, role),
        pow2Scales: !recipe.f32Scales,
        amaxEpsilon: recipe.amaxEpsilon,
        tile: recipe.square === owner ? "128x128" : "1x128",
      };
    }
    case "mxfp8": {
      const format = elementFormat(recipe.format, role);
      return { quantizer: "mxfp8", format, tile: recipe.square && role === "weight" ? "32x32" : "1x32" };
    }
    case "nvfp4": {
      if (role === "weight") {
        const four = recipe.fourOverSix === "none" ? {} : { fourOverSix: recipe.fourOverSix };
        return { quantizer: "nvfp4", tile: recipe.square ? "16x16" : "1x16", ...four };
      }
      const rowScaled = recipe.rowScaled && !isBackward(role) ? { rowScaled: true } : {};
      return {
        quantizer: "nvfp4",
        rht: recipe.rht,
        stochastic: recipe.stochastic && isBackward(role),
        ...rowScaled,
      };
    }
    case "custom": {
      const spec = recipe.specs[role];
      const rowwise = typeof spec === "object" && "rowwise" in spec ? spec.rowwise : spec;
      if (rowwise === "identity") throw new RangeError(`the ${role} is not quantized`);
      return rowwise;
    }
  }
}

/** The forms of both copies of a role's tensor, after the override of the backward pass. */
export function copiesSpecOf(recipe: StepRecipe, role: RoleModel): CopiesSpec {
  const override = overrideOf(recipe);
  const ownCopies = ownCopiesSpec(recipe, role);
  if (override === "none") return ownCopies;
  if (isBackward(role)) return { rowwise: "identity", columnwise: "identity", source: "original" };
  const source = override === "dequantized" ? "rowwiseDequantized" : "original";
  return { rowwise: ownCopies.rowwise, columnwise: "identity", source };
}

function ownCopiesSpec(recipe: StepRecipe, role: RoleModel): CopiesSpec {
  const spec = recipe.kind === "custom" ? recipe.specs[role] : specOf(recipe, role);
  if (typeof spec === "object" && "rowwise" in spec) return spec;
  return { rowwise: spec, columnwise: spec, source: "original" };
}

/** Whether a product uses a split accumulator (the last column of the tables). */
export function splits(recipe: StepRecipe, product: ProductModel): boolean {
  if (recipe.split) return recipe.split[product];
  return recipe.kind === "block" || product !== "fprop";
}

/** Whether norms and activations are fused with the quantization of their result (a norm only if its result is not returned). */
export function fuses(recipe: StepRecipe): boolean {
  return recipe.kind !== "custom" && overrideOf(recipe) === "none";
}

function overrideOf({ override = "none" }: StepRecipe): OverrideModel {
  return override;
}

/** Whether the gradient of an activation is fused with its quantization. */
export function fusesGradient(recipe: StepRecipe, gated: boolean): boolean {
  return !gated && fuses(recipe) && (recipe.kind === "delayed" || recipe.kind === "mxfp8");
}
