/** Where the scales of a copy lie, as kernels read it (kernels/layout/placement.h). */
import { type CopyGeometry, copyGeometry } from "../../../tensor/geometry.js";
import type { Direction, QuantizedCopy, QuantizeSpec, ScaleLayout } from "../../../tensor/quantized.js";
import { asMatrix, byteLength } from "../../../tensor/shape.js";
import type { QuantizeArgs } from "../../ops.js";
import type { NativeArgs } from "../addon.js";

/** The scales of one copy of a [rows, columns] matrix. */
export interface ScalesOf {
  readonly spec: QuantizeSpec;
  readonly size: readonly [rows: number, columns: number];
  readonly direction: Direction;
  readonly layout: ScaleLayout;
}

/** Where scales lie, as native/layout/placement.h reads it. */
type Placement = NativeArgs<"dequantize">["placement"];

/** What follows from a geometry, which stands for one spec, size, direction and layout. */
const known = new WeakMap<CopyGeometry, Placement>();

export function placement(scales: ScalesOf): Placement {
  const geometry = copyGeometry(scales.spec, scales.size, scales.direction, scales.layout);
  const placed = known.get(geometry) ?? placedAs(scales, geometry);
  known.set(geometry, placed);
  return placed;
}

/** Codes and scales of one copy. */
export function copyOf(
  copy: QuantizedCopy,
  scales: ScalesOf,
): NonNullable<NativeArgs<"quantizeMx">["rowwise"]> {
  return { codes: copy.data.address, scales: copy.scaleInv.address, placement: placement(scales) };
}

/** The copies that are wanted, of a matrix of that size. */
export function copiesOf(
  { spec, scaleLayout: layout, rowwise, columnwise }: Omit<QuantizeArgs, "x">,
  size: readonly [rows: number, columns: number],
): Pick<NativeArgs<"quantizeMx">, Direction> {
  return {
    rowwise: rowwise && copyOf(rowwise, { spec, size, direction: "rowwise", layout }),
    columnwise: columnwise && copyOf(columnwise, { spec, size, direction: "columnwise", layout }),
  };
}

function placedAs(
  { layout }: ScalesOf,
  { scaleType, scaleShape, blocksFirst, transposesScale, logicalScale }: CopyGeometry,
): Placement {
  const [lines, blocks] = blocksFirst ? [logicalScale[1], logicalScale[0]] : logicalScale;
  const pitch = asMatrix(scaleShape)[1];
  const across = blocksFirst !== transposesScale;
  return {
    bytes: byteLength(scaleType, scaleShape),
    lines,
    blocks,
    lineStride: across ? 1 : pitch,
    blockStride: across ? pitch : 1,
    swizzled: layout === "swizzled",
  };
}
