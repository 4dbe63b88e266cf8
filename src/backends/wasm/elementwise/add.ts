/** Addition of tensors on the reference. */
import { type Lowering, wideOf } from "../lowering.js";

export const add: Lowering<"add"> = {
  run({ pool }, { x, y, out }) {
    pool.run(
      "add",
      { total: out.size, grain: 32 },
      {
        x: x.address,
        xType: wideOf(x),
        y: y.address,
        yType: wideOf(y),
        out: out.address,
        outType: wideOf(out),
      },
    );
  },
};
