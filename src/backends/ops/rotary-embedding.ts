/** The arguments of rotary embeddings, and their tensors. */
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { OUT, type Tensors } from "../tensors.js";
import type { AttentionLayout } from "./attention.js";

/** Arguments of `rotaryEmbedding`: pairs of elements of each head are rotated by an angle that depends on the position. */
export interface RotaryEmbeddingArgs {
  /** The queries or keys, [B, S, H, D] in the order of `layout`. */
  readonly x: Tensor<WideDType>;
  /** The cosine of each position and pair, [P, R / 2]. */
  readonly cos: Tensor<"f32">;
  /** The sine of each position and pair, [P, R / 2]. */
  readonly sin: Tensor<"f32">;
  /** The order of the dimensions of x. */
  readonly layout: AttentionLayout;
  /** Whether a pair is two neighbours. Otherwise it is an element of the first and one of the second half of R elements. */
  readonly interleaved: boolean;
  /** Whether the angles are negated. */
  readonly inverse: boolean;
  /** The position of each sequence's first row, [B]. Absent: 0. */
  readonly startPositions?: Tensor<"i32"> | undefined;
  /** For `thd`: the row at which each sequence begins, and the end of the last one, [B + 1]. */
  readonly cuSeqlens?: Tensor<"i32"> | undefined;
  /** Output: the rotated heads, in the shape of x, rounded once to its dtype. */
  readonly out: Tensor<WideDType>;
}

/** Rotates pairs of elements of queries or keys. */
export const rotaryEmbedding: Tensors<RotaryEmbeddingArgs> = {
  ...OUT,
  reads: {
    ...OUT.reads,
    cos: "f32",
    sin: "f32",
    "startPositions?": "checked",
    "cuSeqlens?": "checked",
  },
};

/** How the rows of x are divided into sequences. A row is the heads of one position. */
export interface RotaryRows {
  /** The number of rows. */
  readonly rows: number;
  /** The number of sequences. */
  readonly batch: number;
  /** The number of rows of a sequence. 0 for `thd`. */
  readonly length: number;
  /** The distance between rows of one sequence. */
  readonly positionStride: number;
  /** The distance between rows of one position. */
  readonly sequenceStride: number;
}

/** Returns how the rows of x are divided into sequences. */
export function rotaryRows({ x, layout, cuSeqlens }: RotaryEmbeddingArgs): RotaryRows {
  const [first, second] = x.shape as readonly [number, number];
  if (layout === "thd") {
    const batch = Math.max((cuSeqlens?.size ?? 1) - 1, 0);
    return { rows: first, batch, length: 0, positionStride: 1, sequenceStride: 1 };
  }
  const [batch, length] = layout === "bshd" ? [first, second] : [second, first];
  const strides =
    layout === "bshd"
      ? { positionStride: 1, sequenceStride: length }
      : { positionStride: batch, sequenceStride: 1 };
  return { rows: batch * length, batch, length, ...strides };
}
