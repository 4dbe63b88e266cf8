// Compares the values of rows with codes times scales.

import { Wide } from "../contract";
import { asF32 } from "../core/wide";
import {
  exempted,
  isFiltered,
  maxThreshold,
  RUN_BYTES,
  Run,
  relativeThreshold,
  settledChanges,
} from "./settled";
import { preparePairs, settledPairs, takeChanged } from "./settled-pairs";
import { addTo, boundOf, largerQuotient, TallyAt } from "./tally";

/** The number of elements compared at a time, a multiple of four. */
const RUN: u32 = 2048;
/** The number for f64, which the enum Wide lacks. */
const F64: u32 = 3;

/** The f32 value of a code. C is u16 if a byte has two codes. */
function codeValue<C>(codes: usize, index: u32, table: usize): f64 {
  if (sizeof<C>() === 1) return <f64>load<f32>(table + ((<usize>load<u8>(codes + index)) << 2));
  const pair = table + ((<usize>load<u8>(codes + (index >> 1))) << 3);
  return <f64>load<f32>(pair + ((index & 1) << 2));
}

/** The values of two codes, beginning at an even index. */
function codePair<C>(codes: usize, index: u32, table: usize): v128 {
  if (sizeof<C>() === 2)
    return f64x2.promote_low_f32x4(v128.load64_zero(table + ((<usize>load<u8>(codes + (index >> 1))) << 3)));
  const low = v128.load32_zero(table + ((<usize>load<u8>(codes + index)) << 2));
  return f64x2.promote_low_f32x4(
    v128.load32_lane(table + ((<usize>load<u8>(codes + index, 1)) << 2), low, 1),
  );
}

/** The original value at an index. V is f32, f64, or u16 for bf16. */
function valueBefore<V>(x: usize, index: u32): f64 {
  if (sizeof<V>() === 2) return <f64>reinterpret<f32>((<u32>load<u16>(x + ((<usize>index) << 1))) << 16);
  return sizeof<V>() === 4 ? <f64>load<f32>(x + ((<usize>index) << 2)) : load<f64>(x + ((<usize>index) << 3));
}

/** The larger lane. */
function maxOf(lanes: v128): f64 {
  return max(f64x2.extract_lane(lanes, 0), f64x2.extract_lane(lanes, 1));
}

/** Applies `largerQuotient` to both lanes in turn. */
function largerOfLanes(relative: f64, bound: f64, differences: v128, magnitudes: v128): f64 {
  const low = f64x2.extract_lane(magnitudes, 0);
  const high = f64x2.extract_lane(magnitudes, 1);
  const larger = largerQuotient(relative, bound, f64x2.extract_lane(differences, 0), low);
  return largerQuotient(larger, bound, f64x2.extract_lane(differences, 1), high);
}

/**
 * Compares the values of a run with their codes. C is u8 for one code per byte, u16 for two; codes begin at a byte boundary.
 */
function compareRun<V, C>(run: Run): void {
  const x = run.x;
  const codes = run.codes;
  const count = run.count;
  const table = run.table;
  const width = run.width;
  const pairContext = run.pairContext;
  const tally = run.tally;
  const first = run.scales;
  let scales = first;
  let until = run.until;
  let changed = i64x2.splat(0);
  let tail: f64 = 0;
  let notFinite = i64x2.splat(0);
  let infinite: f64 = 0;
  let noise = f64x2.splat(0);
  let signal = f64x2.splat(0);
  const largestFinite = f64x2.splat(f64.MAX_VALUE);
  let max = v128.load64_splat(tally + TallyAt.Max);
  let relative = load<f64>(tally + TallyAt.Relative);
  let bound = boundOf(relative);
  let bounds = f64x2.splat(bound);
  run.max = maxThreshold(maxOf(max));
  run.relative = relativeThreshold(relative);
  run.exempt = exempted(relative);
  let settled: u32 = 0;
  let i: u32 = 0;
  while (i < count) {
    if (sizeof<V>() < 8 && sizeof<C>() === 2 && pairContext) {
      i = settledPairs<V>(run, i);
      if (i === count) break;
      scales = first + ((i / width) << 2);
      until = 16;
    }
    const end = min(count, i + until);
    until = width;
    const scale = <f64>load<f32>(scales);
    const scaled = f64x2.splat(scale);
    scales += 4;
    // filter sixteen values in f32 first, at a fraction of the cost
    const isQuick = sizeof<V>() < 8 && sizeof<C>() === 1 && isFiltered(<f32>scale);
    while (i < end) {
      let stop = end;
      if (isQuick && i + 16 <= end) {
        const groupChanges = settledChanges<V>(run, i, <f32>scale);
        if (groupChanges >= 0) {
          settled += groupChanges;
          i += 16;
          continue;
        }
        stop = i + 16;
      }
      // a pair of codes is in one byte
      if (sizeof<C>() === 1 || !(i & 1))
        for (; i + 4 <= stop; i += 4) {
          let low: v128;
          let high: v128;
          if (sizeof<V>() < 8) {
            const four =
              sizeof<V>() === 2
                ? i32x4.shl(v128.load16x4_u(x + ((<usize>i) << 1)), 16)
                : v128.load(x + ((<usize>i) << 2));
            low = f64x2.promote_low_f32x4(four);
            high = f64x2.promote_low_f32x4(i64x2.shuffle(four, four, 1, 1));
          } else {
            low = v128.load(x + ((<usize>i) << 3));
            high = v128.load(x + ((<usize>i) << 3), 16);
          }
          const lowAfter = f64x2.mul(codePair<C>(codes, i, table), scaled);
          const highAfter = f64x2.mul(codePair<C>(codes, i + 2, table), scaled);
          changed = i64x2.sub(changed, i64x2.add(f64x2.ne(low, lowAfter), f64x2.ne(high, highAfter)));
          const lowBy = f64x2.abs(f64x2.sub(low, lowAfter));
          const highBy = f64x2.abs(f64x2.sub(high, highAfter));
          max = f64x2.pmax(f64x2.pmax(max, lowBy), highBy);
          const lowFinite = f64x2.le(lowBy, largestFinite);
          const highFinite = f64x2.le(highBy, largestFinite);
          const lowNoise = v128.and(lowBy, lowFinite);
          const highNoise = v128.and(highBy, highFinite);
          noise = f64x2.add(noise, f64x2.add(f64x2.mul(lowNoise, lowNoise), f64x2.mul(highNoise, highNoise)));
          const lowSignal = v128.and(low, lowFinite);
          const highSignal = v128.and(high, highFinite);
          signal = f64x2.add(
            signal,
            f64x2.add(f64x2.mul(lowSignal, lowSignal), f64x2.mul(highSignal, highSignal)),
          );
          low = f64x2.abs(low);
          high = f64x2.abs(high);
          notFinite = i64x2.sub(notFinite, v128.andnot(f64x2.le(low, largestFinite), lowFinite));
          notFinite = i64x2.sub(notFinite, v128.andnot(f64x2.le(high, largestFinite), highFinite));
          const exceeds = v128.or(
            f64x2.gt(lowBy, f64x2.mul(low, bounds)),
            f64x2.gt(highBy, f64x2.mul(high, bounds)),
          );
          if (v128.any_true(exceeds)) {
            relative = largerOfLanes(relative, bound, lowBy, low);
            relative = largerOfLanes(relative, bound, highBy, high);
            bound = boundOf(relative);
            bounds = f64x2.splat(bound);
          }
        }
      for (; i < stop; ++i) {
        const value = valueBefore<V>(x, i);
        const restored = codeValue<C>(codes, i, table) * scale;
        if (value === restored) {
          if (abs(value) <= f64.MAX_VALUE)
            signal = f64x2.add(signal, f64x2.replace_lane(f64x2.splat(0), 0, value * value));
          continue;
        }
        ++tail;
        const difference = abs(value - restored);
        if (difference <= f64.MAX_VALUE) {
          noise = f64x2.add(noise, f64x2.replace_lane(f64x2.splat(0), 0, difference * difference));
          signal = f64x2.add(signal, f64x2.replace_lane(f64x2.splat(0), 0, value * value));
        } else if (abs(value) <= f64.MAX_VALUE) ++infinite;
        max = f64x2.pmax(max, f64x2.splat(difference));
        relative = largerQuotient(relative, bound, difference, abs(value));
        bound = boundOf(relative);
        bounds = f64x2.splat(bound);
      }
      if (sizeof<V>() < 8) {
        run.max = maxThreshold(maxOf(max));
        run.relative = relativeThreshold(relative);
        run.exempt = exempted(relative);
      }
    }
  }
  if (pairContext) settled += takeChanged(pairContext);
  const changedCount = <f64>(settled + i64x2.extract_lane(changed, 0) + i64x2.extract_lane(changed, 1));
  store<f64>(tally, load<f64>(tally + TallyAt.Changed) + changedCount + tail, TallyAt.Changed);
  infinite += <f64>(i64x2.extract_lane(notFinite, 0) + i64x2.extract_lane(notFinite, 1));
  store<f64>(tally, load<f64>(tally, TallyAt.NotFinite) + infinite, TallyAt.NotFinite);
  addTo(tally + TallyAt.Noise, noise);
  addTo(tally + TallyAt.Signal, signal);
  store<f64>(tally, maxOf(max), TallyAt.Max);
  store<f64>(tally, relative, TallyAt.Relative);
}

/** Looks up `count` byte scales in a table of f32. Writes them to `buffer` and returns it. */
function spreadScales(bytes: usize, count: u32, table: usize, buffer: usize): usize {
  for (let i: usize = 0; i < <usize>count; ++i) {
    store<f32>(buffer + (i << 2), load<f32>(table + ((<usize>load<u8>(bytes + i)) << 2)));
  }
  return buffer;
}

/** The arguments of `compareRows`. */
@unmanaged
class CompareRowsTask {
  /** Rows of `columns` values. Their type is a Wide type, or 3 for f64. */
  values: usize;
  type: u32;
  rows: u32;
  columns: u32;
  /**
   * Codes have one byte each; with `pairs` two codes share a byte, the low half first, and `columns` and `width` are even.
   * `table` has the f32 values of the code, or of both codes, of each byte, within the limits of settled.ts.
   */
  codes: usize;
  pairs: u32;
  table: usize;
  /**
   * One multiplier for each block of `height` rows and `width` columns, in rows of `pitch`: f32, or bytes that index
   * `scaleTable` if that is not null.
   */
  scales: usize;
  scaleTable: usize;
  height: u32;
  width: u32;
  pitch: u32;
  /** 16-byte aligned memory for 4096 f32 and 144 more bytes. */
  buffer: usize;
  tally: usize;
}

/** Adds the changes of rows of values to the tally. */
export function compareRows(task: CompareRowsTask): void {
  const buffer = task.buffer;
  const run = changetype<Run>(buffer + 8 * RUN);
  const pairContext = buffer + 8 * RUN + RUN_BYTES;
  const pairs = task.pairs;
  const columns = task.columns;
  const width = task.width;
  const scaleTable = task.scaleTable;
  run.table = task.table;
  run.width = width;
  run.tally = task.tally;
  if (pairs) preparePairs(task.table, pairContext);
  for (let row: u32 = 0; row < task.rows; ++row) {
    const line = <usize>(row / task.height) * task.pitch;
    for (let column: u32 = 0; column < columns; column += RUN) {
      const count = min(RUN, columns - column);
      const at = <usize>row * columns + column;
      const first = line + column / width;
      const scaleCount = (column + count - 1) / width - column / width + 1;
      const until = width - (column % width);
      run.scales = scaleTable
        ? spreadScales(task.scales + first, scaleCount, scaleTable, buffer + 4 * RUN)
        : task.scales + (first << 2);
      run.count = count;
      run.until = until;
      run.codes = task.codes + (pairs ? at >> 1 : at);
      run.pairContext = pairs && until === width && width % 16 === 0 ? pairContext : 0;
      compareTyped(task, run, at);
    }
  }
}

/** Compares a run that begins at value `at`. */
function compareTyped(task: CompareRowsTask, run: Run, at: usize): void {
  const pairs = task.pairs;
  if (task.type === F64) {
    run.pairContext = 0;
    run.x = task.values + (at << 3);
    if (pairs) compareRun<f64, u16>(run);
    else compareRun<f64, u8>(run);
  } else if (task.type === Wide.Bf16) {
    run.x = task.values + (at << 1);
    if (pairs) compareRun<u16, u16>(run);
    else compareRun<u16, u8>(run);
  } else {
    run.x = asF32(task.values, task.type, at, run.count, task.buffer);
    if (pairs) compareRun<f32, u16>(run);
    else compareRun<f32, u8>(run);
  }
}
