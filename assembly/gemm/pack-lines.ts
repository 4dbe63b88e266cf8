// Packs the rows of a block of X, or of a panel of W, in the order in which the step functions read them.

import { Kernel } from "../contract";
import { clearSpan, coverSpan, SPAN_BYTES } from "./exact";
import { exponentBytes, packLine, valueBytes } from "./pack";
import { depthOf, kernelOf, paddedDepth, stepOf } from "./task";

/**
 * Copies a packed line of `padded` values of `bytes` bytes to its positions in the packed operand. Consecutive values
 * of a step are `inner` values apart, and consecutive steps `stepPitch` values.
 */
export function scatter(
  source: usize,
  target: usize,
  bytes: usize,
  padded: u32,
  step: u32,
  stepPitch: usize,
  inner: usize,
): void {
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

/**
 * Packs `lines` rows of operand 0 (X) or 1 (W), starting at row `first` of `count`; beyond the end of the operand, the
 * last row is packed instead. In a step of X, one row follows another. In a step of W, the rows are interleaved:
 * [step][lines]. For kernels that align products two k's at a time, the exponents of W are interleaved in pairs: [step
 * / 2][lines][2].
 */
export function packLines(
  task: usize,
  operand: u32,
  table: usize,
  first: u32,
  count: u32,
  lines: u32,
  line: usize,
  values: usize,
  exponents: usize,
): void {
  const kernel = kernelOf(task);
  const step = stepOf(task);
  const padded = paddedDepth(task);
  const inner: usize = operand === 0 ? 1 : lines;
  const pitch: usize = operand === 0 ? <usize>step : 1;
  const stepPitch = <usize>step * lines;
  const lineValues = line + <usize>padded * 4;
  const lineExponents = lineValues + <usize>padded * 8;
  if (kernel === Kernel.Exact && operand === 1) clearSpan(exponents);
  for (let i: u32 = 0; i < lines; i++) {
    packLine(task, operand, table, min(first + i, count - 1), padded, line, lineValues, lineExponents);
    scatter(
      lineValues,
      values + <usize>i * pitch * valueBytes(kernel),
      valueBytes(kernel),
      padded,
      step,
      stepPitch,
      inner,
    );
    if (kernel === Kernel.Exact) {
      const span = exponents + (operand === 0 ? <usize>i * SPAN_BYTES : 0);
      if (operand === 0) clearSpan(span);
      coverSpan(span, lineValues, depthOf(task));
    } else if (exponentBytes(kernel)) {
      const interleave: u32 = operand === 1 && kernel !== Kernel.Scalar ? 2 : 1;
      const bytes = exponentBytes(kernel) * interleave;
      scatter(
        lineExponents,
        exponents + <usize>i * pitch * bytes,
        bytes,
        padded / interleave,
        step / interleave,
        stepPitch / interleave,
        inner,
      );
    }
  }
}
