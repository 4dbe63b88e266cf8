/** Dropout on the reference. */
import { dropoutOf } from "../../ops/attention-sizes.js";
import { drawsOf, type Lowering, wideOf } from "../lowering.js";

export const dropout: Lowering<"dropout"> = {
  run({ pool }, { x, probability, random, out }) {
    // threads share the work in multiples of the elements that share a draw
    const job = { total: out.size, grain: 32, weight: 8 };
    const tensors = { xType: wideOf(x), out: out.address, outType: wideOf(out) };
    pool.run("dropout", job, {
      x: x.address,
      ...tensors,
      ...dropoutOf({ probability }),
      draws: drawsOf(random),
    });
  },
};
