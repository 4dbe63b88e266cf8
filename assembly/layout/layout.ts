// Rearrangements that change no value: transposition, padding, and the 128x4 layout of block scales that cuBLASLt reads
// ("swizzled").
import { gatherRuns } from "./runs";

/**
 * Transposes four rows of 16 bytes, which are `pitch` bytes apart. Each column of four elements becomes a row at `dst`;
 * these are `stride` bytes apart.
 */
function transposeFour<T>(src: usize, pitch: usize, dst: usize, stride: usize): void {
  const r0 = v128.load(src);
  const r1 = v128.load(src + pitch);
  const r2 = v128.load(src + 2 * pitch);
  const r3 = v128.load(src + 3 * pitch);
  if (sizeof<T>() === 4) {
    storeHalves(i32x4.shuffle(r0, r1, 0, 4, 1, 5), i32x4.shuffle(r2, r3, 0, 4, 1, 5), dst, stride);
    const upper = dst + 2 * stride;
    storeHalves(i32x4.shuffle(r0, r1, 2, 6, 3, 7), i32x4.shuffle(r2, r3, 2, 6, 3, 7), upper, stride);
  } else if (sizeof<T>() === 2) {
    const a = i16x8.shuffle(r0, r1, 0, 8, 1, 9, 2, 10, 3, 11);
    const b = i16x8.shuffle(r2, r3, 0, 8, 1, 9, 2, 10, 3, 11);
    const c = i16x8.shuffle(r0, r1, 4, 12, 5, 13, 6, 14, 7, 15);
    const d = i16x8.shuffle(r2, r3, 4, 12, 5, 13, 6, 14, 7, 15);
    storePairs(i32x4.shuffle(a, b, 0, 4, 1, 5), dst, stride);
    storePairs(i32x4.shuffle(a, b, 2, 6, 3, 7), dst + 2 * stride, stride);
    storePairs(i32x4.shuffle(c, d, 0, 4, 1, 5), dst + 4 * stride, stride);
    storePairs(i32x4.shuffle(c, d, 2, 6, 3, 7), dst + 6 * stride, stride);
  } else {
    const a = i8x16.shuffle(r0, r1, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const b = i8x16.shuffle(r2, r3, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const c = i8x16.shuffle(r0, r1, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    const d = i8x16.shuffle(r2, r3, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    storeQuads(i16x8.shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11), dst, stride);
    storeQuads(i16x8.shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15), dst + 4 * stride, stride);
    storeQuads(i16x8.shuffle(c, d, 0, 8, 1, 9, 2, 10, 3, 11), dst + 8 * stride, stride);
    storeQuads(i16x8.shuffle(c, d, 4, 12, 5, 13, 6, 14, 7, 15), dst + 12 * stride, stride);
  }
}

/** Stores the lower halves of two vectors, and then the upper halves. */
function storeHalves(a: v128, b: v128, dst: usize, stride: usize): void {
  v128.store(dst, i64x2.shuffle(a, b, 0, 2));
  v128.store(dst + stride, i64x2.shuffle(a, b, 1, 3));
}

function storePairs(columns: v128, dst: usize, stride: usize): void {
  v128.store64_lane(dst, columns, 0);
  v128.store64_lane(dst + stride, columns, 1);
}

function storeQuads(columns: v128, dst: usize, stride: usize): void {
  v128.store32_lane(dst, columns, 0);
  v128.store32_lane(dst + stride, columns, 1);
  v128.store32_lane(dst + 2 * stride, columns, 2);
  v128.store32_lane(dst + 3 * stride, columns, 3);
}

/** The arguments of `transpose` and `transposePacked`, without the size of elements. */
@unmanaged
class TransposeTask {
  src: usize;
  rows: u32;
  columns: u32;
  dst: usize;
}

/** Writes columns [first, first + count) of src as rows of dst. `count` elements are at most 64 bytes. */
function transposeStrip<T>(task: TransposeTask, first: u32, count: u32): void {
  const src = task.src;
  const rows = task.rows;
  const columns = task.columns;
  const dst = task.dst;
  const size: usize = sizeof<T>();
  const pitch = <usize>columns * size;
  const stride = <usize>rows * size;
  const step: u32 = 16 / <u32>size;
  const wholeRows = rows & ~3;
  const wholeColumns = count - (count % step);
  for (let r: u32 = 0; r < wholeRows; r += 4) {
    const from = src + <usize>r * pitch + <usize>first * size;
    const to = dst + <usize>first * stride + <usize>r * size;
    for (let c: u32 = 0; c < wholeColumns; c += step) {
      transposeFour<T>(from + <usize>c * size, pitch, to + <usize>c * stride, stride);
    }
  }
  for (let r: u32 = 0; r < rows; ++r) {
    for (let c = r < wholeRows ? wholeColumns : 0; c < count; ++c) {
      const from = src + <usize>r * pitch + <usize>(first + c) * size;
      store<T>(dst + <usize>(first + c) * stride + <usize>r * size, load<T>(from));
    }
  }
}

/**
 * Computes rows [begin, end) of dst [columns, rows], the transpose of src [rows, columns], for elements of 1, 2 or 4
 * bytes.
 */
export function transpose(task: TransposeTask, bytes: u32, begin: u32, end: u32): void {
  const width = 64 / bytes;
  for (let c = begin; c < end; c += width) {
    const count = min(width, end - c);
    if (bytes === 1) transposeStrip<u8>(task, c, count);
    else if (bytes === 2) transposeStrip<u16>(task, c, count);
    else transposeStrip<u32>(task, c, count);
  }
}

/** As `transpose`, for 4-bit codes packed two per byte. `rows`, `columns`, `begin` and `end` are even. */
export function transposePacked(task: TransposeTask, begin: u32, end: u32): void {
  const src = task.src;
  const rows = task.rows;
  const columns = task.columns;
  const dst = task.dst;
  const pitch = <usize>columns >> 1;
  const stride = <usize>rows >> 1;
  for (let r: usize = 0; r < stride; ++r) {
    const from = src + 2 * r * pitch;
    for (let c: usize = begin; c < <usize>end; c += 2) {
      const upper: u32 = load<u8>(from + (c >> 1));
      const lower: u32 = load<u8>(from + pitch + (c >> 1));
      store<u8>(dst + c * stride + r, (upper & 15) | ((lower & 15) << 4));
      store<u8>(dst + (c + 1) * stride + r, (upper >> 4) | (lower & 0xf0));
    }
  }
}

/** The arguments of `swapAxes`. */
@unmanaged
class SwapAxesTask {
  src: usize;
  unit: usize;
  p: usize;
  middle: usize;
  q: usize;
  dst: usize;
}

/**
 * Swaps two axes of an array whose elements are runs of `unit` bytes: dst[o, j, m, i] = src[o, i, m, j], where src is
 * [outer, p, middle, q] and dst [outer, q, middle, p]. Writes the lines (o, j, m) of dst from `begin` to `end`, counted
 * row-major; a line has p elements.
 */
export function swapAxes(task: SwapAxesTask, begin: usize, end: usize): void {
  const src = task.src;
  const unit = task.unit;
  const p = task.p;
  const middle = task.middle;
  const q = task.q;
  const dst = task.dst;
  for (let line = begin; line < end; ++line) {
    const m = line % middle;
    const outerIndex = line / middle;
    const o = outerIndex / q;
    const from = src + ((o * p * middle + m) * q + (outerIndex % q)) * unit;
    gatherRuns(from, middle * q * unit, dst + line * p * unit, unit, p);
  }
}

/** The arguments of `place`. */
@unmanaged
class PlaceTask {
  src: usize;
  bytes: u32;
  rows: u32;
  columns: u32;
  rowStride: u32;
  columnStride: u32;
  dst: usize;
  dstColumns: u32;
}

/**
 * Computes rows [begin, end) of dst, a matrix with `dstColumns` columns. Element (i, j) is copied from the [rows, columns] matrix
 * at `src`, or is zero outside that matrix. The rows of src are `rowStride` elements apart, its columns `columnStride`. Elements
 * have 1 or 4 bytes. Used to pad, transpose and crop scales.
 */
export function place(task: PlaceTask, begin: u32, end: u32): void {
  const src = task.src;
  const bytes = task.bytes;
  const rows = task.rows;
  const columns = task.columns;
  const rowStride = task.rowStride;
  const columnStride = task.columnStride;
  const dst = task.dst;
  const dstColumns = task.dstColumns;
  for (let i = begin; i < end; ++i) {
    for (let j: u32 = 0; j < dstColumns; ++j) {
      const inside = i < rows && j < columns;
      const from = src + (<usize>i * rowStride + <usize>j * columnStride) * bytes;
      const to = dst + (<usize>i * dstColumns + j) * bytes;
      if (bytes === 1) store<u8>(to, inside ? load<u8>(from) : 0);
      else store<u32>(to, inside ? load<u32>(from) : 0);
    }
  }
}

/**
 * The byte offset of scale (i, j) in cuBLASLt's 128x4 layout of block scales. `tiles` is the number of tiles of 4
 * columns per row.
 */
function swizzled(i: u32, j: u32, tiles: u32): usize {
  return (<usize>(i >> 7) * tiles + (j >> 2)) * 512 + ((i & 31) << 4) + (((i >> 5) & 3) << 2) + (j & 3);
}

/** The arguments of `swizzle` and `unswizzle`. */
@unmanaged
class SwizzleTask {
  src: usize;
  rows: u32;
  columns: u32;
  rowStride: u32;
  columnStride: u32;
  dst: usize;
}

/**
 * Writes tile rows [begin, end), of 128 rows each, of the swizzled layout of a [rows, columns] matrix of byte scales.
 * Element (i, j) is at src[i * rowStride + j * columnStride]. The padding to whole tiles of 128 x 4 is zero.
 */
export function swizzle(task: SwizzleTask, begin: u32, end: u32): void {
  const src = task.src;
  const rows = task.rows;
  const columns = task.columns;
  const rowStride = task.rowStride;
  const columnStride = task.columnStride;
  const dst = task.dst;
  const tiles = (columns + 3) >> 2;
  for (let i = begin << 7; i < end << 7; ++i) {
    for (let j: u32 = 0; j < tiles << 2; ++j) {
      const inside = i < rows && j < columns;
      const from = src + <usize>i * rowStride + <usize>j * columnStride;
      store<u8>(dst + swizzled(i, j, tiles), inside ? load<u8>(from) : 0);
    }
  }
}

/**
 * The inverse of `swizzle`: copies tile rows [begin, end), of 128 rows each, to dst[i * rowStride + j * columnStride].
 */
export function unswizzle(task: SwizzleTask, begin: u32, end: u32): void {
  const src = task.src;
  const rows = task.rows;
  const columns = task.columns;
  const rowStride = task.rowStride;
  const columnStride = task.columnStride;
  const dst = task.dst;
  const tiles = (columns + 3) >> 2;
  for (let i = begin << 7; i < min(end << 7, rows); ++i) {
    for (let j: u32 = 0; j < columns; ++j) {
      store<u8>(dst + <usize>i * rowStride + <usize>j * columnStride, load<u8>(src + swizzled(i, j, tiles)));
    }
  }
}
