/** The update of delayed scaling on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";

export const updateScales: Lowering<"updateScales"> = {
  run({ pool }, { amaxHistory, scale, scaledMax, mostRecent }) {
    const [length, slots] = asMatrix(amaxHistory.shape);
    const tensors = { history: amaxHistory.address, scale: scale.address };
    pool.run(
      "updateScales",
      { total: slots, weight: length },
      { length, slots, scaledMax, mostRecent, ...tensors },
    );
  },
};
