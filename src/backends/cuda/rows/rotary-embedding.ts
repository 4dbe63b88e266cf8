/** Rotary embeddings on a GPU. */
import { rotaryRows } from "../../ops/rotary-embedding.js";
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";

export const ROTARY_EMBEDDING_CALLS = {
  /**
   * A row is the heads of one position of one sequence. Without `cumulative`, rows of one sequence are `positionStride` apart,
   * and rows of one position `sequenceStride`; a sequence has `length` rows.
   */
  rotaryEmbedding: {
    rows: "count",
    heads: "count",
    width: "count",
    pairs: "count",
    positions: "count",
    batch: "count",
    length: "count",
    positionStride: "count",
    sequenceStride: "count",
    x: reads.wide("rows * heads * width"),
    cos: reads.f32("positions * pairs"),
    sin: reads.f32("positions * pairs"),
    "starts?": reads.i32("batch", "The position of each sequence's first row. Null: 0."),
    "cumulative?": reads.i32("batch + 1", "Sequence b has the rows from cumulative[b] to cumulative[b + 1]."),
    out: writes.wide("rows * heads * width"),
    interleaved: "flag",
    inverse: "flag",
  },
} as const satisfies Declarations;

export const rotaryEmbedding: Lowering<"rotaryEmbedding"> = {
  run({ addon, device }, args) {
    const { x, cos, sin, startPositions, cuSeqlens, interleaved, inverse, out } = args;
    const [heads, width] = x.shape.slice(-2) as [number, number];
    const [positions, pairs] = cos.shape as readonly [number, number];
    addon.rotaryEmbedding(device, {
      heads,
      ...rotaryRows(args),
      width,
      pairs,
      positions,
      x,
      cos,
      sin,
      starts: startPositions,
      cumulative: cuSeqlens,
      out,
      interleaved,
      inverse,
    });
  },
};
