/** Transposes and conversions of scale layouts on a GPU. */
import { asMatrix, storageBits } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { bounded, type Declarations, reads, writes } from "../native-arguments.js";
import { SCALES, SIZE } from "../shared-arguments.js";

export const LAYOUT_CALLS = {
  transpose: {
    x: reads.bits("batch * packedElements(rows, columns, bits)", "[batch, rows, columns]", "bits"),
    out: writes.bits("batch * packedElements(rows, columns, bits)", "[batch, columns, rows]", "bits"),
    /** Of an element: 4, 8, 16 or 32. Elements of 4 bits are packed two per byte; rows and columns must then be even. */
    bits: bounded({ to: 32, type: "int32_t" }),
    ...SIZE,
    batch: "count",
  },
  relayout: { wide: "flag", from: SCALES, to: SCALES },
  swapAxes: {
    /** out[o, j, m, i] = x[o, i, m, j], where an element is `unit` consecutive bytes. */
    x: reads.bytes("outer * p * middle * q * unit", "[outer, p, middle, q] elements of `unit` bytes."),
    out: writes.bytes("outer * p * middle * q * unit", "[outer, q, middle, p]"),
    outer: "count",
    p: "count",
    middle: "count",
    q: "count",
    unit: "count",
  },
} as const satisfies Declarations;

export const transpose: Lowering<"transpose"> = {
  run({ addon, device }, { x, out }) {
    const [rows, columns] = asMatrix(x.shape);
    addon.transpose(device, { x, out, bits: storageBits(x.dtype), rows, columns, batch: 1 });
  },
};

export const swapAxes: Lowering<"swapAxes"> = {
  run({ addon, device }, { x, sizes: [outer, p, middle, q, inner], out }) {
    const unit = (inner * storageBits(x.dtype)) / 8;
    addon.swapAxes(device, { x, out, outer, p, middle, q, unit });
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
