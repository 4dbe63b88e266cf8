// D[m, n] = sum over k of X[m, k] * W[n, k], by the arithmetic of one datapath of src/formats/datapath.ts, whose parameters are
// in the task (gemm/task.ts). The work is divided into units. A unit is a block of rows by a panel, which is 8 or 16
// columns. The division depends only on the shape and the kernel, and no result depends on it.
//
// A unit keeps a state of 64 bytes per row of its block: one accumulator per column. Its outer loop is over steps of k, so that
// one step of the panel stays in L1 while the rows of the block stream past it.

import { Kernel } from "../contract";
import { SPAN_BYTES, stepExact } from "./exact";
import { fewRowsBytes, fewRowsGroups, isFewRows, multiplyFewRows, packFewRows } from "./few-rows";
import { ALIGNED_BYTES, stepNarrow } from "./narrow";
import { exponentBytes, fillTable, TABLE_BYTES, valueBytes } from "./pack";
import { LINES_BYTES, Lines, PLACEMENT_BYTES, packLines } from "./pack-lines";
import { stepPlain } from "./plain";
import { finishChain, storeTotals, UNIT_BYTES, Unit } from "./reduce";
import { stepScalar } from "./scalar";
import { GemmTask, ProductTask, paddedDepth, stepOf } from "./task";
import { Tile } from "./tile";
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
function panelOf(task: GemmTask): u32 {
  return <u32>(STATE_BYTES / valueBytes(task.kernel));
}

function panelsOf(task: GemmTask): u32 {
  const width = panelOf(task);
  return (task.columns + width - 1) / width;
}

/** Rows per block, a multiple of 4. Blocks are smaller if there are few panels, so that every thread gets a unit. */
function blockRows(task: GemmTask): u32 {
  const fitting = <u32>(BLOCK_BYTES / max<u64>(1, <u64>paddedDepth(task) * valueBytes(task.kernel)));
  const maxRows = panelsOf(task) < 8 ? FEW_PANELS_ROWS : MAX_ROWS;
  const rows = max(MIN_ROWS, min(maxRows, fitting));
  return (min(rows, max<u32>(1, task.rows)) + 3) & ~3;
}

/** The number of units of the product. */
export function gemmUnits(task: GemmTask): u32 {
  const rows = blockRows(task);
  return ((task.rows + rows - 1) / rows) * panelsOf(task);
}

// Layout of the scratch memory, in this order: records; the decoding tables of X and W; one line as f32, as packed values and as
// packed exponents; the packed rows of X and columns of W; states; totals; scales. Sizes are computed in u64, so that a
// K beyond the address space does not overflow before the allocation fails.

const RECORDS_BYTES: usize = UNIT_BYTES + 2 * LINES_BYTES + 2 * PLACEMENT_BYTES;

function tablesBytes(): usize {
  return 2 * TABLE_BYTES;
}

function lineBytes(task: GemmTask): u64 {
  return <u64>paddedDepth(task) * 16 + 64;
}

/** Bytes of the packed exponents of `lines` lines, or of their spans (gemm/exact.ts). */
function packedExponentBytes(task: GemmTask, lines: u32): u64 {
  const perLine = max<u64>(<u64>paddedDepth(task) * exponentBytes(task.kernel), SPAN_BYTES);
  return (perLine * lines + 15) & ~15;
}

function packedValueBytes(task: GemmTask, lines: u32): u64 {
  return (<u64>paddedDepth(task) * valueBytes(task.kernel) * lines + 15) & ~15;
}

/**
 * The exact number of scratch bytes that each thread passes to `gemm`, 16-byte aligned. The number may exceed the
 * address space.
 */
export function gemmScratch(task: GemmTask): f64 {
  const rows = blockRows(task);
  const panel = panelOf(task);
  const bytes: u64 =
    lineBytes(task) +
    packedValueBytes(task, rows + panel) +
    packedExponentBytes(task, rows) +
    packedExponentBytes(task, panel) +
    <u64>rows * (STATE_BYTES + 64) +
    RECORDS_BYTES +
    tablesBytes() +
    fewRowsBytes(task) +
    64 +
    PAGE +
    ALIGNED_BYTES;
  return <f64>bytes;
}

export type Step = (task: ProductTask, tile: Tile) => void;

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
export function gemm(task: GemmTask, scratch: usize, begin: u32, end: u32): void {
  const panels = panelsOf(task);
  const rows = blockRows(task);
  const panel = panelOf(task);
  const unit = changetype<Unit>(scratch);
  const x = changetype<Lines>(scratch + UNIT_BYTES);
  const w = changetype<Lines>(scratch + UNIT_BYTES + LINES_BYTES);
  const placements = scratch + UNIT_BYTES + 2 * LINES_BYTES;
  const tables = scratch + RECORDS_BYTES;
  const few = tables + tablesBytes();
  const line = few + <usize>fewRowsBytes(task);
  const packed = line + <usize>lineBytes(task);
  openLines(task, x, 0, tables, line);
  x.lines = rows;
  x.packed = packed;
  x.packedExponents = packed + <usize>packedValueBytes(task, rows);
  openLines(task, w, 1, tables + TABLE_BYTES, line);
  w.lines = panel;
  w.packed = x.packedExponents + <usize>packedExponentBytes(task, rows);
  w.packedExponents = w.packed + <usize>packedValueBytes(task, panel);
  unit.rows = rows;
  unit.panel = panel;
  unit.step = stepOf(task);
  unit.packedX = x.packed;
  unit.packedXe = x.packedExponents;
  unit.packedW = w.packed;
  unit.packedWe = w.packedExponents;
  unit.states = w.packedExponents + <usize>packedExponentBytes(task, panel);
  unit.totals = unit.states + <usize>rows * STATE_BYTES;
  const free = unit.totals + ((<usize>rows) << 6) + 64;
  unit.scales = free + ((unit.states + PAGE / 2 - free) & (PAGE - 1)); // keeps scales and states apart modulo PAGE
  fillTable(task, 0, x.table);
  fillTable(task, 1, w.table);

  const hasFewRows = isFewRows(task);
  if (hasFewRows) packFewRows(task, x, few);
  let packedBlock: u32 = -1;
  let tried = begin;
  for (let index = begin; index < end; index++) {
    const block = index / panels;
    const column = (index - block * panels) * panel;
    if (hasFewRows && index === tried) {
      const groups = fewRowsGroups(task, end - index);
      tried += groups;
      if (multiplyFewRows(task, w, few, column, groups)) {
        index = tried - 1;
        continue;
      }
    }
    if (block !== packedBlock) packLines(task, x, block * rows, placements);
    packedBlock = block;
    packLines(task, w, column, placements);
    unit.row = block * rows;
    unit.column = column;
    multiply(task, unit);
  }
}

/** Sets the operand, the table and the memory of a line. The memory at `line` has lineBytes(task) bytes. */
function openLines(task: GemmTask, lines: Lines, operand: u32, table: usize, line: usize): void {
  const padded = paddedDepth(task);
  lines.operand = operand;
  lines.table = table;
  lines.padded = padded;
  lines.line = line;
  lines.values = line + <usize>padded * 4;
  lines.exponents = lines.values + <usize>padded * 8;
}

/**
 * Computes one unit, and in it the splits of K one after the other. A split is a sum of chains, and a chain is computed
 * by successive steps in one accumulator.
 */
function multiply(task: GemmTask, unit: Unit): void {
  const kernel = task.kernel;
  const step = unit.step;
  const rows = unit.rows;
  const panel = unit.panel;
  const padded = paddedDepth(task);
  const run = stepFunction(kernel);
  const splits = task.splits;
  const tile = splits === 1 ? padded : task.splitTile;
  const tiles = tile === 0 ? 0 : (padded + tile - 1) / tile;
  const splitDepth = ((tiles + splits - 1) / splits) * tile;
  for (let split: u32 = 0; split < splits; split++) {
    const last = min(padded, (split + 1) * splitDepth);
    const interval = chainLength(task, splitDepth);
    memory.fill(unit.totals, 0, (<usize>rows) << 6);
    for (let chain = split * splitDepth; chain < last; chain += interval) {
      const stop = min(last, chain + interval);
      memory.fill(unit.states, 0, <usize>rows * STATE_BYTES);
      for (let k = chain; k < stop; k += step) {
        const values = <usize>k * valueBytes(kernel);
        const exponents = <usize>k * exponentBytes(kernel);
        unit.x = unit.packedX + values * rows;
        unit.xe = unit.packedXe + exponents * rows;
        unit.w = unit.packedW + values * panel;
        unit.we = unit.packedWe + exponents * panel;
        run(task, unit);
      }
      if (kernel === Kernel.Wide) clearZeroSigns(unit.states, rows);
      finishChain(task, unit, chain);
    }
    storeTotals(task, unit, split !== 0);
  }
}

/** The number of k's per chain: the promotion interval, or `all` if the interval is 0. */
function chainLength(task: GemmTask, all: u32): u32 {
  const interval = task.interval;
  return interval === 0 ? all : interval;
}
