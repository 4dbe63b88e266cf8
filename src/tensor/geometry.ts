/** Where the codes and scales of a quantized matrix lie: shapes for every spec, direction and layout. */
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
import { type DType, roundUp, type Shape } from "./shape.js";

/** One copy of a quantized [rows, columns] matrix. */
export interface CopyGeometry {
  readonly dataType: DType;
  readonly dataShape: Shape;
  readonly scaleType: DType;
  readonly scaleShape: Shape;
  /** Whether data and scales lie as the matrix does, or as its transpose. */
  readonly data: Placement;
  readonly scale: Placement;
  /** Rows and columns of the scale matrix before padding, as placed. Both 1 for per-tensor scaling. */
  readonly logicalScale: readonly [rows: number, columns: number];
  /** Whether that is [blocks, lines]: a columnwise copy's in the input's place. */
  readonly blocksFirst: boolean;
  /** Whether padding lays it down transposed: GEMM_READY (numerics.md §3.3). */
  readonly transposesScale: boolean;
}

/** What a geometry was made of, its spec aside. */
interface KnownGeometry {
  readonly rows: number;
  readonly columns: number;
  readonly direction: Direction;
  readonly layout: ScaleLayout;
  readonly geometry: CopyGeometry;
}

/** The latest geometries of each spec: a quantizer meets the same few shapes again and again. */
const known = new WeakMap<QuantizeSpec, KnownGeometry[]>();
const MAX_KNOWN = 32;

/** The geometry of one copy. Throws `ArgumentError` for a scale layout the format does not have. */
export function copyGeometry(
  spec: QuantizeSpec,
  size: readonly [rows: number, columns: number],
  direction: Direction,
  layout: ScaleLayout,
): CopyGeometry {
  const [rows, columns] = size;
  let geometries = known.get(spec);
  if (!geometries) {
    geometries = [];
    known.set(spec, geometries);
  }
  for (let i = 0; i < geometries.length; i++) {
    const each = geometries[i] as KnownGeometry;
    const isSame = each.rows === rows && each.columns === columns && each.direction === direction;
    if (isSame && each.layout === layout) return each.geometry;
  }
  const geometry = makeGeometry(spec, size, direction, layout);
  // tensors of all callers come to have these shapes
  Object.freeze(geometry.dataShape);
  Object.freeze(geometry.scaleShape);
  if (geometries.length === MAX_KNOWN) geometries.shift();
  geometries.push({ rows, columns, direction, layout, geometry });
  return geometry;
}

function makeGeometry(
  spec: QuantizeSpec,
  [rows, columns]: readonly [number, number],
  direction: Direction,
  layout: ScaleLayout,
): CopyGeometry {
  const format = blockFormat(spec.quantizer);
  const inPlace: Placement = "inPlace";
  const { data, scale } =
    direction === "rowwise" || spec.compact ? { data: inPlace, scale: inPlace } : format.columnwise;
  const blocksFirst = direction === "columnwise" && scale === "inPlace";
  const logicalScale = logicalScaleShape(spec, format, [rows, columns], { direction, blocksFirst });
  const transposesScale = layout === "padded" && isGemmReady(spec);
  return {
    dataType: spec.format,
    dataShape: data === "transposed" ? [columns, rows] : [rows, columns],
    scaleType: format.scale,
    scaleShape: isTensorWide(spec.tile)
      ? perTensorShape(spec, layout)
      : layoutShape(spec, logicalScale, { blocksFirst, layout, transposesScale }),
    data,
    scale,
    logicalScale,
    blocksFirst,
    transposesScale,
  };
}

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
  [rows, columns]: readonly [number, number],
  {
    blocksFirst,
    layout,
    transposesScale,
  }: Pick<CopyGeometry, "blocksFirst" | "transposesScale"> & { readonly layout: ScaleLayout },
): Shape {
  const { padding } = blockFormat(spec.quantizer);
  if (layout === "swizzled" && padding !== "tiles") throw noSwizzle(spec);
  if (layout === "logical" || spec.compact) return [rows, columns];
  if (padding === "pitch") return transposesScale ? [columns, roundUp(rows, 4)] : [rows, roundUp(columns, 4)];
  return blocksFirst ? [roundUp(rows, 4), roundUp(columns, 128)] : [roundUp(rows, 128), roundUp(columns, 4)];
}

/** Throws `ShapeError` where the format cannot take a [rows, columns] matrix. */
export function requireQuantizable(op: string, spec: QuantizeSpec, rows: number, columns: number): void {
  const { multiple } = blockFormat(spec.quantizer);
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
