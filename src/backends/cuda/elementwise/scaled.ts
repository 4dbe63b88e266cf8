/** Multiplication of a tensor by a number on a GPU. */
import { type Lowering, wideOf } from "../lowering.js";

export const scaled: Lowering<"scaled"> = {
  run({ addon, device }, { x, factor, out }) {
    addon.scaled(device, {
      x: x.address,
      xType: wideOf(x),
      out: out.address,
      outType: wideOf(out),
      factor,
      count: out.size,
    });
  },
};
