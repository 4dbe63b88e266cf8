// Statistics of blocks of 16 or 32 codes of four bits with one-byte scales. Each block is one count in a histogram over the scale
// byte and the sum of the ranks of its codes; every sum over blocks follows from the histogram. The rank of a code is the square
// of its value, in units that make it an integer.

import { Kind, Sum } from "./statistics-layout";

/** Byte offsets in the table. */
const enum Table {
  /** For each scale byte, the largest rank: u8. */
  Ranks = 0,
  /** For each scale byte, the number of nonzero codes: u64. */
  Nonzero = 256,
  /** For each scale byte, the u32 number of blocks with each sum of ranks; `stride` bytes for each scale byte. */
  Counts = 2304,
}

/** The fields of a block in 32 bits: the sum of ranks, at most 32 * 255; above it the number of nonzero codes; then the rank. */
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

/** Adds a block to the table. */
function addBlock(block: u32, scale: usize, table: usize, stride: usize): void {
  const count = table + scale * stride + ((<usize>(block & Block.SumMask)) << 2);
  store<u32>(count, load<u32>(count, Table.Counts) + 1, Table.Counts);
  const nonzero = table + (scale << 3);
  const more = <u64>((block >> Block.Nonzero) & Block.NonzeroMask);
  store<u64>(nonzero, load<u64>(nonzero, Table.Nonzero) + more, Table.Nonzero);
  const rank = block >> Block.Rank;
  if (rank > <u32>load<u8>(table + scale, Table.Ranks)) store<u8>(table + scale, <u8>rank, Table.Ranks);
}

function add(at: usize, value: u32): void {
  store<f64>(at, load<f64>(at) + <f64>value);
}

/**
 * Adds rows of 4-bit codes to `table` and `sums`. A row has `blocks` blocks of `wide` codes, 16 or 32; `scales` has a byte for
 * each block. Reads up to 48 bytes after the codes, and ignores them.
 */
export function nibbleBlocks(
  codes: usize,
  rows: u32,
  wide: u32,
  blocks: u32,
  scales: usize,
  kind: usize,
  sums: usize,
  table: usize,
  stride: usize,
): void {
  const ranks = v128.load(kind, Kind.Ranks);
  const mask = v128.load8_splat(kind, Kind.Mask);
  const largest = (<u32>load<u8>(kind, Kind.Largest)) << Block.Rank;
  const fullLanes = i32x4.splat(largest);
  const isNarrow = wide === 16;
  const bytes = <usize>(wide >> 1);
  let full = i32x4.splat(0);
  let restFull: u32 = 0;
  let rowsNonzero: u32 = 0;
  let rowsFull: u32 = 0;
  for (; rows > 0; --rows) {
    let largestBlocks = i32x4.splat(0);
    let most: u32 = 0;
    let left = blocks;
    for (; left >= 4; left -= 4) {
      const four = isNarrow ? narrowBlocks(codes, ranks, mask) : wideBlocks(codes, ranks, mask);
      const first = i64x2.extract_lane(four, 0);
      const second = i64x2.extract_lane(four, 1);
      addBlock(<u32>first, load<u8>(scales), table, stride);
      addBlock(<u32>(first >>> 32), load<u8>(scales, 1), table, stride);
      addBlock(<u32>second, load<u8>(scales, 2), table, stride);
      addBlock(<u32>(second >>> 32), load<u8>(scales, 3), table, stride);
      // a lane that is true is -1
      full = i32x4.sub(full, i32x4.ge_u(four, fullLanes));
      largestBlocks = i32x4.max_u(largestBlocks, four);
      codes += bytes << 2;
      scales += 4;
    }
    for (; left > 0; --left) {
      const four = isNarrow ? narrowBlocks(codes, ranks, mask) : wideBlocks(codes, ranks, mask);
      const block = <u32>i32x4.extract_lane(four, 0);
      addBlock(block, load<u8>(scales), table, stride);
      restFull += <u32>(block >= largest);
      most = max(most, block);
      codes += bytes;
      ++scales;
    }
    most = max(
      most,
      max(<u32>i32x4.extract_lane(largestBlocks, 0), <u32>i32x4.extract_lane(largestBlocks, 1)),
    );
    most = max(
      most,
      max(<u32>i32x4.extract_lane(largestBlocks, 2), <u32>i32x4.extract_lane(largestBlocks, 3)),
    );
    rowsNonzero += <u32>(most >> Block.Rank > 0);
    rowsFull += <u32>(most >= largest);
  }
  for (let lane: usize = 0; lane < 4; ++lane) {
    restFull += <u32>i32x4.extract_lane(full, 0);
    full = i32x4.shuffle(full, full, 1, 2, 3, 0);
  }
  add(sums + Sum.Full, restFull);
  add(sums + Sum.RowsNonzero, rowsNonzero);
  add(sums + Sum.RowsFull, rowsFull);
}

/**
 * Sums over `length` u32 counts of blocks, of which the first, of blocks of zeros, is left out. Writes f64 to `sums`: the number
 * of blocks; the sums of their logarithms minus `first`, and of the squares of these; the sum of their indices. `logarithms` has
 * an f64 for each count.
 */
export function sumCounts(counts: usize, length: u32, logarithms: usize, first: f64, sums: usize): void {
  let blocks: f64 = 0;
  let y: f64 = 0;
  let yy: f64 = 0;
  let indices: f64 = 0;
  for (let at: u32 = 1; at < length; ++at) {
    const count = load<u32>(counts + ((<usize>at) << 2));
    if (count === 0) continue;
    const many = <f64>count;
    const logarithm = load<f64>(logarithms + ((<usize>at) << 3)) - first;
    blocks += many;
    y += many * logarithm;
    yy += many * logarithm * logarithm;
    indices += many * <f64>at;
  }
  store<f64>(sums, blocks);
  store<f64>(sums, y, 8);
  store<f64>(sums, yy, 16);
  store<f64>(sums, indices, 24);
}
