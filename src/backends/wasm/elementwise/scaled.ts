/** Multiples of tensors on the reference. */
import { type Lowering, operand } from "../lowering.js";

export const scaled: Lowering<"scaled"> = {
  run({ pool }, { x, factor, out }) {
    const head = [...operand(x), ...operand(out), factor];
    pool.run("scaled", { total: out.size, grain: 32 }, (scratch) => [...head, scratch]);
  },
};
