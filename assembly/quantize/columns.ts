// Quantization with blocks along the columns of a matrix that is not transposed. Each strip of rows is read twice: once
// for the amaxes of its columns, once for the codes.

import { CODES_BYTES } from "../cast/cast";
import { At, ENCODER_BYTES } from "../cast/encoder";
import { Wide } from "../contract";
import { applyRule, RULE_BYTES, scaleBytes } from "../core/scale";
import { columnAmaxes, spreadAmaxes } from "./amax";
import { loadPanel, PANEL } from "./panel";
import { largestWide } from "./quantize";
import { encodeScaled } from "./scaling";
import {
  columnsOf,
  prepareEncoderOf,
  prepareRuleOf,
  randomOf,
  rowsOf,
  ruleOf,
  scalesOf,
  scalingOf,
  sourceOf,
  sourceTypeOf,
  targetOf,
  tileColumnsOf,
  tileRowsOf,
  wordOf,
} from "./task";

/**
 * Maximum number of columns of a strip, a multiple of every tile's width. A strip has fewer columns if a panel could
 * not hold that many columns times tileRows rows.
 */
const WIDTH: u32 = 1024;

/** Byte offsets in the scratch memory, in this order. */
const RULE: usize = ENCODER_BYTES;
const CODES: usize = RULE + RULE_BYTES;
const PANEL_AT: usize = CODES + CODES_BYTES;
const AMAXES: usize = PANEL_AT + PANEL * 4;
const MULTIPLIERS: usize = AMAXES + WIDTH * 4;
const RANDOM: usize = MULTIPLIERS + WIDTH * 4;

/**
 * Quantizes rows [begin, end) of a task's matrix (task.ts), which is not transposed, in tiles of tileRows x
 * tileColumns, where tileColumns is 1 or 32. `begin` is a multiple of tileRows. Scales are [ceil(rows / tileRows),
 * columns]: each column of a tile has its own entry, also if the tile has 32 columns.
 */
export function quantizeColumns(task: usize, scratch: usize, begin: u32, end: u32): void {
  const src = sourceOf(task);
  const srcType = sourceTypeOf(task);
  const rows = rowsOf(task);
  const columns = columnsOf(task);
  const tileRows = tileRowsOf(task);
  const tileColumns = tileColumnsOf(task);
  const rule = ruleOf(task);
  const word = wordOf(task);
  const scaling = scalingOf(task);
  const dst = targetOf(task);
  const scales = scalesOf(task);
  prepareEncoderOf(task, scratch);
  prepareRuleOf(task, scratch + RULE, largestWide(srcType));
  const width = min<u32>(WIDTH, PANEL / tileRows);
  const amaxes = scratch + AMAXES;
  const multipliers = scratch + MULTIPLIERS;
  for (let r = begin; r < end; r += tileRows) {
    const h = min(tileRows, end - r);
    for (let c: u32 = 0; c < columns; c += width) {
      const w = min(width, columns - c);
      let panel = scratch + PANEL_AT;
      let pitch = w;
      if (srcType === Wide.F32) {
        panel = src + ((<usize>r * columns + c) << 2);
        pitch = columns;
      } else loadPanel(src, srcType, rows, columns, 0, r, h, c, w, panel);
      columnAmaxes(panel, pitch, h, w, amaxes);
      if (tileColumns > 1) spreadAmaxes(amaxes, w, tileColumns);
      const stored = scales + (<usize>(r / tileRows) * columns + c) * scaleBytes(rule);
      applyRule(scratch + RULE, amaxes, w, stored, multipliers);
      for (let i: u32 = 0; i < h; ++i) {
        const index = <u64>(r + i) * columns + c;
        const random = randomOf(task, scratch + RANDOM, r + i, c, w, columns);
        const to = dst + <usize>((index << load<u32>(scratch, At.Storage)) >> 3);
        const row = panel + ((<usize>i * pitch) << 2);
        // a row that lies in the input is not overwritten
        const result = srcType === Wide.F32 ? scratch + PANEL_AT : row;
        const codes = scratch + CODES;
        encodeScaled<v128>(
          row,
          result,
          to,
          w,
          multipliers,
          0,
          scaling,
          srcType,
          word,
          scratch,
          random,
          codes,
        );
      }
    }
  }
}
