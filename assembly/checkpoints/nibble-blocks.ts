// Statistics of blocks of 16 or 32 codes of four bits with one-byte scales. Every sum over blocks is added to the entry of their
// scale byte. The rank of a code is the square of its value, in units that make it an integer.

import { Entry, FIRST, Kind, Sum } from "./statistics-layout";

/**
 * The fields of a block in 32 bits, from the lowest: the sum of ranks, at most 32 * 255; the number of nonzero codes; the largest
 * rank.
 */
const enum Block {
  SumMask = 0x1fff,
  Nonzero = 13,
  NonzeroMask = 0x3f,
  Rank = 24,
}

/** One nonzero code in the fields of a block. */
const NONZERO: i16 = 0x2000;

/** The i32 sums of neighbours in two vectors. */
function addNeighbours(a: v128, b: v128): v128 {
  return i32x4.add(i32x4.shuffle(a, b, 0, 2, 4, 6), i32x4.shuffle(a, b, 1, 3, 5, 7));
}

/** The largest bytes of neighbouring i32 in two vectors. */
function maxNeighbours(a: v128, b: v128): v128 {
  return i8x16.max_u(i32x4.shuffle(a, b, 0, 2, 4, 6), i32x4.shuffle(a, b, 1, 3, 5, 7));
}

/** The sum of ranks and the number of nonzero ranks, as in `Block`, of each four bytes of two vectors. */
function sumRanks(low: v128, high: v128): v128 {
  const one = i8x16.splat(1);
  const sums = i16x8.add(i16x8.extadd_pairwise_i8x16_u(low), i16x8.extadd_pairwise_i8x16_u(high));
  const nonzero = i16x8.extadd_pairwise_i8x16_u(i8x16.add(i8x16.min_u(low, one), i8x16.min_u(high, one)));
  return i32x4.add(i32x4.dot_i16x8_s(sums, i16x8.splat(1)), i32x4.dot_i16x8_s(nonzero, i16x8.splat(NONZERO)));
}

/** The sums, counts and largest ranks of four blocks. `maxima` has four bytes for each block. */
function packBlocks(sums: v128, maxima: v128): v128 {
  const two = i8x16.max_u(maxima, i32x4.shr_u(maxima, 16));
  const one = i8x16.max_u(two, i32x4.shr_u(two, 8));
  return v128.or(sums, i32x4.shl(one, Block.Rank));
}

/** The next four blocks of 16 codes. */
function narrowBlocks(codes: usize, ranks: v128, mask: v128): v128 {
  const a = v128.load(codes);
  const b = v128.load(codes, 16);
  const aLow = i8x16.swizzle(ranks, v128.and(a, mask));
  const aHigh = i8x16.swizzle(ranks, v128.and(i16x8.shr_u(a, 4), mask));
  const bLow = i8x16.swizzle(ranks, v128.and(b, mask));
  const bHigh = i8x16.swizzle(ranks, v128.and(i16x8.shr_u(b, 4), mask));
  return packBlocks(
    addNeighbours(sumRanks(aLow, aHigh), sumRanks(bLow, bHigh)),
    maxNeighbours(i8x16.max_u(aLow, aHigh), i8x16.max_u(bLow, bHigh)),
  );
}

/** The next four blocks of 32 codes. */
function wideBlocks(codes: usize, ranks: v128, mask: v128): v128 {
  const a = v128.load(codes);
  const b = v128.load(codes, 16);
  const c = v128.load(codes, 32);
  const d = v128.load(codes, 48);
  const aLow = i8x16.swizzle(ranks, v128.and(a, mask));
  const aHigh = i8x16.swizzle(ranks, v128.and(i16x8.shr_u(a, 4), mask));
  const bLow = i8x16.swizzle(ranks, v128.and(b, mask));
  const bHigh = i8x16.swizzle(ranks, v128.and(i16x8.shr_u(b, 4), mask));
  const cLow = i8x16.swizzle(ranks, v128.and(c, mask));
  const cHigh = i8x16.swizzle(ranks, v128.and(i16x8.shr_u(c, 4), mask));
  const dLow = i8x16.swizzle(ranks, v128.and(d, mask));
  const dHigh = i8x16.swizzle(ranks, v128.and(i16x8.shr_u(d, 4), mask));
  const ab = addNeighbours(sumRanks(aLow, aHigh), sumRanks(bLow, bHigh));
  const cd = addNeighbours(sumRanks(cLow, cHigh), sumRanks(dLow, dHigh));
  const abMaxima = maxNeighbours(i8x16.max_u(aLow, aHigh), i8x16.max_u(bLow, bHigh));
  const cdMaxima = maxNeighbours(i8x16.max_u(cLow, cHigh), i8x16.max_u(dLow, dHigh));
  return packBlocks(addNeighbours(ab, cd), maxNeighbours(abMaxima, cdMaxima));
}

/** The logarithm of the first of four blocks that has a nonzero code; NaN if there is none. */
function firstLogarithm(four: v128, logarithms: usize): f64 {
  for (let lane: u32 = 0; lane < 4; ++lane) {
    const sum = <usize>(i32x4.extract_lane(four, 0) & Block.SumMask);
    if (sum) return load<f64>(logarithms + (sum << 3));
    four = i32x4.shuffle(four, four, 1, 2, 3, 0);
  }
  return NaN;
}

/** Adds a block to the entry of its scale. `countAndSum` has 1 and the sum of ranks in f64. Leaves out a block of zeros. */
function addBlock(block: u32, countAndSum: v128, entry: usize, logarithms: usize, first: f64): void {
  const sum = <usize>(block & Block.SumMask);
  if (!sum) return;
  const y = load<f64>(logarithms + (sum << 3)) - first;
  const sumAndSquares = f64x2.replace_lane(f64x2.splat(y), 1, y * y);
  v128.store(entry, f64x2.add(v128.load(entry), sumAndSquares), Entry.Y);
  v128.store(entry, f64x2.add(v128.load(entry, Entry.Count), countAndSum), Entry.Count);
  const nonzero = <u64>((block >> Block.Nonzero) & Block.NonzeroMask);
  store<u64>(entry, load<u64>(entry, Entry.Nonzero) + nonzero, Entry.Nonzero);
  const rank = block >> Block.Rank;
  if (rank > load<u32>(entry, Entry.Rank)) store<u32>(entry, rank, Entry.Rank);
}

/** The address of the entry of a scale byte. */
function entryOf(table: usize, scale: usize): usize {
  return table + ((<usize>load<u8>(scale)) << 6);
}

function add(at: usize, value: u32): void {
  store<f64>(at, load<f64>(at) + <f64>value);
}

/** The largest of four u32. */
function largestLane(four: v128): u32 {
  const two = i32x4.max_u(four, i64x2.shuffle(four, four, 1, 1));
  return <u32>i32x4.extract_lane(i32x4.max_u(two, i32x4.shuffle(two, two, 1, 1, 1, 1)), 0);
}

/** The arguments of `nibbleBlocks`. */
@unmanaged
class NibbleBlocksTask {
  codes: usize;
  rows: u32;
  wide: u32;
  blocks: u32;
  scales: usize;
  kind: usize;
  sums: usize;
  table: usize;
  logarithms: usize;
}

/**
 * Adds rows of 4-bit codes to `sums` and to `table`, whose entries are those of `byteStatistics`. A row has `blocks` blocks of
 * `wide` codes, 16 or 32; `scales` has a byte for each block. `logarithms` has the f64 log RMS of codes for each sum of ranks.
 * Reads up to 56 bytes after the codes and 3 after the scales, and ignores them.
 */
export function nibbleBlocks(task: NibbleBlocksTask): void {
  let codes = task.codes;
  let rows = task.rows;
  let scales = task.scales;
  const wide = task.wide;
  const blocks = task.blocks;
  const kind = task.kind;
  const sums = task.sums;
  const table = task.table;
  const logarithms = task.logarithms;
  const ranks = v128.load(kind, Kind.Ranks);
  const mask = v128.load8_splat(kind, Kind.Mask);
  const largest = (<u32>load<u8>(kind, Kind.Largest)) << Block.Rank;
  const fullLanes = i32x4.splat(largest);
  const isNarrow = wide === 16;
  const bytes = <usize>(wide >> 1);
  const sumMask = i32x4.splat(Block.SumMask);
  const ones = f64x2.splat(1);
  const lanes = i32x4(0, 1, 2, 3);
  let first = load<f64>(table + FIRST);
  let full = i32x4.splat(0);
  let rowsNonzero: u32 = 0;
  let rowsFull: u32 = 0;
  for (; rows > 0; --rows) {
    let largestBlocks = i32x4.splat(0);
    for (let left = <i32>blocks; left > 0; left -= 4) {
      let four = isNarrow ? narrowBlocks(codes, ranks, mask) : wideBlocks(codes, ranks, mask);
      // blocks after the last one of a row count as zeros
      if (left < 4) four = v128.and(four, i32x4.lt_s(lanes, i32x4.splat(left)));
      if (isNaN(first)) first = firstLogarithm(four, logarithms);
      const ranksOfBlocks = v128.and(four, sumMask);
      const low = f64x2.convert_low_i32x4_u(ranksOfBlocks);
      const high = f64x2.convert_low_i32x4_u(i64x2.shuffle(ranksOfBlocks, ranksOfBlocks, 1, 1));
      const pair = i64x2.extract_lane(four, 0);
      const upper = i64x2.extract_lane(four, 1);
      const a = i64x2.shuffle(ones, low, 0, 2);
      const b = i64x2.shuffle(ones, low, 0, 3);
      const c = i64x2.shuffle(ones, high, 0, 2);
      const d = i64x2.shuffle(ones, high, 0, 3);
      addBlock(<u32>pair, a, entryOf(table, scales), logarithms, first);
      addBlock(<u32>(pair >>> 32), b, entryOf(table, scales + 1), logarithms, first);
      addBlock(<u32>upper, c, entryOf(table, scales + 2), logarithms, first);
      addBlock(<u32>(upper >>> 32), d, entryOf(table, scales + 3), logarithms, first);
      // a lane that is true is -1
      full = i32x4.sub(full, i32x4.ge_u(four, fullLanes));
      largestBlocks = i32x4.max_u(largestBlocks, four);
      const count = <usize>min(left, 4);
      codes += bytes * count;
      scales += count;
    }
    const most = largestLane(largestBlocks);
    rowsNonzero += <u32>(most >> Block.Rank > 0);
    rowsFull += <u32>(most >= largest);
  }
  store<f64>(table + FIRST, first);
  const pairs = i32x4.add(full, i64x2.shuffle(full, full, 1, 1));
  add(sums + Sum.Full, <u32>(i32x4.extract_lane(pairs, 0) + i32x4.extract_lane(pairs, 1)));
  add(sums + Sum.RowsNonzero, rowsNonzero);
  add(sums + Sum.RowsFull, rowsFull);
}
