/** Multiplication of a tensor by a number on a GPU. */
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";

export const SCALED_CALLS = {
  scaled: {
    x: reads.wide("count"),
    factor: "float",
    out: writes.wide("count", "May be x."),
    count: "count",
  },
} as const satisfies Declarations;

export const scaled: Lowering<"scaled"> = {
  run({ addon, device }, { x, factor, out }) {
    addon.scaled(device, { x, factor, out, count: out.size });
  },
};
