// Packs the rows of a block of X, or of a panel of W, in the order in which the step functions read them.

import { Kernel } from "../contract";
import { clearSpan, coverSpan, SPAN_BYTES } from "./exact";
import { exponentBytes, Line, packLine, valueBytes } from "./pack";
import { GemmTask, stepOf } from "./task";

/** The placement of packed lines in a packed operand. */
@unmanaged
export class Placement {
  /** The number of values of a line, and of a step. */
  padded: u32;
  step: u32;
  /** The distance in values between consecutive steps, and between consecutive values of a step. */
  stepPitch: usize;
  inner: usize;
}

/** The size of a Placement in bytes. */
export const PLACEMENT_BYTES: usize = 16;

/** Copies a packed line of values of `bytes` bytes to its positions in the packed operand. */
export function scatter(placement: Placement, source: usize, target: usize, bytes: usize): void {
  const padded = placement.padded;
  const step = placement.step;
  const stepPitch = placement.stepPitch;
  const inner = placement.inner;
  for (let k: u32 = 0; k < padded; k += step) {
    const from = source + <usize>k * bytes;
    if (inner === 1) memory.copy(target, from, <usize>step * bytes);
    else spread(from, target, bytes, step, inner * bytes);
    target += stepPitch * bytes;
  }
}

function spread(source: usize, target: usize, bytes: usize, count: u32, pitch: usize): void {
  if (bytes === 8) spreadAs<u64>(source, target, count, pitch);
  else if (bytes === 4) spreadAs<u32>(source, target, count, pitch);
  else if (bytes === 2) spreadAs<u16>(source, target, count, pitch);
  else spreadAs<u8>(source, target, count, pitch);
}

function spreadAs<T>(source: usize, target: usize, count: u32, pitch: usize): void {
  const end = source + count * sizeof<T>();
  while (source < end) {
    store<T>(target, load<T>(source));
    source += sizeof<T>();
    target += pitch;
  }
}

/** The rows of a block of X, or of a panel of W, and the memory of their packed form. */
@unmanaged
export class Lines extends Line {
  /** The number of rows. */
  lines: u32;
  /** The packed values and exponents. */
  packed: usize;
  packedExponents: usize;
}

/** The size of a Lines in bytes. */
export const LINES_BYTES: usize = 48;

/**
 * Packs rows of operand 0 (X) or 1 (W), starting at row `first`; beyond the end of the operand, the last row is packed instead.
 * In a step of X, one row follows another. In a step of W, the rows are interleaved: [step][lines]. For kernels that align
 * products two k's at a time, the exponents of W are interleaved in pairs: [step / 2][lines][2]. `scratch` has 2 *
 * PLACEMENT_BYTES bytes.
 */
export function packLines(task: GemmTask, to: Lines, first: u32, scratch: usize): void {
  const kernel = task.kernel;
  const step = stepOf(task);
  const isX = to.operand === 0;
  const count = isX ? task.rows : task.columns;
  const lines = to.lines;
  const pitch: usize = isX ? <usize>step : 1;
  const bytes = valueBytes(kernel);
  const placement = changetype<Placement>(scratch);
  placement.padded = to.padded;
  placement.step = step;
  placement.stepPitch = <usize>step * lines;
  placement.inner = isX ? 1 : lines;
  const interleave: u32 = !isX && kernel !== Kernel.Scalar ? 2 : 1;
  const exponentPlacement = changetype<Placement>(scratch + PLACEMENT_BYTES);
  exponentPlacement.padded = to.padded / interleave;
  exponentPlacement.step = step / interleave;
  exponentPlacement.stepPitch = placement.stepPitch / interleave;
  exponentPlacement.inner = placement.inner;
  if (kernel === Kernel.Exact && !isX) clearSpan(to.packedExponents);
  for (let i: u32 = 0; i < lines; i++) {
    packLine(task, task.promotion, to, min(first + i, count - 1));
    scatter(placement, to.values, to.packed + <usize>i * pitch * bytes, bytes);
    if (kernel === Kernel.Exact) {
      const span = to.packedExponents + (isX ? <usize>i * SPAN_BYTES : 0);
      if (isX) clearSpan(span);
      coverSpan(span, to.values, task.depth);
    } else if (exponentBytes(kernel)) {
      const pairBytes = exponentBytes(kernel) * interleave;
      const target = to.packedExponents + <usize>i * pitch * pairBytes;
      scatter(exponentPlacement, to.exponents, target, pairBytes);
    }
  }
}
