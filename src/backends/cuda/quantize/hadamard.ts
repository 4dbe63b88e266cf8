/** The random Hadamard transform on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

export const HADAMARD_CALLS = {
  hadamard: { x: "pointer", out: "pointer", ...SIZE, signs: "word" },
} as const satisfies Declarations;

export const hadamard: Lowering<"hadamard"> = {
  run({ addon, device }, { x, signs, out }) {
    const [rows, columns] = asMatrix(x.shape);
    addon.hadamard(device, { x: x.address, out: out.address, rows, columns, signs });
  },
};
