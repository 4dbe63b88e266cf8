/** Elements by index, and the gradient, on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

export const GATHER_CALLS = {
  /** out[r, j] = x[r, ids[r, j]], or NaN if x has no such column. */
  gather: {
    ...SIZE,
    count: "count",
    x: reads.wide("rows * columns"),
    ids: reads.i32("rows * count"),
    out: writes.wide("rows * count"),
  },
  /** out[r, c] is the sum of those grad[r, j] whose ids[r, j] is c. */
  gatherBackward: {
    ...SIZE,
    count: "count",
    grad: reads.wide("rows * count"),
    ids: reads.i32("rows * count"),
    out: writes.wide("rows * columns"),
  },
} as const satisfies Declarations;

export const gather: Lowering<"gather"> = {
  run({ addon, device }, { x, ids, out }) {
    const [rows, count] = asMatrix(out.shape);
    addon.gather(device, { rows, columns: asMatrix(x.shape)[1], count, x, ids, out });
  },
};

export const gatherBackward: Lowering<"gatherBackward"> = {
  run({ addon, device }, { grad, ids, out }) {
    const [rows, columns] = asMatrix(out.shape);
    addon.gatherBackward(device, { rows, columns, count: asMatrix(ids.shape)[1], grad, ids, out });
  },
};
