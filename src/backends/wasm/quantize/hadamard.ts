/** The random Hadamard transform on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";

export const hadamard: Lowering<"hadamard"> = {
  run({ pool }, { x, signs, out }) {
    const [rows, columns] = asMatrix(x.shape);
    const head = [x.address, out.address, columns, rows, 1, signs];
    pool.run("hadamard", { total: columns, grain: 16, weight: rows }, (scratch) => [...head, scratch]);
  },
};
