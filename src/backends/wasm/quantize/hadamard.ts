/** The random Hadamard transform on the reference. */
import { Scope } from "../../../tensor/scope.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { withRows } from "./quantize.js";

export const hadamard: Lowering<"hadamard"> = {
  run(context, { x, signs, out }) {
    using _scope = new Scope();
    const [columns, rows] = asMatrix(out.shape);
    const { address } = withRows(context, x, rows);
    const job = { total: columns, grain: 16, weight: rows };
    const transposedSource = { rows: columns, columns: rows, transposed: true };
    context.pool.run("hadamard", job, {
      src: address,
      dst: out.address,
      ...transposedSource,
      signMask: signs,
    });
  },
};
