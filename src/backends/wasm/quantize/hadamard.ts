/** The random Hadamard transform on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";

export const hadamard: Lowering<"hadamard"> = {
  run({ pool }, { x, signs, out }) {
    const [rows, columns] = asMatrix(x.shape);
    const job = { total: columns, grain: 16, weight: rows };
    const turned = { rows: columns, columns: rows, transposed: 1 };
    pool.run("hadamard", job, { src: x.address, dst: out.address, ...turned, signMask: signs });
  },
};
