/** The random Hadamard transform on a GPU. */
import { Scope } from "../../../tensor/scope.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";
import { zeroFilled } from "./zero-filled.js";

export const HADAMARD_CALLS = {
  hadamard: {
    x: reads.bf16("rows * columns", "[rows, columns]; the number of rows is a multiple of 16."),
    out: writes.bf16("columns * rows"),
    ...SIZE,
    /** Bit i negates row i of each group of 16 rows. */
    signs: "word",
  },
} as const satisfies Declarations;

export const hadamard: Lowering<"hadamard"> = {
  run(context, { x, signs, out }) {
    using _scope = new Scope();
    const [columns, rows] = asMatrix(out.shape);
    context.addon.hadamard(context.device, { x: zeroFilled(context, x, rows), out, rows, columns, signs });
  },
};
