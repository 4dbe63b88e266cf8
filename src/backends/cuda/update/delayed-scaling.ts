/** The update of delayed scaling on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";

export const DELAYED_SCALING_CALLS = {
  updateScales: {
    amaxHistory: "pointer",
    scale: "pointer",
    length: "count",
    count: "count",
    scaledMax: "float",
    mostRecent: "flag",
  },
} as const satisfies Declarations;

export const updateScales: Lowering<"updateScales"> = {
  run({ addon, device }, { amaxHistory, scale, scaledMax, mostRecent }) {
    const [length, count] = asMatrix(amaxHistory.shape);
    const tensors = { amaxHistory: amaxHistory.address, scale: scale.address };
    addon.updateScales(device, { length, count, scaledMax, mostRecent, ...tensors });
  },
};
