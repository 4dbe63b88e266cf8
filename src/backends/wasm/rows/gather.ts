/** Elements by index, and the gradient, on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import { type Lowering, wideOf } from "../lowering.js";

export const gather: Lowering<"gather"> = {
  run({ pool }, { x, ids, out }) {
    const [rows, count] = asMatrix(out.shape);
    const tensors = {
      x: x.address,
      xType: wideOf(x),
      ids: ids.address,
      out: out.address,
      outType: wideOf(out),
    };
    pool.run(
      "gather",
      { total: rows, weight: 4 * count },
      { count, ...tensors, columns: asMatrix(x.shape)[1] },
    );
  },
};

export const gatherBackward: Lowering<"gatherBackward"> = {
  run({ pool }, { grad, ids, out }) {
    const [rows, columns] = asMatrix(out.shape);
    const count = asMatrix(ids.shape)[1];
    const tensors = {
      ...{ grad: grad.address, gradType: wideOf(grad), ids: ids.address },
      ...{ out: out.address, outType: wideOf(out) },
    };
    pool.run(
      "gatherBackward",
      { total: rows, weight: columns * (count + 1) },
      { count, ...tensors, columns },
    );
  },
};
