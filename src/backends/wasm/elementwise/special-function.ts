/** The special-function unit on the reference. */
import { SPECIAL_FUNCTIONS } from "../../../formats/special-functions.js";
import { type Lowering, sourceOf, targetOf } from "../lowering.js";

export const specialFunction: Lowering<"specialFunction"> = {
  run({ pool }, { x, function: name, y, out }) {
    const job = { total: x.size, grain: 32, weight: 40 };
    const { kind } = SPECIAL_FUNCTIONS[name];
    pool.run("specialFunctions", job, { kind, second: y?.address ?? 0, ...sourceOf(x), ...targetOf(out) });
  },
};
