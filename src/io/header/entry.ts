/** The description of a tensor in a file. */
import type { Shape } from "../../tensor/shape.js";
import type { FileDType } from "../dtypes.js";

/** A tensor to be written. */
export interface TensorPlan {
  /** The name in the file. */
  readonly name: string;
  /** The type by its name in safetensors, such as `BF16`. */
  readonly dtype: FileDType;
  /** The size of each dimension. Elements are row-major: the last dimension is contiguous. */
  readonly shape: Shape;
}

/** A tensor of a file. Its bytes are [begin, end) of the data after the header. */
export interface TensorEntry extends TensorPlan {
  /** The offset of its first byte, counted from the end of the header. */
  readonly begin: number;
  /** The offset of the byte after its last. */
  readonly end: number;
}

/** Writes `bytes` at offset `at` of a planned tensor. Calls may come in any order, but must write each byte exactly once. */
export type PutTensor = (name: string, bytes: Uint8Array, at?: number) => Promise<void>;
