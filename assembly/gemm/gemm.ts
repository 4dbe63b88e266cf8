// D[m, n] = sum over k of X[m, k] * W[n, k], by the arithmetic of one datapath of src/formats/datapath.ts, whose parameters are
// in the task block (gemm/task.ts). The work is divided into units. A unit is a block of rows by a panel, which is 8 or 16
// columns. The division depends only on the shape and the kernel, and no result depends on it.
//
// A unit keeps a state of 64 bytes per row of its block: one accumulator per column. Its outer loop is over steps of k, so that
// one step of the panel stays in L1 while the rows of the block stream past it.

import { Kernel } from "../contract";
import { SPAN_BYTES, stepExact } from "./exact";
import { fewRowsBytes, fewRowsGroups, isFewRows, multiplyFewRows, packFewRows } from "./few-rows";
import { ALIGNED_BYTES, stepNarrow } from "./narrow";
import { exponentBytes, fillTable, TABLE_BYTES, valueBytes } from "./pack";
import { packLines } from "./pack-lines";
import { stepPlain } from "./plain";
import { finishChain, storeTotals } from "./reduce";
import { stepScalar } from "./scalar";
import { columnsOf, intervalOf, kernelOf, paddedDepth, rowsOf, splitsOf, splitTileOf, stepOf } from "./task";
import { clearZeroSigns, stepWide } from "./wide";

const STATE_BYTES: usize = 64;
/** Stores and loads whose addresses are equal modulo PAGE wait for each other (4K aliasing). */
const PAGE: usize = 4096;
/**
 * A block has at least MIN_ROWS and at most MAX_ROWS rows. Within these limits, its packed rows of X take at most
 * BLOCK_BYTES bytes.
 */
const BLOCK_BYTES: u64 = 16 << 20;
const MAX_ROWS: u32 = 1024;
/** The maximum number of rows per block if there are fewer than 8 panels. */
const FEW_PANELS_ROWS: u32 = 64;
const MIN_ROWS: u32 = 16;

/** Columns per panel: the number of accumulators that fit in the state of a row. */
function panelOf(task: usize): u32 {
  return <u32>(STATE_BYTES / valueBytes(kernelOf(task)));
}

function panelsOf(task: usize): u32 {
  const width = panelOf(task);
  return (columnsOf(task) + width - 1) / width;
}

/** Rows per block, a multiple of 4. Blocks are smaller if there are few panels, so that every thread gets a unit. */
function blockRows(task: usize): u32 {
  const fitting = <u32>(BLOCK_BYTES / max<u64>(1, <u64>paddedDepth(task) * valueBytes(kernelOf(task))));
  const maxRows = panelsOf(task) < 8 ? FEW_PANELS_ROWS : MAX_ROWS;
  const rows = max(MIN_ROWS, min(maxRows, fitting));
  return (min(rows, max<u32>(1, rowsOf(task))) + 3) & ~3;
}

/** The number of units of the product. */
export function gemmUnits(task: usize): u32 {
  const rows = blockRows(task);
  return ((rowsOf(task) + rows - 1) / rows) * panelsOf(task);
}

// Layout of the scratch memory, in this order: the decoding tables of X and W; one line as f32, as packed values and as
// packed exponents; the packed rows of X and columns of W; states; totals; scales. Sizes are computed in u64, so that a
// K beyond the address space does not overflow before the allocation fails.

function tablesBytes(): usize {
  return 2 * TABLE_BYTES;
}

function lineBytes(task: usize): u64 {
  return <u64>paddedDepth(task) * 16 + 64;
}

/** Bytes of the packed exponents of `lines` lines, or of their spans (gemm/exact.ts). */
function packedExponentBytes(task: usize, lines: u32): u64 {
  const perLine = max<u64>(<u64>paddedDepth(task) * exponentBytes(kernelOf(task)), SPAN_BYTES);
  return (perLine * lines + 15) & ~15;
}

function packedValueBytes(task: usize, lines: u32): u64 {
  return (<u64>paddedDepth(task) * valueBytes(kernelOf(task)) * lines + 15) & ~15;
}

/**
 * The exact number of scratch bytes that each thread passes to `gemm`, 16-byte aligned. The number may exceed the
 * address space.
 */
export function gemmScratch(task: usize): f64 {
  const rows = blockRows(task);
  const panel = panelOf(task);
  const bytes: u64 =
    lineBytes(task) +
    packedValueBytes(task, rows + panel) +
    packedExponentBytes(task, rows) +
    packedExponentBytes(task, panel) +
    <u64>rows * (STATE_BYTES + 64) +
    tablesBytes() +
    fewRowsBytes(task) +
    64 +
    PAGE +
    ALIGNED_BYTES;
  return <f64>bytes;
}

export type Step = (
  t: usize,
  x: usize,
  xe: usize,
  w: usize,
  we: usize,
  n: u32,
  rows: u32,
  state: usize,
  scales: usize,
) => void;

/**
 * Returns the step function of a kernel. A call through the function table also keeps the compiler from inlining a hot
 * loop into a driver that V8 never optimises.
 */
export function stepFunction(kernel: i32): Step {
  if (kernel === Kernel.Narrow) return stepNarrow;
  if (kernel === Kernel.Wide) return stepWide;
  if (kernel === Kernel.Plain) return stepPlain;
  return kernel === Kernel.Exact ? stepExact : stepScalar;
}

/** Computes units [begin, end). `scratch` has gemmScratch(task) bytes and belongs to the calling thread. */
export function gemm(task: usize, scratch: usize, begin: u32, end: u32): void {
  const panels = panelsOf(task);
  const rows = blockRows(task);
  const panel = panelOf(task);
  const tables = scratch;
  const few = tables + tablesBytes();
  const line = few + <usize>fewRowsBytes(task);
  const x = line + <usize>lineBytes(task);
  const xe = x + <usize>packedValueBytes(task, rows);
  const w = xe + <usize>packedExponentBytes(task, rows);
  const we = w + <usize>packedValueBytes(task, panel);
  const states = we + <usize>packedExponentBytes(task, panel);
  fillTable(task, 0, tables);
  fillTable(task, 1, tables + TABLE_BYTES);

  const hasFewRows = isFewRows(task);
  if (hasFewRows) packFewRows(task, tables, line, few);
  let packed: u32 = -1;
  let tried = begin;
  for (let unit = begin; unit < end; unit++) {
    const block = unit / panels;
    const column = (unit - block * panels) * panel;
    if (hasFewRows && unit === tried) {
      const groups = fewRowsGroups(task, end - unit);
      tried += groups;
      if (multiplyFewRows(task, tables + TABLE_BYTES, line, few, column, groups)) {
        unit = tried - 1;
        continue;
      }
    }
    if (block !== packed) packLines(task, 0, tables, block * rows, rowsOf(task), rows, line, x, xe);
    packed = block;
    packLines(task, 1, tables + TABLE_BYTES, column, columnsOf(task), panel, line, w, we);
    multiply(task, block * rows, column, rows, panel, x, xe, w, we, states);
  }
}

/**
 * Computes one unit, and in it the splits of K one after the other. A split is a sum of chains, and a chain is computed
 * by successive steps in one accumulator.
 */
function multiply(
  task: usize,
  row: u32,
  column: u32,
  rows: u32,
  panel: u32,
  x: usize,
  xe: usize,
  w: usize,
  we: usize,
  states: usize,
): void {
  const kernel = kernelOf(task);
  const step = stepOf(task);
  const padded = paddedDepth(task);
  const totals = states + <usize>rows * STATE_BYTES;
  const free = totals + ((<usize>rows) << 6) + 64;
  const scales = free + ((states + PAGE / 2 - free) & (PAGE - 1)); // keeps scales and states apart modulo PAGE
  const run = stepFunction(kernel);
  const splits = splitsOf(task);
  const tile = splits === 1 ? padded : splitTileOf(task);
  const tiles = tile === 0 ? 0 : (padded + tile - 1) / tile;
  const splitDepth = ((tiles + splits - 1) / splits) * tile;
  for (let split: u32 = 0; split < splits; split++) {
    const last = min(padded, (split + 1) * splitDepth);
    const interval = chainLength(task, splitDepth);
    memory.fill(totals, 0, (<usize>rows) << 6);
    for (let chain = split * splitDepth; chain < last; chain += interval) {
      const stop = min(last, chain + interval);
      memory.fill(states, 0, <usize>rows * STATE_BYTES);
      for (let k = chain; k < stop; k += step) {
        const values = <usize>k * valueBytes(kernel);
        const exponents = <usize>k * exponentBytes(kernel);
        run(
          task,
          x + values * rows,
          xe + exponents * rows,
          w + values * panel,
          we + exponents * panel,
          step,
          rows,
          states,
          scales,
        );
      }
      if (kernel === Kernel.Wide) clearZeroSigns(states, rows);
      finishChain(task, row, column, chain, rows, panel, states, totals);
    }
    storeTotals(task, row, column, rows, panel, totals, split !== 0);
  }
}

/** The number of k's per chain: the promotion interval, or `all` if the interval is 0. */
function chainLength(task: usize, all: u32): u32 {
  const interval = intervalOf(task);
  return interval === 0 ? all : interval;
}
