/** Where the values of a parameter lie in a checkpoint. */

import { isCacheScale } from "../../checkpoints/recognize/leftovers.js";
import type { Shape } from "../../tensor/shape.js";

/** The tensor, or the matrix in a stack of them, that has values of a parameter. */
export interface WeightPlace {
  /** The name of the tensor. */
  readonly tensor: string;
  /** The index of the parameter's first element that the tensor has. Default 0. */
  readonly first?: number | undefined;
  /** The index of the parameter's matrix in a stack of them; absent if the tensor has this parameter only. */
  readonly matrix?: { readonly index: number; readonly count: number };
  /** The shape of the tensor, or of the matrix in the stack, if it is not the parameter's. */
  readonly shape?: Shape | undefined;
  /**
   * Whether an unquantized tensor has the parameter's matrix transposed. Quantized ones of a convention with `transposedWide`
   * have the parameter's order. Default false.
   */
  readonly transposedWide?: boolean | undefined;
  /** The number of heads whose rows lie in the order of neighbouring pairs; absent if rows lie in the order of halves. */
  readonly pairedHeads?: number | undefined;
  /** The number that was added to the values. Default 0. */
  readonly addend?: number | undefined;
  /** The heads of a parameter that has first all keys and then all values. */
  readonly latentHeads?: LatentHeads | undefined;
}

/** The up-projection of a latent attention, stored as keys [heads, rank, keys] and values [heads, values, rank]. */
export interface LatentHeads {
  readonly heads: number;
  /** The elements of a head of keys that are projected. */
  readonly keys: number;
  /** The elements of a head of values. */
  readonly values: number;
}

/** How a checkpoint names its tensors. */
export interface WeightNames {
  /** Returns the places of a parameter, which together have all its elements. */
  readonly placesOf: (parameter: string) => readonly WeightPlace[];
  /** Whether the loader ignores a tensor that belongs to no parameter. */
  readonly isIgnored: (tensor: string) => boolean;
}

/** Tensors that some checkpoints have, and that say what follows from the configuration: the frequencies of positions. */
const DERIVED = /\.rotary_emb\.inv_freq$/;

/** The names of Hugging Face's checkpoints, which are those of the parameters. */
export function hubNames(tieWordEmbeddings: boolean): WeightNames {
  return {
    placesOf: (tensor) => [{ tensor }],
    // with tied embeddings, a file may have a copy of the table
    isIgnored: (tensor) =>
      DERIVED.test(tensor) || isCacheScale(tensor) || (tieWordEmbeddings && tensor === "lm_head.weight"),
  };
}
