// 4over6: the amax of an NVFP4 block is mapped to 6 or to 4, whichever gives the smaller error; equal errors select 6.
// Every step is one rounded f32 operation, written ⊗ (product), ⊘ (quotient) and ⊖ (difference).

import { RuleAt } from "../core/scale";

/** `height` rows (1 to 16) of 16 f32 each, which are `pitch` elements apart. */
@unmanaged
export class Tile {
  values: usize;
  pitch: u32;
  height: u32;
}

/** The size of a Tile in bytes. */
export const TILE_BYTES: usize = 16;

const FLT_MAX = reinterpret<f32>(0x7f7fffff);

/** Rounds `value`, which is not negative, to e4m3. Larger values than 448 become 448. */
function roundE4m3(value: f32): f32 {
  const a = min(reinterpret<u32>(value), 0x43e00000);
  const e = max(a, 0x3c800000) & 0x7f800000; // at least 2^-6
  const c = reinterpret<f32>(e + (20 << 23));
  return reinterpret<f32>(a) + c - c;
}

/** The e4m3 code of a non-negative value that e4m3 represents exactly. */
function codeOfE4m3(value: f32): u32 {
  const bits = reinterpret<u32>(value);
  if (bits < 0x3c800000) return <u32>(value * 512); // 2^9
  return (bits >> 20) - (120 << 3);
}

function multiplierOf(scale: f32, decodeScale: f32): f32 {
  return min(<f32>1 / (scale * decodeScale), FLT_MAX);
}

/**
 * The differences d = (((q ⊗ scale) ⊗ g) ⊘ full) ⊖ x of four elements x, where q is x ⊗ multiplier rounded to e2m1. g is the
 * amax of the tensor, and full the largest element times the largest block scale.
 */
function differences(x: v128, multiplier: v128, scale: v128, g: v128, full: v128): v128 {
  const v = f32x4.mul(x, multiplier);
  const a = i32x4.min_s(v128.and(v, i32x4.splat(0x7fffffff)), i32x4.splat(0x40c00000)); // 6
  const c = i32x4.add(
    v128.and(i32x4.max_s(a, i32x4.splat(0x3f800000)), i32x4.splat(0x7f800000)),
    i32x4.splat(22 << 23),
  );
  const q = v128.or(f32x4.sub(f32x4.add(a, c), c), v128.and(v, i32x4.splat(0x80000000)));
  return f32x4.sub(f32x4.div(f32x4.mul(f32x4.mul(q, scale), g), full), x);
}

/** The sum of the errors of 16 elements for a block scale, |d| or the squares d ⊗ d, added in element order. */
function rowError(x: usize, multiplier: f32, scale: f32, rule: usize, buffer: usize): f32 {
  const m = f32x4.splat(multiplier);
  const s = f32x4.splat(scale);
  const g = v128.load32_splat(rule, RuleAt.Global);
  const full = v128.load32_splat(rule, RuleAt.Full);
  const squared = load<u32>(rule, RuleAt.Squared);
  for (let i: usize = 0; i < 64; i += 16) {
    const d = differences(v128.load(x + i), m, s, g, full);
    v128.store(buffer + i, squared ? f32x4.mul(d, d) : f32x4.abs(d));
  }
  let sum: f32 = 0;
  for (let i: usize = 0; i < 64; i += 4) sum += load<f32>(buffer + i);
  return sum;
}

/**
 * The error of a tile of up to 16 rows. If it has more than one row, the errors of 16 rows are added as a tree, with 0 for
 * missing rows: row i adds row i + 8, then i + 4, i + 2, i + 1.
 */
function tileError(rule: usize, tile: Tile, multiplier: f32, scale: f32, buffer: usize): f32 {
  const height = tile.height;
  const sums = buffer + 64;
  for (let i: u32 = 0; i < height; ++i) {
    store<f32>(
      sums + (i << 2),
      rowError(tile.values + ((<usize>i * tile.pitch) << 2), multiplier, scale, rule, buffer),
    );
  }
  if (height === 1) return load<f32>(sums);
  for (let i = height; i < 16; ++i) store<f32>(sums + (i << 2), 0);
  for (let step: u32 = 8; step > 0; step >>= 1) {
    for (let i: u32 = 0; i < step; ++i) {
      store<f32>(sums + (i << 2), load<f32>(sums + (i << 2)) + load<f32>(sums + ((i + step) << 2)));
    }
  }
  return load<f32>(sums);
}

/**
 * Returns the e4m3 code of a tile's scale, and writes the multiplier of its elements. `amax` is the largest magnitude of the
 * tile. `rule` is a prepared rule; `buffer` has 128 bytes.
 */
export function chooseScale(rule: usize, tile: Tile, amax: f32, buffer: usize, multiplier: usize): u32 {
  const decodeScale = load<f32>(rule, RuleAt.Decode);
  const base = (amax / 6) * load<f32>(rule, RuleAt.Encode);
  const six = roundE4m3(base);
  const four = roundE4m3(base * 1.5);
  const multiplierSix = multiplierOf(six, decodeScale);
  const multiplierFour = multiplierOf(four, decodeScale);
  const errorSix = tileError(rule, tile, multiplierSix, six, buffer);
  const errorFour = tileError(rule, tile, multiplierFour, four, buffer);
  const takesFour = errorFour < errorSix;
  store<f32>(multiplier, takesFour ? multiplierFour : multiplierSix);
  return codeOfE4m3(takesFour ? four : six);
}
