/** Transposes and conversions of scale layouts on the reference. */
import type { CopyGeometry } from "../../../tensor/geometry.js";
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

/** Transposes a [rows, columns] matrix of elements of 4, 8, 16 or 32 bits from one address to another. */
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

export const relayout: Lowering<"relayout"> = {
  run(context, { x, from, out, to }) {
    if (from.layout === "logical") layOutScales(context, to, x.address, out.address);
    else if (to.layout === "logical") gatherScales(context, from, x.address, out.address);
    else
      context.withTemporary(byteLength(from.scaleType, from.logicalScale), (logical) => {
        gatherScales(context, from, x.address, logical);
        layOutScales(context, to, logical, out.address);
      });
  },
};

/** Converts scales from the logical layout to the layout of `geometry`. */
export function layOutScales(
  { pool }: LoweringContext,
  geometry: CopyGeometry,
  from: number,
  to: number,
): void {
  if (geometry.layout === "swizzled") {
    swizzleScales(pool, "swizzle", geometry, from, to);
    return;
  }
  const { scaleType, scaleShape, transposesScale, logicalScale } = geometry;
  const [rows, columns] = transposesScale ? [logicalScale[1], logicalScale[0]] : logicalScale;
  const [outRows, dstColumns] = asMatrix(scaleShape);
  const source = { src: from, bytes: storageBits(scaleType) / 8, rows, columns };
  const strides = stridesOf(transposesScale, logicalScale[1]);
  pool.run("place", { total: outRows }, { dst: to, dstColumns, ...source, ...strides });
}

/** Converts scales from the layout of `geometry` to the logical layout. */
export function gatherScales(
  { pool }: LoweringContext,
  geometry: CopyGeometry,
  from: number,
  to: number,
): void {
  if (geometry.layout === "swizzled") {
    swizzleScales(pool, "unswizzle", geometry, from, to);
    return;
  }
  const { scaleType, scaleShape, transposesScale, logicalScale } = geometry;
  const [rows, columns] = logicalScale;
  const source = { src: from, bytes: storageBits(scaleType) / 8, rows, columns };
  const strides = stridesOf(transposesScale, asMatrix(scaleShape)[1]);
  pool.run("place", { total: rows }, { dst: to, dstColumns: columns, ...source, ...strides });
}

/**
 * Converts scales to or from the swizzled layout. Scales stored as [blocks, lines] are swizzled as their transpose, which is
 * what a GEMM reads (numerics.md §4.6).
 */
function swizzleScales(
  pool: LoweringContext["pool"],
  name: "swizzle" | "unswizzle",
  { logicalScale, blocksFirst }: CopyGeometry,
  from: number,
  to: number,
): void {
  const [rows, columns] = blocksFirst ? [logicalScale[1], logicalScale[0]] : logicalScale;
  const strides = stridesOf(blocksFirst, logicalScale[1]);
  pool.run(name, { total: Math.ceil(rows / 128) }, { src: from, rows, columns, ...strides, dst: to });
}

/** Returns the strides of a row-major matrix with rows `pitch` elements apart or, if `transposed`, of its transpose. */
function stridesOf(transposed: boolean, pitch: number) {
  return transposed ? { rowStride: 1, columnStride: pitch } : { rowStride: pitch, columnStride: 1 };
}
