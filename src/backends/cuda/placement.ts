/** Where the scales of a copy lie, as kernels read it (kernels/placement.h). */
import { BLOCK_FORMATS, type BlockFormat } from "../../formats/block.js";
import { copyGeometry } from "../../tensor/geometry.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../../tensor/quantized.js";
import { asMatrix, byteLength } from "../../tensor/shape.js";
import type { NativeArgs } from "../addon.js";

/** The scales of one copy of a [rows, columns] matrix. */
export interface ScalesOf {
  readonly spec: QuantizeSpec;
  readonly size: readonly [rows: number, columns: number];
  readonly direction: Direction;
  readonly layout: ScaleLayout;
}

/** The arguments under `prefix` that native/placement.h reads. */
export function placement(
  prefix: string,
  { spec, size, direction, layout }: ScalesOf,
  address: number,
): NativeArgs {
  const { scaleType, scaleShape, scale, logicalScale } = copyGeometry(spec, size, direction, layout);
  const format: BlockFormat = BLOCK_FORMATS[spec.quantizer];
  // a columnwise copy's scales in the input's place are [blocks, lines]
  const blocksFirst = direction === "columnwise" && scale === "inPlace";
  const [lines, blocks] = blocksFirst ? [logicalScale[1], logicalScale[0]] : logicalScale;
  // GEMM_READY lays the logical scale matrix down transposed (numerics.md §3.3)
  const ready = format.scale === "f32" && spec.tile === "1x128" && layout === "padded" && !spec.compact;
  const pitch = asMatrix(scaleShape)[1];
  const across = blocksFirst !== ready;
  return {
    [`${prefix}Scales`]: address,
    [`${prefix}ScaleBytes`]: byteLength(scaleType, scaleShape),
    [`${prefix}Lines`]: lines,
    [`${prefix}Blocks`]: blocks,
    [`${prefix}LineStride`]: across ? 1 : pitch,
    [`${prefix}BlockStride`]: across ? pitch : 1,
    [`${prefix}Swizzled`]: layout === "swizzled",
  };
}
