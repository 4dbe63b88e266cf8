/** Rows of experts on the reference. */
import { WIDE } from "../../../formats/contract.gen.js";
import type { WideDType } from "../../../tensor/shape.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import { type Lowering, wideOf } from "../lowering.js";

const NULL = 0;

/** Indices are i32. Negative ones are larger than this as u32. */
const MAX_INDICES = 2 ** 31;

/** Returns the address and the dtype of weights, or a null address. */
function weightsOf(weights: Tensor<WideDType> | undefined) {
  return { weights: weights?.address ?? NULL, weightsType: weights ? wideOf(weights) : WIDE.f32 };
}

export const rowIdMap: Lowering<"rowIdMap"> = {
  run({ pool, withTemporary }, { routingMap, indices, align, rows, sources, tokensPerExpert }) {
    const experts = tokensPerExpert.size;
    withTemporary(8 * experts, (next) => {
      pool.call("rowIdMap", {
        routingMap: routingMap.address,
        count: routingMap.size,
        width: asMatrix(routingMap.shape)[1],
        indices,
        experts,
        align,
        rows: rows.address,
        sources: sources.address,
        total: sources.size,
        tokensPerExpert: tokensPerExpert.address,
        next,
      });
    });
  },
};

export const takeRows: Lowering<"takeRows"> = {
  run({ pool }, { x, sources, period, weights, out }) {
    const [rows, columns] = asMatrix(x.shape);
    pool.run(
      "takeRows",
      { total: sources.size, weight: columns },
      {
        x: x.address,
        xType: wideOf(x),
        limit: Math.min(rows * period, MAX_INDICES),
        sources: sources.address,
        period,
        ...weightsOf(weights),
        out: out.address,
        outType: wideOf(out),
        columns,
      },
    );
  },
};
