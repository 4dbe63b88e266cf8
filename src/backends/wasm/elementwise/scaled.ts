/** Multiplication of a tensor by a number on the reference. */
import { type Lowering, wideOf } from "../lowering.js";

export const scaled: Lowering<"scaled"> = {
  run({ pool }, { x, factor, out }) {
    const tensors = { x: x.address, xType: wideOf(x), out: out.address, outType: wideOf(out) };
    pool.run("scaled", { total: out.size, grain: 32 }, { factor, ...tensors });
  },
};
