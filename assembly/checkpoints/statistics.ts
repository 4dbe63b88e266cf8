// Statistics of codes and scales, block by block, for `lockstep verify`.
//
// The rank of a code orders magnitudes. For codes of eight or six bits it is the code without its sign, or the magnitude of an
// integer. For codes of four bits it is the square of the value, in units that make it an integer. NaN has the rank 0.

import { Entry, FIRST, Kind, Sum } from "./statistics-layout";

/**
 * Byte offsets of the sums of pairs: f64. The first pair is subtracted from all pairs, so that equal pairs have a variance of
 * exactly 0.
 */
const enum Pairs {
  Count = 0,
  FirstX = 8,
  FirstY = 16,
  X = 24,
  Y = 32,
  XX = 40,
  YY = 48,
  XY = 56,
}

function add(at: usize, value: f64): void {
  store<f64>(at, load<f64>(at) + value);
}

function raise(at: usize, value: f64): void {
  if (value > load<f64>(at)) store<f64>(at, value);
}

/**
 * The binary logarithm of a positive finite number, to 2^-38, by the series log((1 + s) / (1 - s)) = 2 (s + s^3 / 3 + s^5 / 5 +
 * ...).
 */
function log2(value: f64): f64 {
  let exponent: i64 = 0;
  if (value < 2.2250738585072014e-308) {
    value *= 18014398509481984;
    exponent = -54;
  }
  const bits = reinterpret<u64>(value);
  exponent += <i64>(bits >> 52) - 1023;
  let mantissa = reinterpret<f64>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (mantissa > Math.SQRT2) {
    mantissa *= 0.5;
    ++exponent;
  }
  const s = (mantissa - 1) / (mantissa + 1);
  const z = s * s;
  const series =
    1 + z * (1 / 3.0 + z * (1 / 5.0 + z * (1 / 7.0 + z * (1 / 9.0 + z * (1 / 11.0 + z * (1 / 13.0))))));
  return <f64>exponent + 2.8853900817779268 * s * series;
}

/** Adds the pair of a scale's logarithm and `logarithm`, the log RMS, if both are finite. */
function addPair(at: usize, scale: f64, logarithm: f64): void {
  if (!(scale > 0) || scale === Infinity) return;
  let x = log2(scale);
  const count = load<f64>(at, Pairs.Count);
  if (count === 0) {
    store<f64>(at, x, Pairs.FirstX);
    store<f64>(at, logarithm, Pairs.FirstY);
  }
  store<f64>(at, count + 1, Pairs.Count);
  x -= load<f64>(at, Pairs.FirstX);
  const y = logarithm - load<f64>(at, Pairs.FirstY);
  add(at + Pairs.X, x);
  add(at + Pairs.Y, y);
  add(at + Pairs.XX, x * x);
  add(at + Pairs.YY, y * y);
  add(at + Pairs.XY, x * y);
}

/** Adds a block to the largest magnitude and the sum of squares of the values under one reading of its scale. */
function addToExtremes(at: usize, amax: f64, squares: f64, scale: f32): void {
  const magnitude = <f64>abs(scale);
  if (!(magnitude < Infinity)) return;
  raise(at, amax * magnitude);
  add(at + 8, squares * magnitude * magnitude);
}

/** The common arguments of all statistics of codes. */
@unmanaged
class CodeStatisticsTask {
  /** The codes, and the number of their rows and of the blocks of a row. */
  codes: usize;
  rows: u32;
  blocks: u32;
  /** The number of columns that share a scale. */
  wide: u32;
  scales: usize;
  /** The factor of all scales, by which they are divided if `divides`. */
  global: f64;
  divides: u32;
  /** The description of the kind of code (statistics-layout.ts), and the sums that are increased. */
  kind: usize;
  sums: usize;
}

/** The arguments of `byteStatistics`. */
@unmanaged
class ByteStatisticsTask extends CodeStatisticsTask {
  columns: u32;
  /** The first row, of a matrix with `height` rows; `tall` rows share a scale. */
  row: u32;
  height: u32;
  tall: u32;
  /** The number of scales from one row of blocks to the next. */
  step: u32;
  /** The state of blocks that continue in the next call: f64 sums of squares, and u16 ranks, with 256 for NaN. */
  squares: usize;
  ranks: usize;
  table: usize;
}

/** Ends a block with a scale. */
function endBlock(task: CodeStatisticsTask, rank: u32, hasNaN: bool, squares: f64, stored: f32): void {
  const kind = task.kind;
  const sums = task.sums;
  const global = task.global;
  const divides = task.divides;
  if (hasNaN) add(sums + Sum.WithNaN, 1);
  if (rank === 0 && !hasNaN) return;
  add(sums + Sum.Nonzero, 1);
  if (rank === 0) return;
  if (rank >= <u32>load<u8>(kind, Kind.Largest)) add(sums + Sum.Full, 1);
  const scale = <f64>stored;
  if (scale === 0) add(sums + Sum.ZeroScaled, 1);
  const inverse = 1 / scale;
  const amax = load<f64>(kind + ((<usize>rank) << 3), Kind.Magnitudes);
  addToExtremes(sums + Sum.Amax, amax, squares, <f32>(divides ? scale / global : scale * global));
  addToExtremes(sums + Sum.InverseAmax, amax, squares, <f32>(divides ? inverse / global : inverse * global));
  if (squares < Infinity) addPair(sums + Sum.Pairs, scale, log2(squares) / 2);
}

/** Adds a block with a finite logarithm to the entry of its scale. */
function addToEntry(rank: u32, logarithm: f64, squares: f64, scale: usize, table: usize): void {
  let first = load<f64>(table + FIRST);
  if (isNaN(first)) {
    first = logarithm;
    store<f64>(table + FIRST, first);
  }
  const y = logarithm - first;
  const sumAndSquares = f64x2.replace_lane(f64x2.splat(y), 1, y * y);
  const entry = table + (scale << 6);
  v128.store(entry, f64x2.add(v128.load(entry), sumAndSquares), Entry.Y);
  const countAndSquares = f64x2.replace_lane(f64x2.splat(1), 1, squares);
  v128.store(entry, f64x2.add(v128.load(entry, Entry.Count), countAndSquares), Entry.Count);
  if (rank > load<u32>(entry, Entry.Rank)) store<u32>(entry, rank, Entry.Rank);
}

/** As `endBlock`, for a one-byte scale. */
function endByteBlock(task: ByteStatisticsTask, rank: u32, hasNaN: bool, squares: f64, scale: usize): void {
  const table = task.table;
  const kind = task.kind;
  const sums = task.sums;
  if (hasNaN) add(sums + Sum.WithNaN, 1);
  if (rank === 0) {
    if (hasNaN) add(sums + Sum.Nonzero, 1);
    return;
  }
  if (rank >= <u32>load<u8>(kind, Kind.Largest)) add(sums + Sum.Full, 1);
  if (squares < Infinity) {
    addToEntry(rank, log2(squares) / 2, squares, scale, table);
    return;
  }
  const entry = table + (scale << 6);
  add(entry + Entry.Count + 8, squares);
  if (rank > load<u32>(entry, Entry.Rank)) store<u32>(entry, rank, Entry.Rank);
  store<u32>(entry, load<u32>(entry, Entry.Infinite) + 1, Entry.Infinite);
}

/** The largest lane of bytes. */
function largestByte(bytes: v128): u32 {
  let maxima = i8x16.max_u(bytes, i64x2.shuffle(bytes, bytes, 1, 0));
  maxima = i8x16.max_u(maxima, i64x2.shr_u(maxima, 32));
  maxima = i8x16.max_u(maxima, i64x2.shr_u(maxima, 16));
  maxima = i8x16.max_u(maxima, i64x2.shr_u(maxima, 8));
  return <u32>i8x16.extract_lane_u(maxima, 0);
}

/** The largest rank of a run of one-byte codes, plus 256 if one of them is NaN. */
function largestRank(codes: usize, count: usize, kind: usize): u32 {
  const mask = v128.load8_splat(kind, Kind.Mask);
  const last = v128.load8_splat(kind, Kind.LastNumber);
  const isInteger = load<u8>(kind, Kind.IsInteger) !== 0;
  const minusZero = i8x16.splat(<i8>0x80);
  const isUnsignedZero = load<u8>(kind, Kind.IsUnsignedZero) !== 0;
  let maxima = i8x16.splat(0);
  let nans = i8x16.splat(0);
  const end = codes + count;
  for (; codes + 16 <= end; codes += 16) {
    const sixteen = v128.load(codes);
    const ranks = isInteger ? i8x16.abs(sixteen) : v128.and(sixteen, mask);
    const isNaN = isUnsignedZero ? i8x16.eq(sixteen, minusZero) : i8x16.gt_u(ranks, last);
    nans = v128.or(nans, isNaN);
    maxima = i8x16.max_u(maxima, v128.andnot(ranks, isNaN));
  }
  let largest = largestByte(maxima);
  let hasNaN = v128.any_true(nans);
  for (; codes < end; ++codes) {
    const code = <u32>load<u8>(codes);
    const rank = isInteger ? <u32>abs(<i32>(<i8>code)) : code & <u32>load<u8>(kind, Kind.Mask);
    if (isUnsignedZero ? code === 0x80 : rank > <u32>load<u8>(kind, Kind.LastNumber)) hasNaN = true;
    else if (rank > largest) largest = rank;
  }
  return hasNaN ? largest | 256 : largest;
}

/** The sum of the squares of a run of one-byte codes. */
function sumSquares(codes: usize, count: usize, kind: usize): f64 {
  const squares = kind + Kind.Squares;
  let a: f64 = 0;
  let b: f64 = 0;
  let c: f64 = 0;
  let d: f64 = 0;
  const end = codes + count;
  for (; codes + 8 <= end; codes += 8) {
    const eight = load<u64>(codes);
    a += load<f64>(squares + <usize>((eight << 3) & 0x7f8));
    b += load<f64>(squares + <usize>((eight >> 5) & 0x7f8));
    c += load<f64>(squares + <usize>((eight >> 13) & 0x7f8));
    d += load<f64>(squares + <usize>((eight >> 21) & 0x7f8));
    a += load<f64>(squares + <usize>((eight >> 29) & 0x7f8));
    b += load<f64>(squares + <usize>((eight >> 37) & 0x7f8));
    c += load<f64>(squares + <usize>((eight >> 45) & 0x7f8));
    d += load<f64>(squares + <usize>((eight >> 53) & 0x7f8));
  }
  for (; codes < end; ++codes) a += load<f64>(squares + ((<usize>load<u8>(codes)) << 3));
  return a + b + (c + d);
}

/** The sum of the ranks of 4-bit codes in groups of eight bytes, plus 65536 times the largest rank. */
function sumNibbles(codes: usize, bytes: usize, kind: usize): u32 {
  const ranks = v128.load(kind, Kind.Ranks);
  const half = v128.load8_splat(kind, Kind.Mask);
  let maxima = i8x16.splat(0);
  let sum = i32x4.splat(0);
  for (const end = codes + bytes; codes < end; codes += 8) {
    const pairs = v128.load64_zero(codes);
    const nibbles = i64x2.shuffle(v128.and(pairs, half), v128.and(i16x8.shr_u(pairs, 4), half), 0, 2);
    const nibbleRanks = i8x16.swizzle(ranks, nibbles);
    maxima = i8x16.max_u(maxima, nibbleRanks);
    sum = i32x4.add(sum, i32x4.extadd_pairwise_i16x8_u(i16x8.extadd_pairwise_i8x16_u(nibbleRanks)));
  }
  sum = i32x4.add(sum, i64x2.shuffle(sum, sum, 1, 0));
  const total = i32x4.extract_lane(sum, 0) + i32x4.extract_lane(sum, 1);
  return <u32>total | (largestByte(maxima) << 16);
}

/**
 * Adds rows of one-byte codes to the sums. A row has `blocks` blocks. `scales` has the f32 scales of the first row of blocks. The
 * state of blocks is 0 at the beginning.
 *
 * With a `table` of entries, scales are bytes. Sums that depend on them are added to the table, and `global` and `divides` are
 * not used.
 */
export function byteStatistics(task: ByteStatisticsTask): void {
  let codes = task.codes;
  let row = task.row;
  let scales = task.scales;
  const rows = task.rows;
  const columns = task.columns;
  const height = task.height;
  const tall = task.tall;
  const wide = task.wide;
  const blocks = task.blocks;
  const step = task.step;
  const kind = task.kind;
  const squares = task.squares;
  const ranks = task.ranks;
  const sums = task.sums;
  const table = task.table;
  const shift: usize = table ? 0 : 2;
  for (const end = row + rows; row < end; ) {
    let maxRank: u32 = 0;
    for (let block: usize = 0, column: u32 = 0; column < columns; ++block, column += wide) {
      const count = <usize>min(wide, columns - column);
      const rank = largestRank(codes + column, count, kind);
      add(squares + (block << 3), sumSquares(codes + column, count, kind));
      const at = ranks + (block << 1);
      const previous = <u32>load<u16>(at);
      store<u16>(at, <u16>(max(previous & 255, rank & 255) | ((previous | rank) & 256)));
      maxRank = max(maxRank, rank & 255);
    }
    endRow(maxRank, kind, sums);
    codes += columns;
    ++row;
    if (row % tall !== 0 && row !== height) continue;
    for (let block: usize = 0; block < <usize>blocks; ++block) {
      const rank = <u32>load<u16>(ranks + (block << 1));
      const sum = load<f64>(squares + (block << 3));
      if (table) {
        endByteBlock(task, rank & 255, rank > 255, sum, load<u8>(scales + block));
        continue;
      }
      const stored = load<f32>(scales + (block << 2));
      endBlock(task, rank & 255, rank > 255, sum, stored);
    }
    memory.fill(squares, 0, (<usize>blocks) << 3);
    memory.fill(ranks, 0, (<usize>blocks) << 1);
    scales += (<usize>step) << shift;
  }
}

function endRow(maxRank: u32, kind: usize, sums: usize): void {
  if (maxRank > 0) add(sums + Sum.RowsNonzero, 1);
  if (maxRank >= <u32>load<u8>(kind, Kind.Largest)) add(sums + Sum.RowsFull, 1);
}

/**
 * As `byteStatistics`, for 4-bit codes in groups of `wide` elements of a row, a multiple of 16 up to 448, with f32 scales.
 */
export function nibbleStatistics(task: CodeStatisticsTask): void {
  let codes = task.codes;
  let rows = task.rows;
  let scales = task.scales;
  const wide = task.wide;
  const blocks = task.blocks;
  const kind = task.kind;
  const sums = task.sums;
  const bytes = <usize>(wide >> 1);
  const unit = load<f64>(kind, Kind.Unit);
  for (; rows > 0; --rows) {
    let maxRank: u32 = 0;
    for (let block: u32 = 0; block < blocks; ++block) {
      const sumAndMax = sumNibbles(codes, bytes, kind);
      codes += bytes;
      const rank = sumAndMax >> 16;
      maxRank = max(maxRank, rank);
      const sum = <f64>(sumAndMax & 0xffff) * unit;
      endBlock(task, rank, false, sum, load<f32>(scales));
      scales += 4;
    }
    endRow(maxRank, kind, sums);
  }
}
