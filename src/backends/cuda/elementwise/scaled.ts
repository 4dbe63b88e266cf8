/** Multiplication of a tensor by a number on a GPU. */
import { type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { OUT, X } from "../shared-arguments.js";

export const SCALED_CALLS = {
  scaled: { ...X, ...OUT, factor: "float", count: "count" },
} as const satisfies Declarations;

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
