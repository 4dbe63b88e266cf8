/** Copies of ranges of a dimension on a GPU. */
import { storageBits } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, updates } from "../native-arguments.js";

export const COPY_SLICE_CALLS = {
  copySlice: {
    x: reads.bytes("outer * xLength * unit", "[outer, xLength] slices of `unit` bytes."),
    out: updates.bytes(
      "outer * outLength * unit",
      "[outer, outLength]; only the slices from outFirst on are written.",
    ),
    outer: "count",
    unit: "count",
    /** The number of slices of x. If it is 1, the only slice is copied `count` times. */
    xLength: "count",
    xFirst: "count",
    outLength: "count",
    outFirst: "count",
    count: "count",
    bounds: {
      condition:
        "xFirst <= xLength && (xLength == 1 || count <= xLength - xFirst) && outFirst <= outLength && count <= outLength - outFirst",
      message: "the slices are not within the tensors",
    },
  },
} as const satisfies Declarations;

export const copySlice: Lowering<"copySlice"> = {
  run({ addon, device }, { x, xLength, xFirst, out, outLength, outFirst, count, outer, inner }) {
    const unit = (inner * storageBits(x.dtype)) / 8;
    addon.copySlice(device, { x, out, outer, unit, xLength, xFirst, outLength, outFirst, count });
  },
};
