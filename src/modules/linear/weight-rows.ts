/** Quantization of a sharded weight, where each rank quantizes its rows. */

import type { Recipe } from "../../recipes/recipe.js";
import type { Sharding } from "../../tape/sharding.js";
import type { QuantizerOps, QuantizeSpec } from "../../tensor/quantized.js";
import type { RecipeState } from "../recipe-state.js";
import { areWholeBlocksOf } from "../tensor-parallel/row-operand.js";

/** Whether each rank may quantize its rows of a weight separately: see `LinearQuantization.quantizesRows`. */
export function canQuantizeRows({ kind }: Recipe, spec: QuantizeSpec, { rowsPerRank }: Sharding): boolean {
  return kind !== "custom" && !spec.stochastic && areWholeBlocksOf(spec, rowsPerRank);
}

/** Returns the operations of a quantized parameter's rows. They reduce the amax over ranks after each quantization. */
export function rowsQuantizer(state: RecipeState, sharding: Sharding): QuantizerOps {
  const quantizer = state.weightQuantizer(sharding);
  return {
    dequantize: (t, dtype) => quantizer.dequantize(t, dtype),
    deriveColumnwise: (t) => quantizer.deriveColumnwise(t),
    updateQuantized(source, t, call) {
      quantizer.updateQuantized(source, t, call);
      state.reduceWeightAmax(sharding);
    },
  };
}
