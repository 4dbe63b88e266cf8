/** Addition of tensors on a GPU. */
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";

export const ADD_CALLS = {
  add: {
    x: reads.wide("count"),
    y: reads.wide("count"),
    out: writes.wide("count", "May be x or y."),
    count: "count",
  },
} as const satisfies Declarations;

export const add: Lowering<"add"> = {
  run({ addon, device }, { x, y, out }) {
    addon.add(device, { x, y, out, count: out.size });
  },
};
