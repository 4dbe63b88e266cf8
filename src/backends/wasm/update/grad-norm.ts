/** The norm of gradients on the reference. */
import { WIDE } from "../../../formats/contract.gen.js";
import { type Lowering, operand } from "../lowering.js";

/** Elements whose squares are summed first. */
const PIECE = 4096;

export const squareSum: Lowering<"squareSum"> = {
  run({ pool, withTemporary }, { x, out }) {
    const pieces = Math.ceil(x.size / PIECE);
    withTemporary(4 * pieces, (sums) => {
      const head = [...operand(x), x.size, sums];
      pool.run("squareSums", { total: pieces, weight: PIECE }, (scratch) => [...head, scratch]);
      pool.run("rowSum", { total: 1 }, (scratch) => [sums, WIDE.f32, out.address, pieces, scratch]);
    });
  },
};

export const clipFactor: Lowering<"clipFactor"> = {
  run({ pool }, { sums, maxNorm, norm, factor }) {
    const head = [sums.address, sums.size, maxNorm, norm.address, factor.address];
    pool.run("clipFactor", { total: 1 }, (scratch) => [...head, scratch]);
  },
};
