/** Transposes and scale layouts on the reference. */
import { copyGeometry } from "../../../tensor/geometry.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../../../tensor/quantized.js";
import { asMatrix, byteLength, storageBits } from "../../../tensor/shape.js";
import type { Lowering, LoweringContext } from "../lowering.js";

export const transpose: Lowering<"transpose"> = {
  run(context, { x, out }) {
    const [rows, columns] = asMatrix(x.shape);
    transposeCodes(context, x.address, rows, columns, storageBits(x.dtype), out.address);
  },
};

export const swapAxes: Lowering<"swapAxes"> = {
  run(context, { x, sizes: [outer, p, middle, q, inner], out }) {
    const unit = (inner * storageBits(x.dtype)) / 8;
    if (middle === 1 && (unit === 1 || unit === 2 || unit === 4)) {
      const step = p * q * unit;
      for (let i = 0; i < outer; i++)
        transposeCodes(context, x.address + i * step, p, q, 8 * unit, out.address + i * step);
      return;
    }
    const job = { total: unit === 0 ? 0 : outer * q * middle, weight: p * Math.ceil(unit / 16) };
    context.pool.run("swapAxes", job, { src: x.address, unit, p, middle, q, dst: out.address });
  },
};

/** [rows, columns] elements of `bits` bits, 4 to 32, transposed from one address to another. */
export function transposeCodes(
  { pool }: LoweringContext,
  from: number,
  rows: number,
  columns: number,
  bits: number,
  to: number,
): void {
  const job = { total: columns, grain: 64, weight: rows };
  if (bits === 4) pool.run("transposePacked", job, { src: from, rows, columns, dst: to });
  else pool.run("transpose", job, { src: from, bytes: bits / 8, rows, columns, dst: to });
}

/** Between which layouts the scales of which copy move. */
export interface Relayout {
  readonly spec: QuantizeSpec;
  readonly direction: Direction;
  /** Rows and columns of the quantized matrix. */
  readonly size: readonly [rows: number, columns: number];
  readonly from: ScaleLayout;
  readonly to: ScaleLayout;
}

export const relayout: Lowering<"relayout"> = {
  run(context, { spec, direction, rows, columns, x, from, out, to }) {
    relayoutScales(context, { spec, direction, size: [rows, columns], from, to }, x.address, out.address);
  },
};

/** Moves scales between layouts; what is neither logical before nor after goes through logical. */
export function relayoutScales(context: LoweringContext, move: Relayout, from: number, to: number): void {
  if (move.from === "logical") fromLogical(context, move, from, to);
  else if (move.to === "logical") toLogical(context, move, from, to);
  else throughLogical(context, move, from, to);
}

function throughLogical(context: LoweringContext, move: Relayout, from: number, to: number): void {
  const { scaleType, scaleShape } = copyGeometry(move.spec, move.size, move.direction, "logical");
  context.withTemporary(byteLength(scaleType, scaleShape), (logical) => {
    toLogical(context, { ...move, to: "logical" }, from, logical);
    fromLogical(context, { ...move, from: "logical" }, logical, to);
  });
}

/** How the scale matrix of a move is read: its element size, its extent, and whether padding transposes it. */
function geometry({ spec, direction, size }: Relayout, layout: ScaleLayout) {
  const { scaleType, scaleShape, blocksFirst, transposesScale, logicalScale } = copyGeometry(
    spec,
    size,
    direction,
    layout,
  );
  const [rows, columns] = logicalScale;
  const [outRows, outColumns] = asMatrix(scaleShape);
  return {
    bytes: storageBits(scaleType) / 8,
    rows,
    columns,
    outRows,
    outColumns,
    transposes: transposesScale,
    /** In-place columnwise scales are swizzled as the transpose they are for the GEMM (numerics.md §4.6). */
    swizzlesTranspose: blocksFirst,
  };
}

/** Of a matrix of lines `pitch` apart, or of its transpose. */
function stridesOf(transposed: boolean, pitch: number) {
  return transposed ? { rowStride: 1, columnStride: pitch } : { rowStride: pitch, columnStride: 1 };
}

function fromLogical({ pool }: LoweringContext, move: Relayout, from: number, to: number): void {
  const g = geometry(move, move.to);
  if (move.to === "swizzled") {
    swizzleScales(pool, "swizzle", g, from, to);
    return;
  }
  const [rows, columns] = g.transposes ? [g.columns, g.rows] : [g.rows, g.columns];
  const source = { src: from, bytes: g.bytes, rows, columns, ...stridesOf(g.transposes, g.columns) };
  pool.run("place", { total: g.outRows }, { dst: to, dstColumns: g.outColumns, ...source });
}

function toLogical({ pool }: LoweringContext, move: Relayout, from: number, to: number): void {
  const g = geometry(move, move.from);
  if (move.from === "swizzled") {
    swizzleScales(pool, "unswizzle", g, from, to);
    return;
  }
  const { bytes, rows, columns } = g;
  const source = { src: from, bytes, rows, columns, ...stridesOf(g.transposes, g.outColumns) };
  pool.run("place", { total: rows }, { dst: to, dstColumns: columns, ...source });
}

function swizzleScales(
  pool: LoweringContext["pool"],
  name: "swizzle" | "unswizzle",
  g: ReturnType<typeof geometry>,
  from: number,
  to: number,
): void {
  const [rows, columns] = g.swizzlesTranspose ? [g.columns, g.rows] : [g.rows, g.columns];
  const strides = stridesOf(g.swizzlesTranspose, g.columns);
  pool.run(name, { total: Math.ceil(rows / 128) }, { src: from, rows, columns, ...strides, dst: to });
}
