/** Where the codes and scales of a quantized matrix lie: computed once, when a copy is made, which carries it. */
import { ArgumentError, ShapeError } from "../errors.js";
import {
  type BlockFormat,
  blockFormat,
  isGemmReady,
  isTensorWide,
  type Placement,
  tileSize,
} from "../formats/block.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "./quantized.js";
import { byteLength, type DType, roundUp, type Shape } from "./shape.js";

/** Where the scales of a copy lie, as kernels read it (kernels/layout/placement.h). */
export interface ScalePlacement {
  /** Of all scales, padding included. */
  readonly bytes: number;
  /** Rows of scales along K, before padding: rows of the matrix rowwise, its columns columnwise, or tiles of them. */
  readonly lines: number;
  /** Scales of a line, before padding. */
  readonly blocks: number;
  /** Elements from the scale of a line to that of the next, where they are not swizzled. */
  readonly lineStride: number;
  /** Elements from the scale of a block of a line to that of the next, where they are not swizzled. */
  readonly blockStride: number;
  /** Whether they lie in tiles as GEMMs of block-scaled formats read them (numerics.md §4.6). */
  readonly swizzled: boolean;
}

/** Where the codes and scales of one copy of a quantized [rows, columns] matrix lie. */
export interface CopyGeometry {
  /** The copy scaled along K, or that scaled along M. */
  readonly direction: Direction;
  /** How scales lie. */
  readonly layout: ScaleLayout;
  /** The type of the codes. */
  readonly dataType: DType;
  /** The shape of the codes, frozen. */
  readonly dataShape: Shape;
  /** The type of the scales. */
  readonly scaleType: DType;
  /** The shape of the scales as they lie, padding included, frozen. */
  readonly scaleShape: Shape;
  /** Whether codes lie as the matrix does, or as its transpose. */
  readonly data: Placement;
  /** Whether scales lie as the matrix does, or as its transpose. */
  readonly scale: Placement;
  /** Rows and columns of the scale matrix before padding, as placed. Both 1 for per-tensor scaling. */
  readonly logicalScale: readonly [rows: number, columns: number];
  /** Whether that is [blocks, lines]: a columnwise copy's in the input's place. */
  readonly blocksFirst: boolean;
  /** Whether padding lays it down transposed: GEMM_READY (numerics.md §3.3). */
  readonly transposesScale: boolean;
  /** Where scales lie, as kernels read it. */
  readonly placement: ScalePlacement;
}

/** The geometry of one copy. Throws `ArgumentError` for a scale layout the format does not have. */
export function copyGeometry(
  spec: QuantizeSpec,
  size: readonly [rows: number, columns: number],
  direction: Direction,
  layout: ScaleLayout,
): CopyGeometry {
  const [rows, columns] = size;
  const format = blockFormat(spec.quantizer);
  const { data, scale } = direction === "rowwise" || spec.compact ? IN_PLACE : format.columnwise;
  const blocksFirst = direction === "columnwise" && scale === "inPlace";
  const logicalScale = logicalScaleShape(spec, format, size, { direction, blocksFirst });
  const transposesScale = layout === "padded" && isGemmReady(spec);
  const scaleShape = isTensorWide(spec.tile)
    ? perTensorShape(spec, layout)
    : layoutShape(spec, format, logicalScale, { blocksFirst, layout, transposesScale });
  const pitch = scaleShape[1] ?? 1;
  const isAcross = blocksFirst !== transposesScale;
  return {
    direction,
    layout,
    dataType: spec.format,
    // frozen, they are the shapes of tensors as they are
    dataShape: Object.freeze(data === "transposed" ? [columns, rows] : [rows, columns]),
    scaleType: format.scale,
    scaleShape: Object.freeze(scaleShape),
    data,
    scale,
    logicalScale,
    blocksFirst,
    transposesScale,
    placement: {
      bytes: byteLength(format.scale, scaleShape),
      lines: blocksFirst ? logicalScale[1] : logicalScale[0],
      blocks: blocksFirst ? logicalScale[0] : logicalScale[1],
      lineStride: isAcross ? 1 : pitch,
      blockStride: isAcross ? pitch : 1,
      swizzled: layout === "swizzled",
    },
  };
}

const IN_PLACE = { data: "inPlace", scale: "inPlace" } as const;

function logicalScaleShape(
  spec: QuantizeSpec,
  format: BlockFormat,
  [rows, columns]: readonly [number, number],
  { direction, blocksFirst }: Pick<CopyGeometry, "blocksFirst"> & { readonly direction: Direction },
): readonly [number, number] {
  if (isTensorWide(spec.tile)) return [1, 1];
  const [tileRows, block] = tileSize(spec.tile);
  const across = format.replicates ? 1 : tileRows;
  const lines = direction === "rowwise" ? rows : columns;
  const length = direction === "rowwise" ? columns : rows;
  const shape = [Math.ceil(lines / across), Math.ceil(length / block)] as const;
  return blocksFirst ? [shape[1], shape[0]] : shape;
}

function perTensorShape(spec: QuantizeSpec, layout: ScaleLayout): Shape {
  if (layout === "swizzled") throw noSwizzle(spec);
  return [1];
}

function noSwizzle(spec: QuantizeSpec): ArgumentError {
  return new ArgumentError(
    `${spec.quantizer} scales have no swizzled layout; only MX and NVFP4 scales do; use logical or padded`,
  );
}

/** numerics.md §3.2, §3.3, §4.2, §5.3; a swizzled buffer has the shape of the padded one. */
function layoutShape(
  spec: QuantizeSpec,
  { padding }: BlockFormat,
  [rows, columns]: readonly [number, number],
  {
    blocksFirst,
    layout,
    transposesScale,
  }: Pick<CopyGeometry, "blocksFirst" | "transposesScale"> & { readonly layout: ScaleLayout },
): Shape {
  if (layout === "swizzled" && padding !== "tiles") throw noSwizzle(spec);
  if (layout === "logical" || spec.compact) return [rows, columns];
  if (padding === "pitch") return transposesScale ? [columns, roundUp(rows, 4)] : [rows, roundUp(columns, 4)];
  return blocksFirst ? [roundUp(rows, 4), roundUp(columns, 128)] : [roundUp(rows, 128), roundUp(columns, 4)];
}

/** Throws `ShapeError` where the format cannot take a [rows, columns] matrix. */
export function requireQuantizable(op: string, spec: QuantizeSpec, rows: number, columns: number): void {
  const { multiple } = blockFormat(spec.quantizer);
  if (rows % multiple === 0 && columns % multiple === 0) return;
  const [, block] = tileSize(spec.tile);
  for (const [name, size] of [
    ["last dimension", columns],
    ["product of the leading dimensions", rows],
  ] as const) {
    if (size % multiple === 0) continue;
    throw new ShapeError(
      `${op}: ${name} ${size} is not a multiple of the block width ${block}, as ${spec.quantizer} needs; pad to ${roundUp(size, multiple)}`,
    );
  }
}
