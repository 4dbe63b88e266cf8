// Quantization with blocks along the columns of a matrix that is not transposed. Each strip of rows is read twice: once
// for the amaxes of its columns, once for the codes.

import { CODES_BYTES } from "../cast/cast";
import { At, ENCODER_BYTES } from "../cast/encoder";
import { applyRule, RULE_BYTES, scaleBytes } from "../core/scale";
import { columnAmaxes, spreadAmaxes } from "./amax";
import { isInPlace, openPanel, PANEL, PANEL_BYTES, Panel } from "./panel";
import { encodeScaled } from "./scaling";
import { prepareEncoderOf, preparePanelOf, prepareRuleOf, QuantizeTask, randomOf } from "./task";

/**
 * Maximum number of columns of a strip, a multiple of every tile's width. A strip has fewer columns if a panel could
 * not hold that many columns times tileRows rows.
 */
const WIDTH: u32 = 1024;

/** Byte offsets in the scratch memory, in this order. */
const RULE: usize = ENCODER_BYTES;
const PANEL_RECORD: usize = RULE + RULE_BYTES;
const CODES: usize = PANEL_RECORD + PANEL_BYTES;
const PANEL_AT: usize = CODES + CODES_BYTES;
const AMAXES: usize = PANEL_AT + PANEL * 4;
const MULTIPLIERS: usize = AMAXES + WIDTH * 4;
const RANDOM: usize = MULTIPLIERS + WIDTH * 4;

/**
 * Quantizes rows [begin, end) of a task's matrix (task.ts), which is not transposed, in tiles of tileRows x
 * tileColumns, where tileColumns is 1 or 32. `begin` is a multiple of tileRows. Scales are [ceil(rows / tileRows),
 * columns]: each column of a tile has its own entry, also if the tile has 32 columns.
 */
export function quantizeColumns(task: QuantizeTask, scratch: usize, begin: u32, end: u32): void {
  const columns = task.columns;
  const tileRows = task.tileRows;
  const tileColumns = task.tileColumns;
  const panel = changetype<Panel>(scratch + PANEL_RECORD);
  preparePanelOf(task, panel, scratch + PANEL_AT);
  prepareEncoderOf(task, scratch, scratch + CODES);
  prepareRuleOf(task, scratch + RULE);
  const size = scaleBytes(task.scale.rule);
  const width = min<u32>(WIDTH, PANEL / tileRows);
  const amaxes = scratch + AMAXES;
  const multipliers = scratch + MULTIPLIERS;
  for (let r = begin; r < end; r += tileRows) {
    const h = min(tileRows, end - r);
    panel.row = r;
    panel.height = h;
    for (let c: u32 = 0; c < columns; c += width) {
      const w = min(width, columns - c);
      openPanel(panel, c, w);
      columnAmaxes(panel.values, panel.pitch, h, w, amaxes);
      if (tileColumns > 1) spreadAmaxes(amaxes, w, tileColumns);
      const stored = task.scales + (<usize>(r / tileRows) * columns + c) * size;
      applyRule(scratch + RULE, amaxes, w, stored, multipliers);
      for (let i: u32 = 0; i < h; ++i) {
        const index = <u64>(r + i) * columns + c;
        const to = task.dst + <usize>((index << load<u32>(scratch, At.Storage)) >> 3);
        const row = panel.values + ((<usize>i * panel.pitch) << 2);
        store<usize>(scratch, randomOf(task, scratch + RANDOM, index, w), At.Random);
        // a row that lies in the input is not overwritten
        store<usize>(scratch, isInPlace(panel) ? scratch + PANEL_AT : row, At.Result);
        encodeScaled<v128>(scratch, row, to, w, multipliers);
      }
    }
  }
}
