/** What a file says of a tensor. */
import type { Shape } from "../../tensor/shape.js";
import type { FileDType } from "../dtypes.js";

/** A tensor to be written. */
export interface TensorPlan {
  /** The name in the file. */
  readonly name: string;
  /** The type by its name in safetensors, such as `BF16`. */
  readonly dtype: FileDType;
  /** Sizes, row-major, the last contiguous. */
  readonly shape: Shape;
}

/** A tensor of a file; its bytes are [begin, end) of the data that follow the header. */
export interface TensorEntry extends TensorPlan {
  /** The first byte, counted from the end of the header. */
  readonly begin: number;
  /** The byte behind the last. */
  readonly end: number;
}
