/** Addition of tensors on a GPU. */
import { type Lowering, wideOf } from "../lowering.js";

export const add: Lowering<"add"> = {
  run({ addon, device }, { x, y, out }) {
    addon.add(device, {
      x: x.address,
      xType: wideOf(x),
      y: y.address,
      yType: wideOf(y),
      out: out.address,
      outType: wideOf(out),
      count: out.size,
    });
  },
};
