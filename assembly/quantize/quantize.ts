// Quantization: computes the codes and block scales of a matrix. Each panel is loaded and, for NVFP4 with a Hadamard transform,
// transformed; then its amaxes, scales and codes are computed.

import { CODES_BYTES } from "../cast/cast";
import { At, ENCODER_BYTES } from "../cast/encoder";
import { ScaleRule } from "../contract";
import { applyRule, RULE_BYTES, RuleAt, replaceAmax, scaleBytes } from "../core/scale";
import { blockAmaxes, mergeAmaxes } from "./amax";
import { chooseScale, TILE_BYTES, Tile } from "./four-over-six";
import { transformRun } from "./hadamard";
import { lineAmaxes } from "./line-amaxes";
import { isInPlace, openPanel, PANEL, PANEL_BYTES, Panel } from "./panel";
import { encodeScaled } from "./scaling";
import { isPart, prepareEncoderOf, preparePanelOf, prepareRuleOf, QuantizeTask, randomOf } from "./task";

/** Byte offsets in the scratch memory, in this order. */
const RULE: usize = ENCODER_BYTES;
const PANEL_RECORD: usize = RULE + RULE_BYTES;
const TILE: usize = PANEL_RECORD + PANEL_BYTES;
const CODES: usize = TILE + TILE_BYTES;
const PANEL_AT: usize = CODES + CODES_BYTES;
const AMAXES: usize = PANEL_AT + PANEL * 4;
const ROW_AMAXES: usize = AMAXES + PANEL / 4;
const MULTIPLIERS: usize = ROW_AMAXES + PANEL / 4;
const RANDOM: usize = MULTIPLIERS + PANEL / 4;

/**
 * Quantizes rows [begin, end) of a task's matrix (task.ts). `begin` is a multiple of tileRows, and tileColumns is a
 * power of two. Scales are [rows, ceil(columns / tileColumns)]; if they are shared, they have one row for each tileRows
 * rows of the matrix. Overflow saturates.
 */
export function quantizeRows(task: QuantizeTask, scratch: usize, begin: u32, end: u32): void {
  const tileRows = task.tileRows;
  const block = task.tileColumns;
  const blockShift = <i32>ctz(block);
  const amaxes = task.lineAmaxes;
  const panel = changetype<Panel>(scratch + PANEL_RECORD);
  preparePanelOf(task, panel, scratch + PANEL_AT);
  prepareEncoderOf(task, scratch, scratch + CODES);
  store<i32>(scratch, blockShift, At.MultiplierShift);
  prepareRuleOf(task, scratch + RULE);
  let first: u32 = 0;
  let last = task.columns;
  if (tileRows === 1 && !task.transposed && !isPart(task) && !amaxes && (last & (block - 1)) === 0) {
    // every row has whole blocks, so the rows are treated as one long row
    first = begin * last;
    last = end * last;
    panel.columns *= panel.rows;
    begin = 0;
    end = first < last ? 1 : 0;
    panel.rows = end;
  }
  const columns = panel.columns;
  const height: u32 = tileRows > 1 ? tileRows : task.transposed ? 16 : 1;
  const width: u32 = PANEL / 4 / max<u32>(height >> 2, 1);
  const blocks = (columns + block - 1) >> blockShift;
  const size = scaleBytes(task.scale.rule);
  const sharedScales = task.sharedScales;
  const multipliers = scratch + MULTIPLIERS;
  for (let r = begin; r < end; r += height) {
    const h = min(height, end - r);
    panel.row = r;
    panel.height = h;
    const scaleRow = sharedScales ? r / tileRows : r;
    const lines = amaxes + ((<usize>r) << 2);
    if (amaxes) lineAmaxes(panel, width, lines);
    for (let c = first; c < last; c += width) {
      const w = min(width, last - c);
      openPanel(panel, c, w);
      if (task.transforms) transformRun(panel.values, h * w, task.signMask);
      const firstScale = task.scales + (<usize>scaleRow * blocks + (c >> blockShift)) * size;
      const copies = sharedScales ? <u32>1 : h;
      if (tileRows > 1) {
        quantizeTiles(scratch, panel.values, h, firstScale);
        const bytes = <usize>((w + block - 1) >> blockShift) * size;
        for (let i: u32 = 1; i < copies; ++i)
          memory.copy(firstScale + <usize>(i * blocks) * size, firstScale, bytes);
      }
      for (let i: u32 = 0; i < h; ++i) {
        const row = panel.values + ((<usize>i * panel.pitch) << 2);
        if (tileRows === 1) {
          const scale = firstScale + <usize>(i * blocks) * size;
          if (amaxes) replaceAmax(scratch + RULE, load<f32>(lines + ((<usize>i) << 2)));
          quantizeTiles(scratch, row, 1, scale);
        }
        const index = <u64>(r + i) * columns + c;
        const to = task.dst + <usize>((index << load<u32>(scratch, At.Storage)) >> 3);
        store<usize>(scratch, randomOf(task, scratch + RANDOM, index, w), At.Random);
        // a row that lies in the input is not overwritten
        store<usize>(scratch, isInPlace(panel) ? scratch + PANEL_AT : row, At.Result);
        encodeScaled<u32>(scratch, row, to, w, multipliers);
      }
    }
  }
}

/** Computes the scales and multipliers of one row of tiles, which is `height` rows of the open panel from `x` on. */
function quantizeTiles(scratch: usize, x: usize, height: u32, scales: usize): void {
  const panel = changetype<Panel>(scratch + PANEL_RECORD);
  const pitch = panel.pitch;
  const width = panel.width;
  const blockShift = load<i32>(scratch, At.MultiplierShift);
  const block: i32 = 1 << blockShift;
  const count = <i32>((<u32>width + block - 1) >> blockShift);
  const amaxes = scratch + AMAXES;
  blockAmaxes(x, width, block, amaxes);
  for (let i: u32 = 1; i < height; ++i) {
    blockAmaxes(x + ((<usize>i * pitch) << 2), width, block, scratch + ROW_AMAXES);
    mergeAmaxes(amaxes, scratch + ROW_AMAXES, count);
  }
  const rule = scratch + RULE;
  const multipliers = scratch + MULTIPLIERS;
  if (load<i32>(rule, RuleAt.Rule) !== ScaleRule.FourOverSix) {
    applyRule(rule, amaxes, count, scales, multipliers);
    return;
  }
  const tile = changetype<Tile>(scratch + TILE);
  tile.pitch = pitch;
  tile.height = height;
  for (let i: usize = 0; i < <usize>count; ++i) {
    tile.values = x + (i << (blockShift + 2));
    const amax = load<f32>(amaxes + (i << 2));
    const code = chooseScale(rule, tile, amax, scratch + ROW_AMAXES, multipliers + (i << 2));
    store<u8>(scales + i, code);
  }
}
