/** The norm of gradients on the reference. */
import { WIDE } from "../../../formats/contract.gen.js";
import { type Lowering, wideOf } from "../lowering.js";

/** The number of elements in one partial sum of squares. */
const PIECE = 4096;

export const squareSum: Lowering<"squareSum"> = {
  run({ pool, withTemporary }, { x, out }) {
    const pieces = Math.ceil(x.size / PIECE);
    withTemporary(4 * pieces, (sums) => {
      const given = { x: x.address, type: wideOf(x), count: x.size };
      pool.run("squareSums", { total: pieces, weight: PIECE }, { sums, ...given });
      const summed = { src: sums, srcType: WIDE.f32, columns: pieces };
      pool.run("rowSum", { total: 1 }, { dst: out.address, ...summed });
    });
  },
};

export const clipFactor: Lowering<"clipFactor"> = {
  run({ pool }, { sums, maxNorm, norm, factor }) {
    const tensors = { sums: sums.address, norm: norm.address, factor: factor.address };
    pool.run("clipFactor", { total: 1 }, { count: sums.size, maxNorm, ...tensors });
  },
};
