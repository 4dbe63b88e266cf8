/** Reorders the elements of parameters that files store in another order. */
import { concatenate } from "../../ops/layout/copy-slice.js";
import { permute } from "../../ops/layout/permute.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { LatentHeads } from "./sources.js";

/** Transposes a matrix [rows, columns] whose elements lie in the order of [columns, rows]. */
export function transposeBack(value: Tensor<WideDType>): void {
  using _scope = new Scope();
  const [rows, columns] = value.shape as readonly [number, number];
  value.paste(permute(value.reshape([columns, rows]), [1, 0]).reshape([value.size]), 0);
}

/**
 * Moves the rows of each head from the order of neighbouring pairs (first, second, first, second, …) to the order of halves (all
 * first ones, then all second ones).
 */
export function separatePairs(value: Tensor<WideDType>, heads: number): void {
  using _scope = new Scope();
  const { shape, size } = value;
  const pairs = (shape[0] as number) / heads / 2;
  const columns = size / (shape[0] as number);
  const split = value.reshape([heads, pairs, 2, columns]);
  value.paste(permute(split, [0, 2, 1, 3]).reshape([size]), 0);
}

/** Orders keys [heads, rank, keys] and then values [heads, values, rank] as the rows [keys + values, rank] of each head. */
export function joinHeads(value: Tensor<WideDType>, { heads, keys, values }: LatentHeads): void {
  using _scope = new Scope();
  const { size } = value;
  const rank = size / (heads * (keys + values));
  const stored = value.slice(0, [heads, rank, keys]);
  const rows = value.slice(heads * rank * keys, [heads, values, rank]);
  value.paste(concatenate([permute(stored, [0, 2, 1]), rows], 1).reshape([size]), 0);
}
