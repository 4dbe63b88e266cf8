/** The random Hadamard transform on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";

export const hadamard: Lowering<"hadamard"> = {
  run({ addon, device }, { x, signs, out }) {
    const [rows, columns] = asMatrix(x.shape);
    addon.hadamard(device, { x: x.address, out: out.address, rows, columns, signs });
  },
};
