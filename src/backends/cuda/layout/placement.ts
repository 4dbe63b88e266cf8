/** Where the scales of a copy lie, as kernels read it (kernels/layout/placement.h). */
import { type CopyGeometry, copyGeometry } from "../../../tensor/geometry.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../../../tensor/quantized.js";
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

/** What placements are named after in native-arguments.ts. */
type PlacementPrefix = Direction | "copy" | "from" | "to";

/** The arguments that follow from a geometry, which stands for one spec, size, direction and layout. */
const known = new WeakMap<CopyGeometry, { [K in PlacementPrefix]?: NativeArgs }>();

/** The arguments under `prefix` that native/layout/placement.h reads, the address of the scales aside. */
export function placement(prefix: PlacementPrefix, scales: ScalesOf): NativeArgs {
  const geometry = copyGeometry(scales.spec, scales.size, scales.direction, scales.layout);
  let placed = known.get(geometry);
  if (!placed) {
    placed = {};
    known.set(geometry, placed);
  }
  placed[prefix] ??= placedArgs(prefix, scales, geometry);
  return placed[prefix];
}

/** Codes and scales of the copies that are wanted, of a matrix of that size. */
export function copiesOf(
  { spec, scaleLayout: layout, rowwise, columnwise }: Omit<QuantizeArgs, "x">,
  size: readonly [rows: number, columns: number],
): readonly NativeArgs[] {
  const parts: NativeArgs[] = [];
  if (rowwise) {
    parts.push({ rowwise: rowwise.data.address, rowwiseScales: rowwise.scaleInv.address });
    parts.push(placement("rowwise", { spec, size, direction: "rowwise", layout }));
  }
  if (columnwise) {
    parts.push({ columnwise: columnwise.data.address, columnwiseScales: columnwise.scaleInv.address });
    parts.push(placement("columnwise", { spec, size, direction: "columnwise", layout }));
  }
  return parts;
}

function placedArgs(
  prefix: PlacementPrefix,
  { layout }: ScalesOf,
  { scaleType, scaleShape, blocksFirst, transposesScale, logicalScale }: CopyGeometry,
): NativeArgs {
  const [lines, blocks] = blocksFirst ? [logicalScale[1], logicalScale[0]] : logicalScale;
  const pitch = asMatrix(scaleShape)[1];
  const across = blocksFirst !== transposesScale;
  return {
    [`${prefix}ScaleBytes`]: byteLength(scaleType, scaleShape),
    [`${prefix}Lines`]: lines,
    [`${prefix}Blocks`]: blocks,
    [`${prefix}LineStride`]: across ? 1 : pitch,
    [`${prefix}BlockStride`]: across ? pitch : 1,
    [`${prefix}Swizzled`]: layout === "swizzled",
  };
}
