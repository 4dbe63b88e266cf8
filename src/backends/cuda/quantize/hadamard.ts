/** The random Hadamard transform on a GPU. */
import { Scope } from "../../../tensor/scope.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";
import { zeroFilled } from "./zero-filled.js";

export const HADAMARD_CALLS = {
  hadamard: { x: "pointer", out: "pointer", ...SIZE, signs: "word" },
} as const satisfies Declarations;

export const hadamard: Lowering<"hadamard"> = {
  run(context, { x, signs, out }) {
    using _scope = new Scope();
    const [columns, rows] = asMatrix(out.shape);
    const { address } = zeroFilled(context, x, rows);
    context.addon.hadamard(context.device, { x: address, out: out.address, rows, columns, signs });
  },
};
