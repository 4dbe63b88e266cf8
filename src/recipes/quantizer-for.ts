/** From a recipe and a role to the quantizer. */
import { ArgumentError } from "../errors.js";
import { Float8CurrentScalingQuantizer, Float8Quantizer } from "../quantizers/float8.js";
import { Float8BlockQuantizer } from "../quantizers/float8-block.js";
import { MXFP8Quantizer } from "../quantizers/mx.js";
import { NVFP4Quantizer } from "../quantizers/nvfp4.js";
import type { Quantizer, RandomState } from "../quantizers/quantizer.js";
import type { Tensor } from "../tensor/tensor.js";
import { CustomRecipe } from "./custom.js";
import { type Recipe, StandardRecipe } from "./recipe.js";
import type { Role } from "./table.js";

/** What a quantizer refers to rather than has. */
export interface QuantizerState {
  /** Of delayed scaling: the scale, and what takes amaxes if anything does; [1]. */
  readonly scale?: Tensor<"f32"> | undefined;
  readonly amax?: Tensor<"f32"> | undefined;
  /** Of stochastic rounding. */
  readonly random: RandomState;
}

/**
 * The quantizer of `role` under `recipe`, in which `state.scale` is needed for delayed scaling alone. Throws `ArgumentError`
 * for a recipe that is neither a row of the table nor the caller's quantizers.
 */
export function quantizerFor(recipe: Recipe, role: Role, state: QuantizerState): Quantizer {
  if (recipe instanceof CustomRecipe) return recipe.quantizer(role);
  if (recipe instanceof StandardRecipe) return standardQuantizer(recipe, role, state);
  throw new ArgumentError(
    `${recipe.constructor.name} says nothing about quantizers; extend StandardRecipe, or give CustomRecipe a quantizerFactory`,
  );
}

function standardQuantizer(recipe: StandardRecipe, role: Role, state: QuantizerState): Quantizer {
  const { pow2Scales, amaxEpsilon, tile, ...qparams } = recipe.qparams(role);
  const format = recipe.elementFormat(role);
  switch (recipe.row.quantizer) {
    case "fp8-delayed": {
      const { scale, amax } = state;
      if (!scale) throw new TypeError("delayed scaling has a scale");
      return new Float8Quantizer(amax ? { format, scale, amax } : { format, scale });
    }
    case "fp8-current":
      return new Float8CurrentScalingQuantizer({ format, pow2Scales, amaxEpsilon });
    case "fp8-block":
      return new Float8BlockQuantizer({
        format,
        tile: tile === "128x128" ? tile : "1x128",
        pow2Scales,
        amaxEpsilon,
      });
    case "mxfp8":
      return new MXFP8Quantizer({
        format: format === "e5m2" ? format : "e4m3",
        tile: tile === "32x32" ? tile : "1x32",
      });
    default:
      return new NVFP4Quantizer({
        tile: tile === "16x16" ? tile : "1x16",
        rht: qparams.rht,
        stochastic: qparams.stochastic,
        fourOverSix: qparams.fourOverSix,
        e4m3Max: qparams.e4m3Max,
        random: state.random,
      });
  }
}
