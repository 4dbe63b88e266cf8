/** The largest elements of rows on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { bounded, type Declarations, reads, scratch, writes } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

export const TOPK_CALLS = {
  /** The indices of the k largest elements of each row. Only elements of the best `groupTopk` groups are eligible. */
  topk: {
    ...SIZE,
    k: "count",
    groups: bounded({ from: 1 }),
    groupTopk: bounded({ from: 1 }),
    // k and groupTopk are the numbers of steps of the kernel, so they are bounded
    chosen: {
      condition: "k <= columns && groupTopk <= groups && columns % groups == 0",
      message: "k is above columns, groupTopk is above groups, or columns is no multiple of groups",
    },
    x: reads.wide("rows * columns"),
    indices: writes.i32("rows * k"),
    routingMap: writes.i32("rows * columns"),
    mask: writes.f32("rows * columns"),
    workspace: scratch.f32("rows * groups", "The score of each group."),
  },
} as const satisfies Declarations;

export const topk: Lowering<"topk"> = {
  run({ addon, device, withTemporary }, { x, groups, groupTopk, indices, routingMap, mask }) {
    const [rows, columns] = asMatrix(x.shape);
    const k = asMatrix(indices.shape)[1];
    withTemporary(4 * rows * groups, (workspace) =>
      addon.topk(device, { rows, columns, k, groups, groupTopk, x, indices, routingMap, mask, workspace }),
    );
  },
};
