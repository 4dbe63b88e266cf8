/** The size of a part of a tensor. */
import { storageBits } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** The bytes of `count` elements of the type of a tensor. An undefined count is zero. */
export function bytesOf({ dtype }: Pick<Tensor, "dtype">, count: number | undefined): number {
  return ((count ?? 0) * storageBits(dtype)) / 8;
}
