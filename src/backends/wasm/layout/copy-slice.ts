/** Copies of ranges of a dimension on the reference. */
import { storageBits } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";

export const copySlice: Lowering<"copySlice"> = {
  run({ pool }, { x, xLength, xFirst, out, outLength, outFirst, count, outer, inner }) {
    const unit = (inner * storageBits(x.dtype)) / 8;
    const job = { total: count * unit === 0 ? 0 : outer, weight: count * Math.ceil(unit / 16) };
    const args = { xLength, xFirst, outLength, outFirst, count, unit };
    pool.run("copySlice", job, { x: x.address, out: out.address, ...args });
  },
};
