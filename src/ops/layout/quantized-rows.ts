/** Rows of quantized tensors: slices of their codes and scales, without quantizing again. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { isLineWide, isTensorWide, scaleSpan, tileSize } from "../../formats/block.js";
import { integer, isArray, ownList } from "../../options.js";
import { type CopyGeometry, copyGeometry } from "../../tensor/geometry.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizedCopy,
  type QuantizedTensor,
  type QuantizeSpec,
  requireQuantized,
  trustedQuantized,
} from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, elementCount, storageBits, withSize } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { rangeOf, slice } from "./copy-slice.js";
import { relayout, transpose } from "./layout.js";

/** Rows [start, end) of a matrix. */
interface Rows {
  readonly start: number;
  readonly end: number;
}

/**
 * Returns the slices `start` to `end` - 1 of the first dimension of `t`, as `t[start:end]` of PyTorch, in new memory. Codes and
 * scales are copied, so the values of the slice are rows of the values of `t`. It has the same copies as `t`. Negative values of
 * `start` and `end` count from the end. The default of `end` is the size of the dimension. Scales and amaxes per tensor and per
 * column are copied from the whole `t`; all other scales are bitwise equal to the scales of a quantized slice.
 *
 * @throws `DTypeError` for an argument that is not a quantized tensor, `ShapeError` for one of fewer than two dimensions,
 * `ArgumentError` for a range that is not within the dimension, or that begins or ends inside a block of rows that share a scale
 * in one of the copies, `DisposedError` for a disposed tensor.
 */
export function sliceRows(t: QuantizedTensor, start: number, end?: number | undefined): QuantizedTensor {
  requireRows("sliceRows", t);
  const range = rangeOf("sliceRows", "t", t.shape, 0, start, end);
  requireWholeBlocks("sliceRows", t, [range.start, range.end]);
  return rowsOf(t, range.start, range.end);
}

/**
 * Splits `t` along its first dimension, as `split` of PyTorch does: into parts of `rows` slices, of which the last may be
 * smaller, or into one part for each number of a list, whose sum is the size of the dimension. Each part is what `sliceRows`
 * returns. A tensor without slices has one part if `rows` is a number.
 *
 * @throws `DTypeError` for an argument that is not a quantized tensor, `ShapeError` for one of fewer than two dimensions,
 * `ArgumentError` for a number below 1, more than 4096 parts, a list with another sum, or a part that begins or ends inside a
 * block of rows that share a scale in one of the copies, `DisposedError` for a disposed tensor.
 */
export function splitRows(t: QuantizedTensor, rows: number | readonly number[]): QuantizedTensor[] {
  requireRows("splitRows", t);
  const ends = isArray(rows) ? endsOfList(t, rows) : endsOfParts(t, rows);
  requireWholeBlocks("splitRows", t, ends);
  using scope = new Scope();
  // if a part fails, the parts before it are disposed of
  const parts = ends.map((end, i) => rowsOf(t, ends[i - 1] ?? 0, end));
  return parts.map((part) => scope.keep(part));
}

/** Throws unless `t` is a quantized tensor with a dimension besides its last one. */
function requireRows(op: string, t: QuantizedTensor): void {
  const { shape } = requireQuantized(op, "t", t);
  if (shape.length < 2)
    throw new ShapeError(
      `${op}: t is [${shape}], which is one row; reshape it to [1, ${asMatrix(shape)[1]}]`,
    );
}

/** The maximum number of parts: an empty tensor may have more rows than there is memory or time for parts. */
const MAX_PARTS = 4096;

const atLeastOne = integer(1);
const atLeastZero = integer(0);

function endsOfParts({ shape }: QuantizedTensor, rows: unknown): readonly number[] {
  const [size = 0] = shape;
  const step = atLeastOne("splitRows", "rows", rows) as number;
  const parts = Math.max(Math.ceil(size / step), 1);
  if (parts > MAX_PARTS)
    throw new ArgumentError(
      `splitRows: rows is ${step}, which gives ${parts} parts of [${shape}]; there may be ${MAX_PARTS}; give a larger number`,
    );
  return Array.from({ length: parts }, (_, i) => Math.min((i + 1) * step, size));
}

function endsOfList({ shape }: QuantizedTensor, rows: readonly number[]): readonly number[] {
  const sizes = ownList(
    "splitRows",
    "rows",
    rows,
    (each, i) => atLeastZero("splitRows", `rows[${i}]`, each) as number,
    "a list",
    MAX_PARTS,
  );
  let sum = 0;
  const ends = sizes.map((size) => {
    sum += size;
    return sum;
  });
  if (sum === shape[0]) return ends;
  throw new ArgumentError(
    `splitRows: rows has the sum ${sum}, and the first dimension of t is ${shape[0]}; give sizes whose sum is ${shape[0]}`,
  );
}

/** Throws `ArgumentError` if a bound of the first dimension lies inside a block of rows that share a scale in a copy of `t`. */
function requireWholeBlocks(op: string, t: QuantizedTensor, bounds: readonly number[]): void {
  const inner = elementCount(t.shape.slice(1, -1));
  const [size] = asMatrix(t.shape);
  for (const direction of DIRECTIONS) {
    if (!t[direction]) continue;
    const block = blockRows(t.spec, direction);
    const bound = bounds.find((each) => (each * inner) % block !== 0 && each * inner !== size);
    if (bound === undefined) continue;
    const remedy =
      direction === "columnwise" && t.rowwise && blockRows(t.spec, "rowwise") < block
        ? "drop that copy by updateUsage({ columnwise: false })"
        : "dequantize first";
    throw new ArgumentError(
      `${op}: row ${bound * inner} of ${size} lies inside a block of the ${direction} copy, in which ${block} rows share scales; give bounds at multiples of ${block} rows, or ${remedy}`,
    );
  }
}

/** Returns the number of consecutive rows that a slice cannot divide: 1 if scales belong to rows, columns or the tensor. */
function blockRows({ tile }: QuantizeSpec, direction: Direction): number {
  if (isTensorWide(tile)) return 1;
  const [height, width] = tileSize(tile);
  if (direction === "rowwise") return height;
  return isLineWide(tile) ? 1 : width;
}

/** Returns the slices `start` to `end` - 1 of the first dimension, which consist of whole blocks. */
function rowsOf(t: QuantizedTensor, start: number, end: number): QuantizedTensor {
  using scope = new Scope();
  const { spec, dtype, scaleLayout, shape } = t;
  const inner = elementCount(shape.slice(1, -1));
  const rows = { start: start * inner, end: end * inner };
  const [rowwise, columnwise] = DIRECTIONS.map((direction) => t[direction] && rowsOfCopy(t, direction, rows));
  const sliced = withSize(shape, 0, end - start);
  const fields = { spec, dtype, scaleLayout, shape: sliced, ops: t.quantizer };
  return scope.keep(trustedQuantized({ ...fields, rowwise, columnwise }));
}

function rowsOfCopy(t: QuantizedTensor, direction: Direction, rows: Rows): QuantizedCopy {
  using scope = new Scope();
  const { spec, scaleLayout } = t;
  const [size, columns] = asMatrix(t.shape);
  const count = rows.end - rows.start;
  const { data, scaleInv, amax, geometry } = t.copy(direction);
  const sliced = copyGeometry(spec, [count, columns], direction, scaleLayout);
  const logical = [size, count].map((each) => copyGeometry(spec, [each, columns], direction, "logical"));
  const [from, to] = logical as [CopyGeometry, CopyGeometry];
  const scales = isTensorWide(spec.tile)
    ? scaleInv.clone()
    : relayout(scaleRows(relayout(scaleInv, geometry, from), spec, to, rows), to, sliced);
  const copy = {
    data: scope.keep(codeRows(data, sliced, rows)),
    scaleInv: scope.keep(scales),
    geometry: sliced,
  };
  if (!amax) return copy;
  const isOfRows = spec.rowScaled && direction === "rowwise";
  return { ...copy, amax: scope.keep(isOfRows ? amax.slice(rows.start, [count]) : amax.clone()) };
}

/** Returns the codes of the rows, placed as in `geometry`, with the zeros that fill the last block of a columnwise copy. */
function codeRows(data: Tensor, { data: placement, dataShape }: CopyGeometry, { start }: Rows): Tensor {
  if (placement === "inPlace") return data.slice(start * (dataShape[1] as number), dataShape);
  const [columns, count] = dataShape as readonly [number, number];
  if (storageBits(data.dtype) >= 8) return slice(data, 1, start, start + count);
  return transpose(transpose(data).slice(start * columns, [count, columns]));
}

/** Returns the logical scales of the rows; `to` is the geometry of the result. */
function scaleRows(scales: Tensor, spec: QuantizeSpec, to: CopyGeometry, { start }: Rows): Tensor {
  const [lines, length] = scaleSpan(spec);
  const isRowwise = to.direction === "rowwise";
  const first = Math.ceil(start / (isRowwise ? lines : length));
  const axis = isRowwise || to.blocksFirst ? 0 : 1;
  return slice(scales, axis, first, first + (to.logicalScale[axis] as number));
}
