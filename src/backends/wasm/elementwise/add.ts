/** Sums of tensors on the reference. */
import { type Lowering, operand } from "../lowering.js";

export const add: Lowering<"add"> = {
  run({ pool }, { x, y, out }) {
    const head = [...operand(x), ...operand(y), ...operand(out)];
    pool.run("add", { total: out.size, grain: 32 }, (scratch) => [...head, scratch]);
  },
};
