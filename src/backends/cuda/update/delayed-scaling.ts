/** The update of delayed scaling on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { bounded, type Declarations, updates } from "../native-arguments.js";

export const DELAYED_SCALING_CALLS = {
  /** A scale maps its amax to `scaledMax`. The amax is the most recent one, or the largest one of the history. */
  updateScales: {
    length: bounded({ from: 1 }),
    count: "count",
    amaxHistory: updates.f32("length * count", "[length, count]: a column for each tensor."),
    scale: updates.f32("count", "A scale for each tensor."),
    scaledMax: "float",
    mostRecent: "flag",
  },
} as const satisfies Declarations;

export const updateScales: Lowering<"updateScales"> = {
  run({ addon, device }, { amaxHistory, scale, scaledMax, mostRecent }) {
    const [length, count] = asMatrix(amaxHistory.shape);
    addon.updateScales(device, { length, count, amaxHistory, scale, scaledMax, mostRecent });
  },
};
