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
import type { Direction, QuantizeSpec, ScaleLayout, Usage } from "./quantized.js";
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
  /** Whether the copy holds the amax of the whole tensor, under which its scales were made (numerics.md §5.2). */
  readonly tensorAmax: boolean;
  /** Rows and columns of the scale matrix before padding, as placed. Both 1 for per-tensor scaling. */
  readonly logicalScale: readonly [rows: number, columns: number];
  /** Whether that is [blocks, lines]: a columnwise copy's in the input's place. */
  readonly blocksFirst: boolean;
  /** Whether padding lays it down transposed: GEMM_READY (numerics.md §3.3). */
  readonly transposesScale: boolean;
  /** Where scales lie, as kernels read it. */
  readonly placement: ScalePlacement;
}

/** The geometry of each copy of a quantized matrix. */
export interface CopyGeometries {
  readonly rowwise: CopyGeometry | undefined;
  readonly columnwise: CopyGeometry | undefined;
}

/**
 * The geometry of the copies that are wanted. Throws `ShapeError` where the format cannot take a matrix of that size,
 * `ArgumentError` for a scale layout that it does not have.
 */
export function geometryOf(
  op: string,
  spec: QuantizeSpec,
  size: readonly [rows: number, columns: number],
  usage: Usage,
  layout: ScaleLayout,
): CopyGeometries {
  requireQuantizable(op, spec, size[0], size[1]);
  return {
    rowwise: usage.rowwise ? copyGeometry(spec, size, "rowwise", layout) : undefined,
    columnwise: usage.columnwise ? copyGeometry(spec, size, "columnwise", layout) : undefined,
  };
}

/** The geometry of one copy. Throws `ArgumentError` for a scale layout the format does not have. */
export function copyGeometry(
  spec: QuantizeSpec,
  size: readonly [rows: number, columns: number],
  direction: Direction,
  layout: ScaleLayout,
): CopyGeometry {
  const format = blockFormat(spec.quantizer);
  if (layout === "swizzled" && format.padding !== "tiles") throw noSwizzle(spec);
  const { data, scale } = direction === "rowwise" || spec.compact ? IN_PLACE : format.columnwise;
  const isWide = isTensorWide(spec.tile);
  const blocksFirst = direction === "columnwise" && scale === "inPlace";
  const transposesScale = layout === "padded" && isGemmReady(spec);
  const [lines, blocks] = isWide ? ONE_BY_ONE : linesOf(spec, format, size, direction);
  const logicalScale = Object.freeze(blocksFirst ? ([blocks, lines] as const) : ([lines, blocks] as const));
  const isLogical = layout === "logical" || spec.compact;
  const scaleShape = isWide
    ? ONE
    : isLogical
      ? logicalScale
      : Object.freeze(paddedShape(format, logicalScale, blocksFirst, transposesScale));
  const pitch = scaleShape[1] ?? 1;
  const isAcross = blocksFirst !== transposesScale;
  return {
    direction,
    layout,
    dataType: spec.format,
    dataShape: data === "transposed" ? Object.freeze([size[1], size[0]]) : frozen(size),
    scaleType: format.scale,
    scaleShape,
    data,
    scale,
    tensorAmax: format.tensorAmax,
    logicalScale,
    blocksFirst,
    transposesScale,
    placement: {
      bytes: byteLength(format.scale, scaleShape),
      lines,
      blocks,
      lineStride: isAcross ? 1 : pitch,
      blockStride: isAcross ? pitch : 1,
      swizzled: layout === "swizzled",
    },
  };
}

const IN_PLACE = { data: "inPlace", scale: "inPlace" } as const;
const ONE: Shape = Object.freeze([1]);
const ONE_BY_ONE = Object.freeze([1, 1] as const);

/** What is frozen can be the shape of tensors as it is. */
function frozen(shape: Shape): Shape {
  return Object.isFrozen(shape) ? shape : Object.freeze([...shape]);
}

/** Rows of scales along K and scales of each. */
function linesOf(
  { tile }: QuantizeSpec,
  { replicates }: BlockFormat,
  [rows, columns]: readonly [number, number],
  direction: Direction,
): readonly [lines: number, blocks: number] {
  const [tileRows, block] = tileSize(tile);
  const across = replicates ? 1 : tileRows;
  return direction === "rowwise"
    ? [Math.ceil(rows / across), Math.ceil(columns / block)]
    : [Math.ceil(columns / across), Math.ceil(rows / block)];
}

function noSwizzle(spec: QuantizeSpec): ArgumentError {
  return new ArgumentError(
    `${spec.quantizer} scales have no swizzled layout; only MX and NVFP4 scales do; use logical or padded`,
  );
}

/** numerics.md §3.2, §3.3, §4.2, §5.3; a swizzled buffer has the shape of the padded one. */
function paddedShape(
  { padding }: BlockFormat,
  [rows, columns]: readonly [number, number],
  blocksFirst: boolean,
  transposesScale: boolean,
): Shape {
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
