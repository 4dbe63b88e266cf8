/** Transposes and conversions of scale layouts on a GPU. */
import { asMatrix, storageBits } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { bounded, type Declarations, reads, writes } from "../native-arguments.js";
import { SIZE, scales } from "../shared-arguments.js";

export const LAYOUT_CALLS = {
  transpose: {
    x: reads.bits("batch * packedElements(rows, columns, bits)", "[batch, rows, columns]", "bits"),
    out: writes.bits("batch * packedElements(rows, columns, bits)", "[batch, columns, rows]", "bits"),
    /** The bits of an element: 4, 8, 16 or 32. Elements of 4 bits are packed two per byte; rows and columns must then be even. */
    bits: bounded({ to: 32, type: "int32_t" }),
    ...SIZE,
    batch: "count",
  },
  /** Copies scales of `unit` bytes, 1 or 4, from one layout to another. Padding is set to zero. */
  relayout: {
    from: scales("unit"),
    to: scales("unit"),
    unit: bounded({ to: 4, type: "int32_t" }),
    units: { condition: "unit == 1 || unit == 4", message: "scales have neither 1 nor 4 bytes" },
    sizes: {
      condition: "from.lines == to.lines && from.blocks == to.blocks",
      message: "the two layouts have different numbers of lines or blocks",
    },
  },
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
    addon.relayout(device, {
      from: { data: x, placement: from.placement },
      to: { data: out, placement: to.placement },
      unit: from.scaleType === "f32" ? 4 : 1,
    });
  },
};
