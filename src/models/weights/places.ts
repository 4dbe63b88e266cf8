/** Where the values of a parameter lie in a checkpoint. */

import type { Shape } from "../../tensor/shape.js";

/** The tensor, or the matrix in a stack of them, that has the values of a parameter. */
export interface WeightPlace {
  /** The name of the tensor. */
  readonly tensor: string;
  /** The index of the parameter's matrix in a stack of them; absent if the tensor has this parameter only. */
  readonly matrix?: { readonly index: number; readonly count: number };
  /** The shape of the tensor, if it is not the parameter's. */
  readonly shape?: Shape | undefined;
  /**
   * Whether an unquantized tensor has the parameter's matrix transposed. Quantized ones of a convention with `transposedWide`
   * have the parameter's order. Default false.
   */
  readonly transposedWide?: boolean | undefined;
  /** The number of heads whose rows lie in the order of neighbouring pairs; absent if rows lie in the order of halves. */
  readonly pairedHeads?: number | undefined;
}

/** How a checkpoint names its tensors. */
export interface WeightNames {
  /** Returns the place of a parameter. */
  readonly placeOf: (parameter: string) => WeightPlace;
  /** Whether the loader ignores a tensor that belongs to no parameter. */
  readonly isIgnored: (tensor: string) => boolean;
}

/** Tensors that some checkpoints have, and that say what follows from the configuration: the frequencies of positions. */
const DERIVED = /\.rotary_emb\.inv_freq$/;

/** The names of Hugging Face's checkpoints, which are those of the parameters. */
export function hubNames(tieWordEmbeddings: boolean): WeightNames {
  return {
    placeOf: (tensor) => ({ tensor }),
    // with tied embeddings, a file may have a copy of the table
    isIgnored: (tensor) => DERIVED.test(tensor) || (tieWordEmbeddings && tensor === "lm_head.weight"),
  };
}
