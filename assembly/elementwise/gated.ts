// Gated activations: dst[rows, n] = act(a) * g. A row of src[rows, 2n] holds the n values of a, followed by the n
// values of g. The activation selects the gated form: sigmoid gives glu, gelu geglu, relu reglu, silu swiglu, qgelu
// qgeglu, srelu sreglu. Products are f32.
//
// The clamped swiglu replaces a by min(a, limit) and g by clamp(g, -limit, limit) + offset. Derivatives beyond a limit
// are 0. NaN passes every clamp. The other forms are the special case of an infinite limit and an offset of -0; adding
// -0 changes no g.
//
// Every export takes `scratch`, eight buffers of the calling thread (core/scratch.ts), and processes rows [begin, end).

import { Activation } from "../contract";
import { addScalar, clamp, clearBeyond, multiply } from "../core/chunk";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, widen } from "../core/wide";
import { alphaOf } from "./activation";
import { activate, differentiate } from "./curve";

/** dst[rows, n] = act(a) * g for src[rows, 2n] and n = `columns`. */
export function gated(
  src: usize,
  srcType: u32,
  dst: usize,
  dstType: u32,
  kind: u32,
  columns: usize,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const alpha = alphaOf(kind);
  forward(src, srcType, dst, dstType, kind, alpha, Infinity, -0.0, columns, scratch, begin, end);
}

/**
 * Writes the gradients of a and of g to dst[rows, 2n], side by side, for grad[rows, n]: dA = (act'(a) * grad) * g and
 * dG = grad * act(a).
 */
export function gatedBackward(
  grad: usize,
  gradType: u32,
  src: usize,
  srcType: u32,
  dst: usize,
  dstType: u32,
  kind: u32,
  columns: usize,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const alpha = alphaOf(kind);
  backward(
    grad,
    gradType,
    src,
    srcType,
    dst,
    dstType,
    kind,
    alpha,
    Infinity,
    -0.0,
    columns,
    scratch,
    begin,
    end,
  );
}

/** As `gated`, with act(a) = a / (1 + e^(-alpha a)) and with a and g clamped as above. */
export function clampedSwiglu(
  src: usize,
  srcType: u32,
  dst: usize,
  dstType: u32,
  alpha: f32,
  limit: f32,
  offset: f32,
  columns: usize,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const kind = Activation.Silu;
  forward(src, srcType, dst, dstType, kind, alpha, limit, offset, columns, scratch, begin, end);
}

/** As `gatedBackward`, for `clampedSwiglu`. */
export function clampedSwigluBackward(
  grad: usize,
  gradType: u32,
  src: usize,
  srcType: u32,
  dst: usize,
  dstType: u32,
  alpha: f32,
  limit: f32,
  offset: f32,
  columns: usize,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const kind = Activation.Silu;
  backward(
    grad,
    gradType,
    src,
    srcType,
    dst,
    dstType,
    kind,
    alpha,
    limit,
    offset,
    columns,
    scratch,
    begin,
    end,
  );
}

function forward(
  src: usize,
  srcType: u32,
  dst: usize,
  dstType: u32,
  kind: u32,
  alpha: f32,
  limit: f32,
  offset: f32,
  columns: usize,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const gate = scratch + BUFFER;
  for (let row = begin; row < end; row++) {
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      const first: usize = (row + row) * columns + i;
      widen(src, srcType, first, count, scratch);
      widen(src, srcType, first + columns, count, gate);
      clamp(scratch, -Infinity, limit, count);
      clamp(gate, -limit, limit, count);
      addScalar(gate, offset, count);
      activate(kind, alpha, scratch, count);
      multiply(scratch, gate, count);
      narrow(scratch, dst, dstType, row * columns + i, count);
    }
  }
}

function backward(
  grad: usize,
  gradType: u32,
  src: usize,
  srcType: u32,
  dst: usize,
  dstType: u32,
  kind: u32,
  alpha: f32,
  limit: f32,
  offset: f32,
  columns: usize,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const a = scratch;
  const g = a + BUFFER;
  const gate = g + BUFFER;
  const upstream = gate + BUFFER;
  const dA = upstream + BUFFER;
  const dG = dA + BUFFER;
  for (let row = begin; row < end; row++) {
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      const first: usize = (row + row) * columns + i;
      widen(src, srcType, first, count, a);
      widen(src, srcType, first + columns, count, g);
      widen(grad, gradType, row * columns + i, count, upstream);
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
      narrow(dA, dst, dstType, first, count);
      narrow(dG, dst, dstType, first + columns, count);
    }
  }
}
