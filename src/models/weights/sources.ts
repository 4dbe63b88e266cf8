/** The tensors of a parameter's values in a checkpoint. */

import { isCacheScale } from "../../checkpoints/recognize/leftovers.js";
import type { Shape } from "../../tensor/shape.js";

/** A tensor, or a matrix of a stack, that contains values of a parameter. */
export interface WeightSource {
  /** The name of the tensor. */
  readonly tensor: string;
  /** The index, in the parameter, of the first element that the tensor contains. Default 0. */
  readonly first?: number | undefined;
  /** The index of the parameter's matrix in a stack, and the number of matrices; absent if the tensor has this parameter only. */
  readonly matrix?: { readonly index: number; readonly count: number };
  /** The shape of the tensor, or of the matrix in the stack, if it is not the parameter's. */
  readonly shape?: Shape | undefined;
  /**
   * Whether an unquantized tensor has the parameter's matrix transposed. A quantized tensor of a convention with `transposedWide`
   * has the parameter's order. Default false.
   */
  readonly transposedWide?: boolean | undefined;
  /** The number of heads whose rows lie in the order of neighbouring pairs; absent if rows lie in the order of halves. */
  readonly pairedHeads?: number | undefined;
  /** A number that the file has added to the values. Default 0. */
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
  /** Returns the tensors that together have all elements of a parameter. */
  readonly sourcesOf: (parameter: string) => readonly WeightSource[];
  /** Whether the loader ignores a tensor that belongs to no parameter. */
  readonly isIgnored: (tensor: string) => boolean;
}

/** Tensors of rotary frequencies. Some checkpoints contain them, although they follow from the configuration. */
const DERIVED = /\.rotary_emb\.inv_freq$/;

/** The naming of Hugging Face's checkpoints: a tensor has the name of its parameter. */
export function hubNames(tieWordEmbeddings: boolean): WeightNames {
  return {
    sourcesOf: (tensor) => [{ tensor }],
    // with tied embeddings, a file may have a copy of the table
    isIgnored: (tensor) =>
      DERIVED.test(tensor) || isCacheScale(tensor) || (tieWordEmbeddings && tensor === "lm_head.weight"),
  };
}
