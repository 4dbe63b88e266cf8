// Copies of ranges of a dimension.
import { gatherRuns } from "./runs";

/** The arguments of `copySlice`. */
@unmanaged
class CopySliceTask {
  x: usize;
  out: usize;
  xLength: usize;
  xFirst: usize;
  outLength: usize;
  outFirst: usize;
  count: usize;
  unit: usize;
}

/**
 * Copies slices xFirst to xFirst + count - 1 of x [outer, xLength] to slices outFirst to outFirst + count - 1 of
 * out [outer, outLength], for the outer indices [begin, end). A slice has `unit` bytes. If xLength is 1, the slice is copied
 * `count` times.
 */
export function copySlice(task: CopySliceTask, begin: usize, end: usize): void {
  const x = task.x;
  const out = task.out;
  const xLength = task.xLength;
  const xFirst = task.xFirst;
  const outLength = task.outLength;
  const outFirst = task.outFirst;
  const count = task.count;
  const unit = task.unit;
  for (let o = begin; o < end; ++o) {
    const src = x + (o * xLength + xFirst) * unit;
    const dst = out + (o * outLength + outFirst) * unit;
    if (xLength === 1) gatherRuns(src, 0, dst, unit, count);
    else memory.copy(dst, src, count * unit);
  }
}
