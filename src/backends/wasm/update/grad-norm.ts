/** The norm of gradients on the reference. */
import { WIDE } from "../../../formats/contract.gen.js";
import type { SquareSumArgs } from "../../ops.js";
import { type Lowering, type LoweringContext, wideOf } from "../lowering.js";

type Pool = LoweringContext["pool"];

/** The number of elements in one partial sum of squares. */
const PIECE = 4096;

export const squareSum: Lowering<"squareSum"> = {
  run({ pool, withTemporary }, { x, out }) {
    const pieces = Math.ceil(x.size / PIECE);
    withTemporary(4 * pieces, (sums) => {
      sumEach(pool, x, sums);
      sumAll(pool, sums, pieces, out);
    });
  },
};

export const pieceSums: Lowering<"pieceSums"> = {
  run({ pool }, { x, sums }) {
    sumEach(pool, x, sums.address);
  },
};

export const sumPieces: Lowering<"sumPieces"> = {
  run({ pool }, { sums, out }) {
    sumAll(pool, sums.address, sums.size, out);
  },
};

/** Writes the sum of the squares of each piece. */
function sumEach(pool: Pool, x: SquareSumArgs["x"], sums: number): void {
  const fields = { x: x.address, type: wideOf(x), count: x.size };
  pool.run("squareSums", { total: Math.ceil(x.size / PIECE), weight: PIECE }, { sums, ...fields });
}

function sumAll(pool: Pool, sums: number, columns: number, out: SquareSumArgs["out"]): void {
  pool.run("rowSum", { total: 1 }, { dst: out.address, src: sums, srcType: WIDE.f32, columns });
}

export const clipFactor: Lowering<"clipFactor"> = {
  run({ pool }, { sums, maxNorm, norm, factor }) {
    const tensors = { sums: sums.address, norm: norm.address, factor: factor.address };
    pool.run("clipFactor", { total: 1 }, { count: sums.size, maxNorm, ...tensors });
  },
};
