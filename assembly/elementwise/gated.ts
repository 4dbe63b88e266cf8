// Gated activations: dst[rows, n] = act(a) * g. A row of src[rows, 2n] holds the n values of a, followed by the n
// values of g. The activation selects the gated form: sigmoid gives glu, gelu geglu, relu reglu, silu swiglu, qgelu
// qgeglu, srelu sreglu. Products are f32.
//
// The clamped swiglu replaces a by min(a, limit) and g by clamp(g, -limit, limit) + offset. Derivatives beyond a limit
// are 0. NaN passes every clamp. The other forms are the special case of an infinite limit and an offset of -0; adding
// -0 changes no g.
//
// Every export takes `scratch`, eight buffers of the calling thread (core/scratch.ts), and processes rows [begin, end).

import { addScalar, clamp, clearBeyond, multiply } from "../core/chunk";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, widen } from "../core/wide";
import { alphaOf } from "./activation";
import { activate, differentiate } from "./curve";

/** The arguments of `gated`. Without `clamps`, the limit is infinity, the offset is -0, and alpha is the activation's. */
@unmanaged
class GatedTask {
  src: usize;
  srcType: u32;
  dst: usize;
  dstType: u32;
  kind: u32;
  clamps: bool;
  alpha: f32;
  limit: f32;
  offset: f32;
  columns: usize;
}

/** The arguments of `gatedBackward`. */
@unmanaged
class GatedBackwardTask extends GatedTask {
  grad: usize;
  gradType: u32;
}

/**
 * dst[rows, n] = act(a) * g for src[rows, 2n] and n = `columns`. With `clamps`, a and g are clamped as above; the activation silu
 * is then a / (1 + e^(-alpha a)).
 */
export function gated(task: GatedTask, scratch: usize, begin: usize, end: usize): void {
  const gate = scratch + BUFFER;
  const kind = task.kind;
  const alpha = gateAlpha(task);
  const limit = gateLimit(task);
  const offset = gateOffset(task);
  const columns = task.columns;
  for (let row = begin; row < end; row++) {
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      const first: usize = (row + row) * columns + i;
      widen(task.src, task.srcType, first, count, scratch);
      widen(task.src, task.srcType, first + columns, count, gate);
      clamp(scratch, -Infinity, limit, count);
      clamp(gate, -limit, limit, count);
      addScalar(gate, offset, count);
      activate(kind, alpha, scratch, count);
      multiply(scratch, gate, count);
      narrow(scratch, task.dst, task.dstType, row * columns + i, count);
    }
  }
}

/**
 * Writes the gradients of a and of g to dst[rows, 2n], side by side, for grad[rows, n]: dA = (act'(a) * grad) * g and
 * dG = grad * act(a).
 */
export function gatedBackward(task: GatedBackwardTask, scratch: usize, begin: usize, end: usize): void {
  const a = scratch;
  const g = a + BUFFER;
  const gate = g + BUFFER;
  const upstream = gate + BUFFER;
  const dA = upstream + BUFFER;
  const dG = dA + BUFFER;
  const kind = task.kind;
  const alpha = gateAlpha(task);
  const limit = gateLimit(task);
  const offset = gateOffset(task);
  const columns = task.columns;
  for (let row = begin; row < end; row++) {
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      const first: usize = (row + row) * columns + i;
      widen(task.src, task.srcType, first, count, a);
      widen(task.src, task.srcType, first + columns, count, g);
      widen(task.grad, task.gradType, row * columns + i, count, upstream);
      memory.copy(gate, g, count << 2);
      clamp(gate, -limit, limit, count);
      addScalar(gate, offset, count);
      memory.copy(dA, a, count << 2);
      clamp(dA, -Infinity, limit, count);
      memory.copy(dG, dA, count << 2);
      differentiate(kind, alpha, dA, count);
      multiply(dA, upstream, count);
      multiply(dA, gate, count);
      clearBeyond(dA, a, -Infinity, limit, count);
      activate(kind, alpha, dG, count);
      multiply(dG, upstream, count);
      clearBeyond(dG, g, -limit, limit, count);
      narrow(dA, task.dst, task.dstType, first, count);
      narrow(dG, task.dst, task.dstType, first + columns, count);
    }
  }
}

function gateAlpha(task: GatedTask): f32 {
  return task.clamps ? task.alpha : alphaOf(task.kind);
}

function gateLimit(task: GatedTask): f32 {
  return task.clamps ? task.limit : Infinity;
}

function gateOffset(task: GatedTask): f32 {
  return task.clamps ? task.offset : -0.0;
}
