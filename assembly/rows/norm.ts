// LayerNorm and RMSNorm over the last dimension, in f32. K is `columns`. g is gamma, or gamma + 1 if `zeroCentered`.
// Every operation is rounded, in the order written:
//
//   mean = sum(x) / K                        rstd = 1 / sqrt(sum((x - mean) (x - mean)) / K + epsilon)
//   y = rstd (x - mean)                      out = g y + beta
//   d = g grad, a = sum(d) / K, b = sum(d y) / K             dx = rstd (d + (-b y - a))
//   dgamma = column sum of grad y            dbeta = column sum of grad
//
// If `mean` is null, the norm is RMSNorm: mean and a are +0, and subtracting +0 changes nothing. If `beta` is null, it
// is not added. Sums have the order of core/reduce.ts. K = 0 gives NaN as `mean` and `rstd`, and no elements.
//
// Every export takes `scratch`, eight buffers of the calling thread (core/scratch.ts).
import { addEach, addScalar, fill, multiply, multiplyScalar } from "../core/chunk";
import { addTerms, foldLanes, ROWS } from "../core/reduce";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, widen } from "../core/wide";

/** The arguments of `norm`. */
@unmanaged
class NormTask {
  x: usize;
  xType: u32;
  gamma: usize;
  beta: usize;
  parameterType: u32;
  out: usize;
  outType: u32;
  mean: usize;
  rstd: usize;
  columns: usize;
  epsilon: f32;
  zeroCentered: bool;
}

/** Normalises rows [begin, end) of x[rows, columns] into `out`, and writes `mean` and `rstd`, one f32 each per row. */
export function norm(task: NormTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  const g = scratch + BUFFER;
  const lanes = g + BUFFER;
  const length = <f32>columns;
  for (let row = begin; row < end; row++) {
    const first = row * columns;
    let center: f32 = 0;
    if (task.mean) {
      fill(lanes, 0, 32);
      for (let i: usize = 0; i < columns; i += CHUNK) {
        const count = min(CHUNK, columns - i);
        widen(task.x, task.xType, first + i, count, scratch);
        addTerms(lanes, scratch, count);
      }
      center = foldLanes(lanes) / length;
      store<f32>(task.mean + (row << 2), center);
    }
    fill(lanes, 0, 32);
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      widen(task.x, task.xType, first + i, count, scratch);
      addScalar(scratch, -center, count);
      multiply(scratch, scratch, count);
      addTerms(lanes, scratch, count);
    }
    const scale: f32 = <f32>1 / sqrt<f32>(foldLanes(lanes) / length + task.epsilon);
    store<f32>(task.rstd + (row << 2), scale);
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      widen(task.x, task.xType, first + i, count, scratch);
      widen(task.gamma, task.parameterType, i, count, g);
      standardize(scratch, center, scale, count);
      if (task.zeroCentered) addScalar(g, 1, count);
      multiply(scratch, g, count);
      if (task.beta) {
        widen(task.beta, task.parameterType, i, count, g);
        addEach(scratch, g, count);
      }
      narrow(scratch, task.out, task.outType, first + i, count);
    }
  }
}

/** The arguments of `normBackward`. */
@unmanaged
class NormBackwardTask {
  grad: usize;
  gradType: u32;
  x: usize;
  xType: u32;
  gamma: usize;
  parameterType: u32;
  mean: usize;
  rstd: usize;
  dx: usize;
  dxType: u32;
  columns: usize;
  zeroCentered: bool;
}

/**
 * Writes rows [begin, end) of dx. `grad` is the gradient of `out`; the other arguments are those that `norm` read or
 * wrote.
 */
export function normBackward(task: NormBackwardTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  const y = scratch;
  const d = y + BUFFER;
  const g = d + BUFFER;
  const lanes = g + BUFFER;
  const length = <f32>columns;
  for (let row = begin; row < end; row++) {
    const first = row * columns;
    const center: f32 = task.mean ? load<f32>(task.mean + (row << 2)) : 0;
    const scale = load<f32>(task.rstd + (row << 2));
    let a: f32 = 0;
    let b: f32 = 0;
    // pass 0 computes a, pass 1 computes b, pass 2 writes dx
    for (let pass = task.mean ? 0 : 1; pass < 3; pass++) {
      fill(lanes, 0, 32);
      for (let i: usize = 0; i < columns; i += CHUNK) {
        const count = min(CHUNK, columns - i);
        widen(task.x, task.xType, first + i, count, y);
        widen(task.grad, task.gradType, first + i, count, d);
        widen(task.gamma, task.parameterType, i, count, g);
        standardize(y, center, scale, count);
        if (task.zeroCentered) addScalar(g, 1, count);
        multiply(d, g, count);
        if (pass === 1) multiply(d, y, count);
        if (pass < 2) {
          addTerms(lanes, d, count);
        } else {
          multiplyScalar(y, -b, count);
          addScalar(y, -a, count);
          addEach(d, y, count);
          multiplyScalar(d, scale, count);
          narrow(d, task.dx, task.dxType, first + i, count);
        }
      }
      if (pass === 0) a = foldLanes(lanes) / length;
      if (pass === 1) b = foldLanes(lanes) / length;
    }
  }
}

/** The arguments of `normParameters`. */
@unmanaged
class NormParametersTask {
  grad: usize;
  gradType: u32;
  x: usize;
  xType: u32;
  mean: usize;
  rstd: usize;
  dgamma: usize;
  dbeta: usize;
  parameterType: u32;
  rows: usize;
  columns: usize;
}

/** Writes columns [begin, end) of dgamma and, if it is not null, of dbeta, rounded to `parameterType`. */
export function normParameters(task: NormParametersTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  const y = scratch;
  const dz = y + BUFFER;
  const partial = dz + BUFFER;
  const total = partial + 2 * BUFFER;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    fill(total, 0, 2 * CHUNK);
    for (let first: usize = 0; first < task.rows; first += ROWS) {
      fill(partial, 0, 2 * CHUNK);
      for (let row = first, last = min(task.rows, first + ROWS); row < last; row++) {
        widen(task.x, task.xType, row * columns + i, count, y);
        widen(task.grad, task.gradType, row * columns + i, count, dz);
        standardize(
          y,
          task.mean ? load<f32>(task.mean + (row << 2)) : 0,
          load<f32>(task.rstd + (row << 2)),
          count,
        );
        multiply(y, dz, count);
        addEach(partial, y, count);
        addEach(partial + BUFFER, dz, count);
      }
      addEach(total, partial, 2 * CHUNK);
    }
    narrow(total, task.dgamma, task.parameterType, i, count);
    if (task.dbeta) narrow(total + BUFFER, task.dbeta, task.parameterType, i, count);
  }
}

/** values[i] = rstd * (values[i] - mean). */
function standardize(values: usize, mean: f32, rstd: f32, count: usize): void {
  addScalar(values, -mean, count);
  multiplyScalar(values, rstd, count);
}
