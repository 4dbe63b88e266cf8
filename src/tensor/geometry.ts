/**
 * The memory layout of the codes and scales of a quantized matrix. It is computed once, when a copy (rowwise or columnwise) is
 * created, and stored with the copy.
 */
import { ArgumentError, ShapeError } from "../errors.js";
import {
  type BlockFormat,
  blockedRows,
  blockFormat,
  blocksIn,
  isGemmReady,
  isTensorWide,
  type Placement,
  scaleSpan,
  tileSize,
} from "../formats/block.js";
import type { Direction, QuantizeSpec, ScaleLayout, Usage } from "./quantized.js";
import { byteLength, type DType, roundUp, type Shape } from "./shape.js";

/**
 * The memory layout of a copy's scales, as kernels read it (kernels/layout/placement.h). A line is a row of the matrix in the
 * rowwise copy and a column in the columnwise copy, or a group of them that share scales. A block is a range of a line that
 * shares one scale.
 */
export interface ScalePlacement {
  /** The size of all scales in bytes, including padding. */
  readonly bytes: number;
  /** The number of lines, before padding. */
  readonly lines: number;
  /** The number of blocks per line, before padding. */
  readonly blocks: number;
  /** The distance between the scales of consecutive lines, in elements. Not used if the scales are swizzled. */
  readonly lineStride: number;
  /** The distance between the scales of consecutive blocks of a line, in elements. Not used if the scales are swizzled. */
  readonly blockStride: number;
  /** Whether the scales are stored in the tiles that GEMMs of block-scaled formats read (numerics.md §4.6). */
  readonly swizzled: boolean;
}

/** The memory layout of the codes and scales of one copy of a quantized [rows, columns] matrix. */
export interface CopyGeometry {
  /** The copy that is described: rowwise (blocks along K) or columnwise (blocks along M). */
  readonly direction: Direction;
  /** The layout of the scales. */
  readonly layout: ScaleLayout;
  /** The dtype of the codes. */
  readonly dataType: DType;
  /** The shape of the codes. Frozen. */
  readonly dataShape: Shape;
  /** The dtype of the scales. */
  readonly scaleType: DType;
  /** The shape of the stored scales, including padding. Frozen. */
  readonly scaleShape: Shape;
  /** Whether the codes are stored in the order of the input or transposed. */
  readonly data: Placement;
  /** Whether the scales are stored in the order of the input or transposed. */
  readonly scale: Placement;
  /** Whether the copy stores the amax of the whole tensor, on which its scales depend (numerics.md §5.2). */
  readonly tensorAmax: boolean;
  /**
   * The shape of the stored amax: [1], or with `rowScaled` one for each line of the codes (numerics.md §5.9). Frozen. Undefined
   * if the copy stores none.
   */
  readonly amaxShape: Shape | undefined;
  /** The rows and columns of the stored scale matrix before padding. Both are 1 for per-tensor scaling. */
  readonly logicalScale: readonly [rows: number, columns: number];
  /**
   * Whether the rows of `logicalScale` are blocks and its columns are lines. This holds for a columnwise copy whose scales are
   * not transposed.
   */
  readonly blocksFirst: boolean;
  /** Whether the padded scale matrix is stored transposed: data layout GEMM_READY (numerics.md §3.3). */
  readonly transposesScale: boolean;
  /** The memory layout of the scales as kernels read it. */
  readonly placement: ScalePlacement;
}

/** The geometry of each copy of a quantized matrix. */
export interface CopyGeometries {
  readonly rowwise: CopyGeometry | undefined;
  readonly columnwise: CopyGeometry | undefined;
}

/**
 * Returns the geometry of the requested copies. Throws `ShapeError` for a matrix of a size that the format does not allow,
 * `ArgumentError` for a scale layout that it does not have.
 */
export function geometryOf(
  op: string,
  spec: QuantizeSpec,
  size: readonly [rows: number, columns: number],
  usage: Usage,
  layout: ScaleLayout,
): CopyGeometries {
  requireQuantizable(op, spec, size[1]);
  return {
    rowwise: usage.rowwise ? copyGeometry(spec, size, "rowwise", layout) : undefined,
    columnwise: usage.columnwise ? copyGeometry(spec, size, "columnwise", layout) : undefined,
  };
}

/**
 * Computes the geometry of one copy of a matrix of `matrix` rows and columns. Throws `ArgumentError` for a scale layout that the
 * format does not have.
 */
export function copyGeometry(
  spec: QuantizeSpec,
  matrix: readonly [rows: number, columns: number],
  direction: Direction,
  layout: ScaleLayout,
): CopyGeometry {
  const size = direction === "rowwise" ? matrix : wholeBlocks(spec, matrix);
  const format = blockFormat(spec.quantizer);
  if (layout === "swizzled" && format.padding !== "tiles") throw noSwizzle(spec);
  const { data, scale } = direction === "rowwise" || spec.compact ? IN_PLACE : format.columnwise;
  const isWide = isTensorWide(spec.tile);
  const blocksFirst = direction === "columnwise" && scale === "inPlace";
  const transposesScale = layout === "padded" && isGemmReady(spec);
  const [lines, blocks] = scaleLines(spec, size, direction);
  const logicalScale = Object.freeze(blocksFirst ? ([blocks, lines] as const) : ([lines, blocks] as const));
  const isLogical = layout === "logical" || spec.compact;
  const scaleShape = isWide
    ? ONE
    : isLogical
      ? logicalScale
      : Object.freeze(paddedShape(format, logicalScale, blocksFirst, transposesScale));
  const pitch = scaleShape[1] ?? 1;
  const isAcross = blocksFirst !== transposesScale;
  return Object.freeze({
    direction,
    layout,
    dataType: spec.format,
    dataShape: data === "transposed" ? Object.freeze([size[1], size[0]]) : frozen(size),
    scaleType: format.scale,
    scaleShape,
    data,
    scale,
    tensorAmax: format.tensorAmax,
    amaxShape: format.tensorAmax ? amaxShape(spec, size, data) : undefined,
    logicalScale,
    blocksFirst,
    transposesScale,
    placement: Object.freeze({
      bytes: byteLength(format.scale, scaleShape),
      lines,
      blocks,
      lineStride: isAcross ? 1 : pitch,
      blockStride: isAcross ? pitch : 1,
      swizzled: layout === "swizzled",
    }),
  });
}

const IN_PLACE = { data: "inPlace", scale: "inPlace" } as const;
const ONE: Shape = Object.freeze([1]);
const ONE_BY_ONE = Object.freeze([1, 1] as const);

/** Returns the shape of the amax of a copy that is stored with these rows and columns, transposed or in their order. */
function amaxShape(
  { rowScaled }: QuantizeSpec,
  [rows, columns]: readonly [rows: number, columns: number],
  data: Placement,
): Shape {
  return rowScaled ? Object.freeze([data === "transposed" ? columns : rows]) : ONE;
}

/** Returns a frozen copy of a shape, because the geometry of a copy is public. */
function frozen(shape: Shape): Shape {
  return Object.freeze([...shape]);
}

/** Returns the size of the matrix, extended by the rows that its last blocks lack. */
function wholeBlocks(
  spec: QuantizeSpec,
  matrix: readonly [rows: number, columns: number],
): readonly [rows: number, columns: number] {
  const rows = blockedRows(spec, matrix[0]);
  return rows === matrix[0] ? matrix : [rows, matrix[1]];
}

/** Returns the lines of scales that a copy has, and the blocks per line. Both are 1 for per-tensor scaling. */
export function scaleLines(
  spec: Pick<QuantizeSpec, "quantizer" | "tile">,
  [rows, columns]: readonly [number, number],
  direction: Direction,
): readonly [lines: number, blocks: number] {
  if (isTensorWide(spec.tile)) return ONE_BY_ONE;
  const [lines, length] = scaleSpan(spec);
  return direction === "rowwise"
    ? [Math.ceil(rows / lines), blocksIn(columns, length)]
    : [Math.ceil(columns / lines), blocksIn(rows, length)];
}

function noSwizzle(spec: QuantizeSpec): ArgumentError {
  return new ArgumentError(
    `${spec.quantizer} scales have no swizzled layout; only MX and NVFP4 scales do; use logical or padded`,
  );
}

/** Returns the padded shape of a scale matrix (numerics.md §3.2, §3.3, §4.2, §5.3). Swizzled scales have the same shape. */
function paddedShape(
  { padding }: BlockFormat,
  [rows, columns]: readonly [number, number],
  blocksFirst: boolean,
  transposesScale: boolean,
): Shape {
  if (padding === "none") return [rows, columns];
  if (padding === "pitch") return transposesScale ? [columns, roundUp(rows, 4)] : [rows, roundUp(columns, 4)];
  return blocksFirst ? [roundUp(rows, 4), roundUp(columns, 128)] : [roundUp(rows, 128), roundUp(columns, 4)];
}

/** Throws `ShapeError` if the format's blocks do not divide the columns of a matrix. The number of rows may be any. */
export function requireQuantizable(op: string, spec: QuantizeSpec, columns: number): void {
  const { multiple } = blockFormat(spec.quantizer);
  if (columns % multiple === 0) return;
  const [, block] = tileSize(spec.tile);
  const width = block === multiple ? `the block width ${block}` : multiple;
  throw new ShapeError(
    `${op}: last dimension ${columns} is not a multiple of ${width}, as ${spec.quantizer} needs; pad to ${roundUp(columns, multiple)}`,
  );
}
