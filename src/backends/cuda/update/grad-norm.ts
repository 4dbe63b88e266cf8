/** The norm of gradients on a GPU. */
import { roundUp } from "../../../tensor/shape.js";
import { type Lowering, listLowering } from "../lowering.js";
import { type Declarations, reads, scratch, writes } from "../native-arguments.js";

export const GRAD_NORM_LISTS = {
  squareSum: {
    x: reads.wide("count"),
    count: "count",
    workspace: scratch.f32("squarePieces(count)", "The sum of each piece."),
    out: writes.f32("1"),
  },
} as const satisfies Declarations;

export const GRAD_NORM_CALLS = {
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
/** The alignment of each tensor's part of the workspace in bytes. */
const WORKSPACE_ALIGNMENT = 16;

export const squareSum: Lowering<"squareSum"> = listLowering(({ addon, device, withTemporary }, list) => {
  let bytes = 0;
  const offsets = list.map(({ x }) => {
    const offset = bytes;
    bytes += roundUp(4 * Math.ceil(x.size / PIECE), WORKSPACE_ALIGNMENT);
    return offset;
  });
  withTemporary(bytes, (address) =>
    addon.squareSum(
      device,
      list.map(({ x, out }, i) => ({ x, count: x.size, workspace: address + (offsets[i] as number), out })),
    ),
  );
});

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
