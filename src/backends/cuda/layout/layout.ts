/** Transposes and conversions of scale layouts on a GPU. */
import { asMatrix, storageBits } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { SCALES, SIZE } from "../shared-arguments.js";

export const LAYOUT_CALLS = {
  transpose: { x: "pointer", ...SIZE, bits: "count", out: "pointer" },
  relayout: { wide: "flag", from: SCALES, to: SCALES },
  swapAxes: {
    x: "pointer",
    outer: "count",
    p: "count",
    middle: "count",
    q: "count",
    unit: "count",
    out: "pointer",
  },
} as const satisfies Declarations;

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
