/** The largest elements of rows on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import { type Lowering, wideOf } from "../lowering.js";

export const topk: Lowering<"topk"> = {
  run({ pool }, { x, groups, groupTopk, indices, routingMap, mask }) {
    const [rows, columns] = asMatrix(x.shape);
    const k = asMatrix(indices.shape)[1];
    pool.run(
      "topk",
      { total: rows, weight: columns * (k + 1) * 4, scratch: Math.max(4 * groups, 16) },
      {
        x: x.address,
        xType: wideOf(x),
        columns,
        k,
        groups,
        groupTopk,
        indices: indices.address,
        routingMap: routingMap.address,
        mask: mask.address,
      },
    );
  },
};
