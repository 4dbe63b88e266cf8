/** The norm of gradients on a GPU. */
import { type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { X } from "../shared-arguments.js";

export const GRAD_NORM_CALLS = {
  squareSum: { ...X, count: "count", out: "pointer", workspace: "pointer" },
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
