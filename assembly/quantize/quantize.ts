// Quantization: computes the codes and the block scales of a matrix. Each panel is loaded, and transformed for NVFP4 with a
// Hadamard transform; then its amaxes, scales and codes are computed.

import { CODES_BYTES } from "../cast/cast";
import { At, ENCODER_BYTES } from "../cast/encoder";
import { ScaleRule, Wide } from "../contract";
import { applyRule, RULE_BYTES, replaceAmax, scaleBytes } from "../core/scale";
import { blockAmaxes, mergeAmaxes } from "./amax";
import { chooseScale } from "./four-over-six";
import { transformRun } from "./hadamard";
import { lineAmaxes } from "./line-amaxes";
import { loadPanel, PANEL } from "./panel";
import { encodeScaled } from "./scaling";
import {
  columnsOf,
  isPart,
  isTransposed,
  lineAmaxesOf,
  prepareEncoderOf,
  prepareRuleOf,
  randomOf,
  rowsOf,
  ruleOf,
  scalesOf,
  scalingOf,
  sharesScales,
  signMaskOf,
  sourceOf,
  sourceTypeOf,
  targetOf,
  tileColumnsOf,
  tileRowsOf,
  transforms,
  wordOf,
} from "./task";

/** Byte offsets in the scratch memory, in this order. */
const RULE: usize = ENCODER_BYTES;
const CODES: usize = RULE + RULE_BYTES;
const PANEL_AT: usize = CODES + CODES_BYTES;
const AMAXES: usize = PANEL_AT + PANEL * 4;
const ROW_AMAXES: usize = AMAXES + PANEL / 4;
const MULTIPLIERS: usize = ROW_AMAXES + PANEL / 4;
const RANDOM: usize = MULTIPLIERS + PANEL / 4;

/** The largest finite value of a wide type. */
export function largestWide(type: u32): f32 {
  return reinterpret<f32>(type === Wide.F32 ? 0x7f7fffff : type === Wide.Bf16 ? 0x7f7f0000 : 0x477fe000);
}

/**
 * Quantizes rows [begin, end) of a task's matrix (task.ts). `begin` is a multiple of tileRows, and tileColumns is a
 * power of two. Scales are [rows, ceil(columns / tileColumns)]; if they are shared, they have one row for each tileRows
 * rows of the matrix. Overflow saturates.
 */
export function quantizeRows(task: usize, scratch: usize, begin: u32, end: u32): void {
  const src = sourceOf(task);
  const srcType = sourceTypeOf(task);
  let rows = rowsOf(task);
  let columns = columnsOf(task);
  const transposed = <u32>isTransposed(task);
  const tileRows = tileRowsOf(task);
  const blockShift = <i32>ctz(tileColumnsOf(task));
  const sharedScales = sharesScales(task);
  const rule = ruleOf(task);
  const word = wordOf(task);
  const rht = transforms(task);
  const signMask = signMaskOf(task);
  const part = isPart(task);
  const scaling = scalingOf(task);
  const amaxes = lineAmaxesOf(task);
  const dst = targetOf(task);
  const scales = scalesOf(task);
  prepareEncoderOf(task, scratch);
  prepareRuleOf(task, scratch + RULE, largestWide(srcType));
  const block: u32 = 1 << blockShift;
  let first: u32 = 0;
  let last = columns;
  if (tileRows === 1 && !transposed && !part && !amaxes && (columns & (block - 1)) === 0) {
    // every row has whole blocks, so the rows are treated as one long row
    first = begin * columns;
    last = end * columns;
    columns *= rows;
    rows = begin < end ? 1 : 0;
    begin = 0;
    end = rows;
  }
  const height: u32 = tileRows > 1 ? tileRows : transposed ? 16 : 1;
  const width: u32 = PANEL / 4 / max<u32>(height >> 2, 1);
  const blocks = (columns + block - 1) >> blockShift;
  const size = scaleBytes(rule);
  for (let r = begin; r < end; r += height) {
    const h = min(height, end - r);
    const scaleRow = sharedScales ? r / tileRows : r;
    const lines = amaxes + ((<usize>r) << 2);
    if (amaxes) lineAmaxes(src, srcType, rows, columns, transposed, r, h, width, scratch + PANEL_AT, lines);
    for (let c = first; c < last; c += width) {
      const w = min(width, last - c);
      let panel = scratch + PANEL_AT;
      let pitch = w;
      const isInput = srcType === Wide.F32 && !transposed;
      if (isInput) {
        panel = src + ((<usize>r * columns + c) << 2);
        pitch = columns;
      } else loadPanel(src, srcType, rows, columns, transposed, r, h, c, w, panel);
      if (rht) transformRun(panel, h * w, signMask);
      const firstScale = scales + (<usize>scaleRow * blocks + (c >> blockShift)) * size;
      const copies = sharedScales ? <u32>1 : h;
      if (tileRows > 1) {
        quantizeTiles(panel, pitch, h, w, blockShift, rule, scratch, firstScale);
        const bytes = <usize>((w + block - 1) >> blockShift) * size;
        for (let i: u32 = 1; i < copies; ++i)
          memory.copy(firstScale + <usize>(i * blocks) * size, firstScale, bytes);
      }
      for (let i: u32 = 0; i < h; ++i) {
        const row = panel + ((<usize>i * pitch) << 2);
        if (tileRows === 1) {
          const scale = firstScale + <usize>(i * blocks) * size;
          if (amaxes) replaceAmax(scratch + RULE, load<f32>(lines + ((<usize>i) << 2)));
          quantizeTiles(row, pitch, 1, w, blockShift, rule, scratch, scale);
        }
        const index = <u64>(r + i) * columns + c;
        const random = randomOf(task, scratch + RANDOM, r + i, c, w, columns);
        const to = dst + <usize>((index << load<u32>(scratch, At.Storage)) >> 3);
        const multipliers = scratch + MULTIPLIERS;
        // a row that lies in the input is not overwritten
        const result = isInput ? scratch + PANEL_AT : row;
        const codes = scratch + CODES;
        encodeScaled<u32>(
          row,
          result,
          to,
          w,
          multipliers,
          blockShift,
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

/**
 * Computes the scales and multipliers of one row of tiles, which is `height` rows of `width` elements, `pitch` apart.
 */
function quantizeTiles(
  x: usize,
  pitch: u32,
  height: u32,
  width: u32,
  blockShift: i32,
  rule: i32,
  scratch: usize,
  scales: usize,
): void {
  const block: i32 = 1 << blockShift;
  const count = <i32>((width + block - 1) >> blockShift);
  const amaxes = scratch + AMAXES;
  blockAmaxes(x, width, block, amaxes);
  for (let i: u32 = 1; i < height; ++i) {
    blockAmaxes(x + ((<usize>i * pitch) << 2), width, block, scratch + ROW_AMAXES);
    mergeAmaxes(amaxes, scratch + ROW_AMAXES, count);
  }
  const multipliers = scratch + MULTIPLIERS;
  if (rule !== ScaleRule.FourOverSix) {
    applyRule(scratch + RULE, amaxes, count, scales, multipliers);
    return;
  }
  for (let i: usize = 0; i < <usize>count; ++i) {
    const tile = x + (i << (blockShift + 2));
    const amax = load<f32>(amaxes + (i << 2));
    const code = chooseScale(
      scratch + RULE,
      tile,
      pitch,
      height,
      amax,
      scratch + ROW_AMAXES,
      multipliers + (i << 2),
    );
    store<u8>(scales + i, code);
  }
}
