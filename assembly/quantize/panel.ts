// A panel is a few rows of a matrix or of its transpose, as f32. Quantizers and transforms process a matrix panel by
// panel.

import { Wide } from "../contract";
import { loadWide, wideBytes, widen } from "../core/wide";

/** Maximum number of elements of a panel: 128 KiB of f32. */
export const PANEL: i32 = 32768;

/** Loads four consecutive elements as f32. T is f32, or u16 for bf16. */
function loadFour<T>(pointer: usize): v128 {
  return sizeof<T>() === 4 ? v128.load(pointer) : i32x4.shl(v128.load16x4_u(pointer), 16);
}

/** Writes 4 rows of 4 elements, `pitch` bytes apart, as 4 columns to `dst`, `stride` bytes apart. */
function transposeFour<T>(src: usize, pitch: usize, dst: usize, stride: usize): void {
  const r0 = loadFour<T>(src);
  const r1 = loadFour<T>(src + pitch);
  const r2 = loadFour<T>(src + 2 * pitch);
  const r3 = loadFour<T>(src + 3 * pitch);
  const a = i32x4.shuffle(r0, r1, 0, 4, 1, 5);
  const b = i32x4.shuffle(r2, r3, 0, 4, 1, 5);
  const c = i32x4.shuffle(r0, r1, 2, 6, 3, 7);
  const d = i32x4.shuffle(r2, r3, 2, 6, 3, 7);
  v128.store(dst, i64x2.shuffle(a, b, 0, 2));
  v128.store(dst + stride, i64x2.shuffle(a, b, 1, 3));
  v128.store(dst + 2 * stride, i64x2.shuffle(c, d, 0, 2));
  v128.store(dst + 3 * stride, i64x2.shuffle(c, d, 1, 3));
}

/** Writes 16 columns of `count` rows as 16 rows; `count` is a multiple of 4. */
function transposeStrip<T>(src: usize, pitch: usize, count: i32, dst: usize, stride: usize): void {
  const width: usize = 4 * sizeof<T>();
  for (let i = 0; i < count; i += 4) {
    transposeFour<T>(src, pitch, dst, stride);
    transposeFour<T>(src + width, pitch, dst + 4 * stride, stride);
    transposeFour<T>(src + 2 * width, pitch, dst + 8 * stride, stride);
    transposeFour<T>(src + 3 * width, pitch, dst + 12 * stride, stride);
    src += 4 * pitch;
    dst += 16;
  }
}

/** A part of a matrix, and its values. */
@unmanaged
export class Panel {
  /** The matrix: `src`, with `columns` columns, or if `transposed` the transpose of `src`, whose rows have `rows` elements. */
  src: usize;
  srcType: u32;
  rows: u32;
  columns: u32;
  transposed: bool;
  /** Rows [row, row + height) and columns [column, column + width) of the matrix. */
  row: u32;
  height: i32;
  column: u32;
  width: i32;
  /** Memory for `height` rows of `width` f32. */
  buffer: usize;
  /** The values as f32, after `openPanel`. A row starts `pitch` elements after the one before. */
  values: usize;
  pitch: u32;
}

/** The size of a Panel in bytes. */
export const PANEL_BYTES: usize = 48;

/** Whether the values of panels are read in place, because the matrix is f32 and not transposed. */
export function isInPlace(panel: Panel): bool {
  return panel.srcType === Wide.F32 && !panel.transposed;
}

/** Sets the columns of a panel, and the address of its values, which it writes to the buffer unless they are read in place. */
export function openPanel(panel: Panel, column: u32, width: u32): void {
  panel.column = column;
  panel.width = width;
  if (isInPlace(panel)) {
    panel.values = panel.src + ((<usize>panel.row * panel.columns + column) << 2);
    panel.pitch = panel.columns;
    return;
  }
  loadPanel(panel);
  panel.values = panel.buffer;
  panel.pitch = width;
}

/** Writes the values of a panel to its buffer. */
export function loadPanel(panel: Panel): void {
  const src = panel.src;
  const type = panel.srcType;
  const rows = panel.rows;
  const row = panel.row;
  const height = panel.height;
  const column = panel.column;
  const width = panel.width;
  const buffer = panel.buffer;
  const stride = (<usize>width) << 2;
  if (!panel.transposed) {
    for (let r = 0; r < height; ++r) {
      widen(src, type, <usize>(row + r) * panel.columns + column, width, buffer + <usize>r * stride);
    }
    return;
  }
  const bytes = wideBytes(type);
  const pitch = <usize>rows * bytes;
  const vectorCount = type === Wide.F16 ? 0 : width & -4;
  const wholeRows = type === Wide.F16 ? 0 : height & -16;
  for (let r = 0; r < wholeRows; r += 16) {
    const from = src + <usize>column * pitch + (<usize>row + r) * bytes;
    const to = buffer + <usize>r * stride;
    if (type === Wide.F32) transposeStrip<f32>(from, pitch, vectorCount, to, stride);
    else transposeStrip<u16>(from, pitch, vectorCount, to, stride);
  }
  for (let r = 0; r < height; ++r) {
    for (let c = r < wholeRows ? vectorCount : 0; c < width; ++c) {
      const index = (<usize>column + c) * rows + row + r;
      store<f32>(buffer + <usize>r * stride + ((<usize>c) << 2), loadWide(src, type, index));
    }
  }
}
