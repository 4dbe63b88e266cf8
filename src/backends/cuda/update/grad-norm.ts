/** The norm of gradients on a GPU. */
import { type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { X } from "../shared-arguments.js";

export const GRAD_NORM_CALLS = {
  squareSum: { ...X, count: "count", out: "pointer", workspace: "pointer" },
  pieceSums: { ...X, count: "count", sums: "pointer" },
  sumPieces: { sums: "pointer", count: "count", out: "pointer" },
  clipFactor: { sums: "pointer", count: "count", maxNorm: "float", norm: "pointer", factor: "pointer" },
} as const satisfies Declarations;

/** The number of elements in one partial sum of squares. */
const PIECE = 4096;

export const squareSum: Lowering<"squareSum"> = {
  run({ addon, device, withTemporary }, { x, out }) {
    withTemporary(4 * Math.ceil(x.size / PIECE), (workspace) =>
      addon.squareSum(device, {
        x: x.address,
        xType: wideOf(x),
        count: x.size,
        out: out.address,
        workspace,
      }),
    );
  },
};

export const pieceSums: Lowering<"pieceSums"> = {
  run({ addon, device }, { x, sums }) {
    addon.pieceSums(device, { x: x.address, xType: wideOf(x), count: x.size, sums: sums.address });
  },
};

export const sumPieces: Lowering<"sumPieces"> = {
  run({ addon, device }, { sums, out }) {
    addon.sumPieces(device, { sums: sums.address, count: sums.size, out: out.address });
  },
};

export const clipFactor: Lowering<"clipFactor"> = {
  run({ addon, device }, { sums, maxNorm, norm, factor }) {
    addon.clipFactor(device, {
      sums: sums.address,
      count: sums.size,
      maxNorm,
      norm: norm.address,
      factor: factor.address,
    });
  },
};
