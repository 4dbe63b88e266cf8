/** The update of delayed scaling on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";

export const updateScales: Lowering<"updateScales"> = {
  run({ pool }, { amaxHistory, scale, scaledMax, mostRecent }) {
    const [length, slots] = asMatrix(amaxHistory.shape);
    const head = [amaxHistory.address, scale.address, length, slots, scaledMax, Number(mostRecent)];
    pool.run("updateScales", { total: slots, weight: length }, () => head);
  },
};
