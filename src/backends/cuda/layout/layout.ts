/** Transposes and scale layouts on a GPU. */
import { blockFormat } from "../../../formats/block.js";
import { asMatrix, storageBits } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { placement } from "./placement.js";

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
  run({ addon, device }, { spec, direction, rows, columns, x, from, out, to }) {
    const copy = { spec, direction, size: [rows, columns] } as const;
    const wide = blockFormat(spec.quantizer).scale === "f32";
    addon.relayout(device, {
      wide,
      from: { scales: x.address, placement: placement({ layout: from, ...copy }) },
      to: { scales: out.address, placement: placement({ layout: to, ...copy }) },
    });
  },
};
