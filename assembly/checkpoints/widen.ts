// Multiplies codes by scales and rounds to f32 or bf16, by a table for each scale (wide-table.ts).

import { Wide } from "../contract";
import { CodeBlock, foldedBlock } from "./folded";
import { isFolded } from "./octaves";
import { TableAt, widenRun } from "./wide-table";

/** The arguments of `widenBlock`. Results have the Wide type `type`, f32 or bf16. */
@unmanaged
class WidenBlockTask extends CodeBlock {
  type: u32;
}

/**
 * The arguments of `widenGroups` and `widenNibbles`. The base class describes the first group as a block of one row; `groups` is
 * the number of groups.
 */
@unmanaged
class WidenGroupsTask extends WidenBlockTask {
  groups: u32;
  /** One byte for each group. The table of scale s is at tables + s * stride. */
  scales: usize;
  tables: usize;
  stride: u32;
}

/** Writes a block of one-byte codes. */
export function widenBlock(task: WidenBlockTask): void {
  const type = task.type;
  if (type === Wide.Bf16 && isFolded(task.table + TableAt.Folded)) {
    foldedBlock(task);
    return;
  }
  let codes = task.codes;
  let dst = task.dst;
  for (let row: u32 = 0; row < task.rows; ++row) {
    if (type === Wide.F32) widenRun<u32>(codes, task.width, task.table, dst);
    else widenRun<u16>(codes, task.width, task.table, dst);
    codes += task.pitch;
    dst += (<usize>task.pitch) << (type === Wide.F32 ? 2 : 1);
  }
}

/** Writes groups of one-byte codes. Advances the block from group to group. */
export function widenGroups(task: WidenGroupsTask): void {
  const bytes: usize = task.type === Wide.F32 ? 4 : 2;
  const width = <usize>task.width;
  let scales = task.scales;
  for (const end = scales + task.groups; scales < end; ++scales) {
    task.table = task.tables + <usize>load<u8>(scales) * task.stride;
    widenBlock(task);
    task.codes += width;
    task.dst += width * bytes;
  }
}

/** The sixteen codes of eight bytes, in order. */
function nibbles(codes: usize, low: v128): v128 {
  const pairs = v128.load64_zero(codes);
  const even = v128.and(pairs, low);
  const odd = i8x16.shr_u(pairs, 4);
  return i8x16.shuffle(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

function lowBytes(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

function highBytes(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/** Writes sixteen elements. */
function putSixteen(dst: usize, table: usize, codes: v128, type: u32): void {
  const third = i8x16.swizzle(v128.load(table, TableAt.Planes), codes);
  const fourth = i8x16.swizzle(v128.load(table, TableAt.Planes + 16), codes);
  const low = lowBytes(third, fourth);
  const high = highBytes(third, fourth);
  if (type === Wide.Bf16) {
    v128.store(dst, low);
    v128.store(dst, high, 16);
    return;
  }
  const first = i8x16.swizzle(v128.load(table, TableAt.Planes + 32), codes);
  const second = i8x16.swizzle(v128.load(table, TableAt.Planes + 48), codes);
  const upper = lowBytes(first, second);
  const uppermost = highBytes(first, second);
  v128.store(dst, i16x8.shuffle(low, upper, 0, 8, 1, 9, 2, 10, 3, 11));
  v128.store(dst, i16x8.shuffle(low, upper, 4, 12, 5, 13, 6, 14, 7, 15), 16);
  v128.store(dst, i16x8.shuffle(high, uppermost, 0, 8, 1, 9, 2, 10, 3, 11), 32);
  v128.store(dst, i16x8.shuffle(high, uppermost, 4, 12, 5, 13, 6, 14, 7, 15), 48);
}

/** As `widenGroups`, for 4-bit codes, the low half of a byte first; `width` is a multiple of 16. */
export function widenNibbles(task: WidenGroupsTask): void {
  let codes = task.codes;
  let dst = task.dst;
  let scales = task.scales;
  const type = task.type;
  const tables = task.tables;
  const stride = task.stride;
  const low = i8x16.splat(15);
  const bytes: usize = type === Wide.F32 ? 64 : 32;
  const step = task.width >> 4;
  for (const end = scales + task.groups; scales < end; ++scales) {
    const table = tables + <usize>load<u8>(scales) * stride;
    for (let i: u32 = 0; i < step; ++i) {
      putSixteen(dst, table, nibbles(codes, low), type);
      dst += bytes;
      codes += 8;
    }
  }
}
