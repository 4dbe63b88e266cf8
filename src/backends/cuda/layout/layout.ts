/** Transposes and conversions of scale layouts on a GPU. */
import { asMatrix, storageBits } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";

export const transpose: Lowering<"transpose"> = {
  run({ addon, device }, { x, out }) {
    const [rows, columns] = asMatrix(x.shape);
    addon.transpose(device, {
      x: x.address,
      rows,
      columns,
      bits: storageBits(x.dtype),
      out: out.address,
    });
  },
};

export const swapAxes: Lowering<"swapAxes"> = {
  run({ addon, device }, { x, sizes: [outer, p, middle, q, inner], out }) {
    const unit = (inner * storageBits(x.dtype)) / 8;
    addon.swapAxes(device, { x: x.address, outer, p, middle, q, unit, out: out.address });
  },
};

export const relayout: Lowering<"relayout"> = {
  run({ addon, device }, { x, from, out, to }) {
    const wide = from.scaleType === "f32";
    addon.relayout(device, {
      wide,
      from: { scales: x.address, placement: from.placement },
      to: { scales: out.address, placement: to.placement },
    });
  },
};
