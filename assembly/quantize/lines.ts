// Quantization with one scale for each line of a matrix, of any length. A group of lines is read twice: once for the amaxes, once
// for the codes, unless it fits into one panel.

import { CODES_BYTES } from "../cast/cast";
import { At, ENCODER_BYTES, prepare, storageOf } from "../cast/encoder";
import { Overflow, Rounding } from "../contract";
import { applyRule, RULE_BYTES, scaleBytes } from "../core/scale";
import { lineAmaxes } from "./line-amaxes";
import { isInPlace, openPanel, PANEL, PANEL_BYTES, Panel } from "./panel";
import { encodeScaled } from "./scaling";
import { limitOf, preparePanelOf, prepareRuleOf, prepareRunOf, QuantizeTask } from "./task";

/**
 * The number of lines of a group if the source is transposed, a multiple of four. A panel then reads runs of this many elements.
 */
const GROUP: u32 = 16;

/** Byte offsets in the scratch memory, in this order. */
const RULE: usize = ENCODER_BYTES;
const PANEL_RECORD: usize = RULE + RULE_BYTES;
const CODES: usize = PANEL_RECORD + PANEL_BYTES;
const AMAXES: usize = CODES + CODES_BYTES;
const MULTIPLIERS: usize = AMAXES + GROUP * 4;
const STORED: usize = MULTIPLIERS + GROUP * 4;
const PANEL_AT: usize = STORED + GROUP * 4;

/**
 * Quantizes rows [begin, end) of a task's matrix (task.ts), each with its own scale. Ties round to even, overflow saturates. The
 * task's scale rule must have f32 scales.
 */
export function quantizeLines(task: QuantizeTask, scratch: usize, begin: u32, end: u32): void {
  const columns = task.columns;
  const limit = limitOf(task);
  const size = scaleBytes(task.scale.rule);
  const panel = changetype<Panel>(scratch + PANEL_RECORD);
  preparePanelOf(task, panel, scratch + PANEL_AT);
  const word = task.scale.word;
  prepare(scratch, word, Rounding.TiesToEven, Overflow.Saturate, storageOf(word));
  prepareRunOf(task, scratch, scratch + CODES);
  prepareRuleOf(task, scratch + RULE);
  const group: u32 = task.transposed ? GROUP : 1;
  const width: u32 = PANEL / group;
  const amaxes = scratch + AMAXES;
  for (let r = begin; r < end; r += group) {
    const h = min(group, end - r);
    panel.row = r;
    panel.height = h;
    memory.fill(amaxes, 0, GROUP * 4);
    lineAmaxes(panel, width, amaxes);
    for (let i: usize = 0; i < h; ++i) {
      const at = amaxes + (i << 2);
      store<f32>(at, min(limit, load<f32>(at)));
    }
    applyRule(scratch + RULE, amaxes, h, scratch + STORED, scratch + MULTIPLIERS);
    memory.copy(task.scales + <usize>r * size, scratch + STORED, <usize>h * size);
    for (let c: u32 = 0; c < columns; c += width) {
      const w = min(width, columns - c);
      // one panel is still open
      if (columns > width) openPanel(panel, c, w);
      for (let i: u32 = 0; i < h; ++i) {
        const row = panel.values + ((<usize>i * panel.pitch) << 2);
        const index = <u64>(r + i) * columns + c;
        const to = task.dst + <usize>((index << load<u32>(scratch, At.Storage)) >> 3);
        // a row that lies in the input is not overwritten
        store<usize>(scratch, isInPlace(panel) ? scratch + PANEL_AT : row, At.Result);
        encodeScaled<u32>(scratch, row, to, w, scratch + MULTIPLIERS + ((<usize>i) << 2));
      }
    }
  }
}
