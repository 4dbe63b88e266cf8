/** The norm of gradients on a GPU. */
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, scratch, writes } from "../native-arguments.js";

export const GRAD_NORM_CALLS = {
  squareSum: {
    x: reads.wide("count"),
    count: "count",
    workspace: scratch.f32("squarePieces(count)", "The sum of each piece."),
    out: writes.f32("1"),
  },
  pieceSums: { x: reads.wide("count"), count: "count", sums: writes.f32("squarePieces(count)") },
  sumPieces: { sums: reads.f32("count"), count: "count", out: writes.f32("1") },
  clipFactor: {
    sums: reads.f32("count"),
    count: "count",
    maxNorm: "float",
    norm: writes.f32("1"),
    factor: writes.f32("1"),
  },
} as const satisfies Declarations;

/** The number of elements in one partial sum of squares. */
const PIECE = 4096;

export const squareSum: Lowering<"squareSum"> = {
  run({ addon, device, withTemporary }, { x, out }) {
    withTemporary(4 * Math.ceil(x.size / PIECE), (workspace) =>
      addon.squareSum(device, { x, count: x.size, workspace, out }),
    );
  },
};

export const pieceSums: Lowering<"pieceSums"> = {
  run({ addon, device }, { x, sums }) {
    addon.pieceSums(device, { x, count: x.size, sums });
  },
};

export const sumPieces: Lowering<"sumPieces"> = {
  run({ addon, device }, { sums, out }) {
    addon.sumPieces(device, { sums, count: sums.size, out });
  },
};

export const clipFactor: Lowering<"clipFactor"> = {
  run({ addon, device }, { sums, maxNorm, norm, factor }) {
    addon.clipFactor(device, { sums, count: sums.size, maxNorm, norm, factor });
  },
};
