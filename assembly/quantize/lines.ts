// Quantization with one scale for each line of a matrix, of any length. A group of lines is read twice: once for the amaxes, once
// for the codes, unless it fits into one panel.

import { CODES_BYTES } from "../cast/cast";
import { At, ENCODER_BYTES, prepare, storageOf } from "../cast/encoder";
import { Overflow, Rounding, Wide } from "../contract";
import { applyRule, RULE_BYTES, scaleBytes } from "../core/scale";
import { lineAmaxes } from "./line-amaxes";
import { loadPanel, PANEL } from "./panel";
import { largestWide } from "./quantize";
import { encodeScaled, SINGLE_FACTOR_SHIFT } from "./scaling";
import {
  columnsOf,
  isTransposed,
  limitOf,
  prepareRuleOf,
  rowsOf,
  ruleOf,
  scalesOf,
  scalingOf,
  sourceOf,
  sourceTypeOf,
  targetOf,
  wordOf,
} from "./task";

/**
 * The number of lines of a group if the source is transposed, a multiple of four. A panel then reads runs of so many elements.
 */
const GROUP: u32 = 16;

/** Byte offsets in the scratch memory, in this order. */
const RULE: usize = ENCODER_BYTES;
const CODES: usize = RULE + RULE_BYTES;
const AMAXES: usize = CODES + CODES_BYTES;
const MULTIPLIERS: usize = AMAXES + GROUP * 4;
const STORED: usize = MULTIPLIERS + GROUP * 4;
const PANEL_AT: usize = STORED + GROUP * 4;

/**
 * Quantizes rows [begin, end) of a task's matrix (task.ts), each with its own scale. Ties round to even, overflow saturates. The
 * task's scale rule must have f32 scales.
 */
export function quantizeLines(task: usize, scratch: usize, begin: u32, end: u32): void {
  const src = sourceOf(task);
  const type = sourceTypeOf(task);
  const rows = rowsOf(task);
  const columns = columnsOf(task);
  const transposed = <u32>isTransposed(task);
  const word = wordOf(task);
  const scaling = scalingOf(task);
  const limit = limitOf(task);
  const size = scaleBytes(ruleOf(task));
  const isInput = type === Wide.F32 && !transposed;
  prepare(scratch, word, Rounding.TiesToEven, Overflow.Saturate, storageOf(word));
  prepareRuleOf(task, scratch + RULE, largestWide(type));
  const group: u32 = transposed ? GROUP : 1;
  const width: u32 = PANEL / group;
  const amaxes = scratch + AMAXES;
  for (let r = begin; r < end; r += group) {
    const h = min(group, end - r);
    memory.fill(amaxes, 0, GROUP * 4);
    lineAmaxes(src, type, rows, columns, transposed, r, h, width, scratch + PANEL_AT, amaxes);
    for (let i: usize = 0; i < h; ++i) {
      const at = amaxes + (i << 2);
      store<f32>(at, min(limit, load<f32>(at)));
    }
    applyRule(scratch + RULE, amaxes, h, scratch + STORED, scratch + MULTIPLIERS);
    memory.copy(scalesOf(task) + <usize>r * size, scratch + STORED, <usize>h * size);
    for (let c: u32 = 0; c < columns; c += width) {
      const w = min(width, columns - c);
      let panel = scratch + PANEL_AT;
      if (isInput) panel = src + ((<usize>r * columns + c) << 2);
      else if (columns > width) loadPanel(src, type, rows, columns, transposed, r, h, c, w, panel);
      for (let i: u32 = 0; i < h; ++i) {
        const row = panel + ((<usize>i * w) << 2);
        const index = <u64>(r + i) * columns + c;
        const to = targetOf(task) + <usize>((index << load<u32>(scratch, At.Storage)) >> 3);
        const multiplier = scratch + MULTIPLIERS + ((<usize>i) << 2);
        // a row that lies in the input is not overwritten
        const result = isInput ? scratch + PANEL_AT : row;
        const codes = scratch + CODES;
        encodeScaled<u32>(
          row,
          result,
          to,
          w,
          multiplier,
          SINGLE_FACTOR_SHIFT,
          scaling,
          type,
          word,
          scratch,
          0,
          codes,
        );
      }
    }
  }
}
