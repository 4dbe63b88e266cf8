/** Addition of tensors on a GPU. */
import { type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { OUT, X } from "../shared-arguments.js";

export const ADD_CALLS = {
  add: { ...X, y: "pointer", yType: "wide", ...OUT, count: "count" },
} as const satisfies Declarations;

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
